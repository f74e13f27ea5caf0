"""This module checks a certificates directory: chains, dates, names, keys and the modes of files.

A finding says what is wrong, and what to do. `fail` is what keeps processes from working together, or shows a secret;
`warn` is what will do so later.
"""

from __future__ import annotations

import datetime as dt
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from halog.certs.certificate import days_left, fingerprint, identity_of, issuer_among, read_certificates
from halog.certs.directory import DIRECTORY_MODE, OTHERS, OTHERS_WRITE, CertsDirectory, secret_problem
from halog.certs.identity import HolderIdentity, HolderKind
from halog.certs.inventory import (
    AUTHORITIES,
    AUTHORITY_KEY,
    BUNDLE,
    CERTIFICATE,
    KEY,
    SOON,
    HeldCertificate,
    Inventory,
)
from halog.certs.keys import fits, read_key
from halog.certs.rotation_plan import RotationPhase, read_plan
from halog.errors import HalogError

FAIL: Final = "fail"
WARN: Final = "warn"
SECRETS: Final = (KEY, BUNDLE)


@dataclass(frozen=True)
class CertificateFinding:
    """A `CertificateFinding` is one thing that is wrong, or soon will be."""

    file: str
    result: str
    detail: str
    advice: str = ""


def verify(
    directory: CertsDirectory, cluster: str | None, now: dt.datetime
) -> tuple[Inventory, list[CertificateFinding]]:
    """Return what the directory holds and what is wrong with it. Without a cluster's name all certificates must be of
    one cluster."""
    inventory = Inventory.read(directory)
    named = [h.identity.cluster for h in inventory.holders if h.identity is not None]
    expected = cluster or next(iter([*_told(inventory), *named]), None)
    findings = [
        *_directory_findings(directory, inventory),
        *_authority_findings(directory, inventory, expected, now),
        *(f for held in inventory.holders for f in _holder_findings(directory, inventory, held, expected, now)),
        *_rotation_findings(directory, inventory),
    ]
    return inventory, findings


def _told(inventory: Inventory) -> list[str]:
    return [i.cluster for c in inventory.authorities if (i := identity_of(c)) is not None]


def _directory_findings(directory: CertsDirectory, inventory: Inventory) -> Iterator[CertificateFinding]:
    mode = stat.S_IMODE(directory.path.stat().st_mode)
    if mode & OTHERS_WRITE:
        yield CertificateFinding(
            ".", FAIL, f"others may write in the directory (mode {mode:04o})", f"chmod 700 {directory.path}"
        )
    elif mode & OTHERS:
        yield CertificateFinding(
            ".",
            WARN,
            f"others may look into the directory (mode {mode:04o}, not {DIRECTORY_MODE:04o})",
            f"chmod 700 {directory.path}",
        )
    for name in directory.interrupted():
        yield CertificateFinding(name, WARN, "a command was killed while it wrote this", "give that command again")
    for name, reason in inventory.unreadable.items():
        yield CertificateFinding(name, FAIL, reason, "put it back, or make it anew")
    for name in inventory.names:
        path = directory.place(name)
        if name.endswith(SECRETS) and (problem := secret_problem(path, path.stat().st_mode)):
            yield CertificateFinding(name, FAIL, problem.partition(": ")[2].partition(";")[0], f"chmod 600 {path}")
        stem = name.removesuffix(KEY)
        alone = name.endswith(KEY) and stem + CERTIFICATE not in inventory.names and not name.startswith("ca.")
        if alone:
            yield CertificateFinding(name, WARN, "this key has no certificate", "have its request signed, or remove it")


def _authority_findings(
    directory: CertsDirectory, inventory: Inventory, cluster: str | None, now: dt.datetime
) -> Iterator[CertificateFinding]:
    if not inventory.authorities:
        if AUTHORITIES not in inventory.unreadable:
            yield CertificateFinding(AUTHORITIES, FAIL, "is not there", "halog certs create-ca, or put yours there")
        return
    for one in inventory.authorities:
        which = f"authority {fingerprint(one)[:8]}"
        if not _may_sign(one):
            yield CertificateFinding(AUTHORITIES, FAIL, f"{which} is no authority's certificate", "remove it")
        yield from date_findings(AUTHORITIES, one, now, f"{which} ", "halog certs rotate-ca begin")
        told = identity_of(one)
        if told is not None and cluster is not None and told.cluster != cluster:
            yield CertificateFinding(
                AUTHORITIES, FAIL, f"{which} is that of cluster {told.cluster}, not of {cluster}", "remove it"
            )
    if AUTHORITY_KEY in inventory.names and not _fits_one(directory, AUTHORITY_KEY, inventory.authorities):
        yield CertificateFinding(
            AUTHORITY_KEY, FAIL, "fits no authority of ca.crt, or cannot be read", "put the right one back"
        )


