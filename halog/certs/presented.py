"""This module judges the certificates that nodes present to whoever connects: those that are in use."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cryptography import x509

from halog.certs.certificate import fingerprint, identity_of, is_issued_by, issuer_among
from halog.certs.directory import CertsDirectory
from halog.certs.identity import HolderIdentity, HolderKind
from halog.certs.inventory import Inventory
from halog.certs.rotation_plan import read_plan
from halog.certs.verification import FAIL, WARN, CertificateFinding, date_findings


@dataclass(frozen=True)
class PresentedCertificate:
    """A `PresentedCertificate` is what a node answers with. Without one, `reason` says why. `is_plain`: the node was
    reached, and does not speak TLS."""

    node: str
    address: str
    certificate: x509.Certificate | None
    hosts: bool = True
    reason: str = ""
    is_plain: bool = False

    @property
    def place(self) -> str:
        """Return the node and its address, as people read them."""
        return f"{self.node} at {self.address}"


def presented_findings(
    inventory: Inventory, cluster: str, presented: Mapping[str, PresentedCertificate], now: dt.datetime
) -> Iterator[CertificateFinding]:
    """Yield what is wrong with the certificates in use, by the node's name."""
    for one in presented.values():
        found = one.certificate
        if found is None:
            yield CertificateFinding(one.place, WARN, one.reason)
            continue
        advice = "bring it a certificate of ca.crt, and let it take that"
        yield from date_findings(one.place, found, now, "what it presents ", advice)
        if issuer_among(found, inventory.authorities) is None:
            yield CertificateFinding(one.place, FAIL, "what it presents was issued by none of ca.crt", advice)
        told, expected = identity_of(found), HolderIdentity(cluster, HolderKind.NODE, one.node)
        if one.hosts and told != expected:
            yield CertificateFinding(
                one.place, FAIL, f"presents what is for {told.uri if told else 'nobody of halog'}", "bring it its own"
            )
        kept = next((h for h in inventory.holders if h.identity == told), None)
        if told is not None and kept is not None and fingerprint(kept.certificate) != fingerprint(found):
            yield CertificateFinding(
                one.place, WARN, f"presents another certificate than {kept.file}", "bring it there"
            )


def in_the_way(directory: CertsDirectory, presented: Mapping[str, PresentedCertificate]) -> list[str]:
    """Return who keeps a rotation from being finished: nodes that present a certificate of the leaving authority, and
    nodes of which nobody knows, since they do not answer."""
    plan = read_plan(directory)
    if plan is None:
        return []
    return [
        one.place if one.certificate is not None else f"{one.place} ({one.reason})"
        for one in presented.values()
        if not one.is_plain and (one.certificate is None or is_issued_by(one.certificate, plan.leaving))
    ]
