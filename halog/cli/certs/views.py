"""This module shows certificates: as a document for programs, and as a row of a table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography import x509

from halog.certs.certificate import alternative_names, common_name, days_left, fingerprint, identity_of
from halog.certs.hosts import host_texts
from halog.cli.shared.messages import echo_facts
from halog.cli.shared.output import emit_json

COLUMNS = ("name", "kind", "identity", "hosts", "ends", "days left", "issuer", "key", "file")


def certificate_document(
    certificate: x509.Certificate, file: Path, key: Path | None, now: dt.datetime
) -> dict[str, Any]:
    """Return what a certificate says, and where it is."""
    identity = identity_of(certificate)
    return {
        "name": identity.name if identity is not None else common_name(certificate.subject),
        "kind": str(identity.kind) if identity is not None else None,
        "cluster": identity.cluster if identity is not None else None,
        "identity": identity.uri if identity is not None else None,
        "hosts": host_texts(alternative_names(certificate)),
        "not_before": certificate.not_valid_before_utc.isoformat(),
        "not_after": certificate.not_valid_after_utc.isoformat(),
        "days_left": days_left(certificate, now),
        "issuer": common_name(certificate.issuer),
        "serial": f"{certificate.serial_number:x}",
        "sha256": fingerprint(certificate),
        "key": str(key) if key is not None else None,
        "file": str(file),
    }


def certificate_row(document: dict[str, Any]) -> Sequence[object]:
    """Return the cells of a certificate's row, by `COLUMNS`."""
    return (
        document["name"] or "-",
        document["kind"] or "-",
        document["identity"] or "-",
        ", ".join(document["hosts"]) or "-",
        document["not_after"][:10],
        document["days_left"],
        document["issuer"],
        "yes" if document["key"] else "no",
        document["file"],
    )


def show_made(document: dict[str, Any], format_: str) -> None:
    """Show one certificate that was made."""
    if format_ == "json":
        emit_json(document)
        return
    echo_facts(
        [
            ("certificate", document["file"]),
            ("key", document["key"] or "not here"),
            ("identity", document["identity"]),
            ("hosts", ", ".join(document["hosts"]) or None),
            ("ends", f"{document['not_after'][:10]} (in {document['days_left']} days)"),
            ("issuer", document["issuer"]),
        ]
    )