def _holder_findings(
    directory: CertsDirectory, inventory: Inventory, held: HeldCertificate, cluster: str | None, now: dt.datetime
) -> Iterator[CertificateFinding]:
    again = f"halog certs renew {held.stem}"
    yield from date_findings(held.file, held.certificate, now, "", again)
    if inventory.authorities:
        issuer = issuer_among(held.certificate, inventory.authorities)
        if issuer is None:
            yield CertificateFinding(held.file, FAIL, "was issued by none of ca.crt", again)
    yield from identity_findings(held, cluster)
    if held.has_key and not _fits_one(directory, held.stem + KEY, [held.certificate]):
        yield CertificateFinding(held.file, FAIL, f"does not fit {held.stem}{KEY}, or that cannot be read", again)
    if held.stem + BUNDLE in inventory.names or (held.identity is not None and held.identity.kind is HolderKind.SERVER):
        yield from _bundle_findings(directory, held, again)


def identity_findings(held: HeldCertificate, cluster: str | None) -> Iterator[CertificateFinding]:
    """Yield what is wrong with whom a certificate is for, and with what it may be used for."""
    identity = held.identity
    if identity is None:
        yield CertificateFinding(
            held.file, FAIL, "names nobody of halog, or more than one (halog://CLUSTER/node/NAME)", "make it anew"
        )
        return
    if cluster is not None and identity.cluster != cluster:
        yield CertificateFinding(held.file, FAIL, f"is for {identity.uri}, another cluster than {cluster}", "remove it")
    if held.stem not in (identity.stem, *(["node"] if identity.kind is HolderKind.NODE else [])):
        yield CertificateFinding(
            held.file, FAIL, f"is for {identity.uri}", f"name the file {identity.stem}{CERTIFICATE}"
        )
    missing = _missing_usages(held.certificate, identity)
    if missing:
        yield CertificateFinding(held.file, FAIL, f"may not be used as {missing}", "make it anew")


def _missing_usages(certificate: x509.Certificate, identity: HolderIdentity) -> str:
    needed = {ExtendedKeyUsageOID.CLIENT_AUTH: "a client's"}
    if identity.kind is not HolderKind.USER:
        needed[ExtendedKeyUsageOID.SERVER_AUTH] = "a server's"
    try:
        usages = set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except (x509.ExtensionNotFound, ValueError):
        return ""  # without the extension it may be used for everything
    return " and ".join(text for oid, text in needed.items() if oid not in usages)


def _bundle_findings(directory: CertsDirectory, held: HeldCertificate, again: str) -> Iterator[CertificateFinding]:
    """Yield what is wrong with the file that has both: it must have this key and this certificate."""
    name = held.stem + BUNDLE
    try:
        found = read_certificates(directory.place(name))
        is_same = found[0] == held.certificate and fits(read_key(directory.place(name)), held.certificate)
    except HalogError as error:
        yield CertificateFinding(name, FAIL, error.message, again)
        return
    if not is_same:
        yield CertificateFinding(name, FAIL, f"has another key or certificate than {held.file}", again)


def date_findings(
    file: str, certificate: x509.Certificate, now: dt.datetime, which: str, advice: str
) -> Iterator[CertificateFinding]:
    """Yield what is wrong with the dates of a certificate."""
    end = certificate.not_valid_after_utc
    if certificate.not_valid_before_utc > now:
        yield CertificateFinding(
            file,
            FAIL,
            f"{which}is not valid before {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC",
            "set this machine's clock, or wait",
        )
    elif end <= now:
        yield CertificateFinding(file, FAIL, f"{which}has ended on {end:%Y-%m-%d %H:%M} UTC", advice)
    elif end - now < SOON:
        yield CertificateFinding(
            file,
            WARN,
            f"{which}ends on {end:%Y-%m-%d %H:%M} UTC, in {days_left(certificate, now)} days",
            advice,
        )


def _rotation_findings(directory: CertsDirectory, inventory: Inventory) -> Iterator[CertificateFinding]:
    plan = read_plan(directory)
    if plan is None:
        return
    if plan.phase is not RotationPhase.REISSUE:
        yield CertificateFinding(
            AUTHORITIES, FAIL, "a rotation of the authority was interrupted", "halog certs rotate-ca status"
        )
        return
    left = [h.stem for h in inventory.issued_by(plan.leaving)]
    yield CertificateFinding(
        AUTHORITIES,
        WARN,
        f"a rotation of the authority is under way since {plan.since}; {len(left)} certificates are to be reissued",
        "halog certs renew --all" if left else "halog certs rotate-ca finish",
    )


def _fits_one(directory: CertsDirectory, name: str, certificates: list[x509.Certificate]) -> bool:
    try:
        key = read_key(directory.place(name))
    except HalogError:
        return False
    return any(fits(key, c) for c in certificates)


def _may_sign(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False
