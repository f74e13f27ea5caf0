"""This module reads certificates: whom one is for, since when and how long, and who issued it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization

from halog.certs.directory import read_public
from halog.certs.identity import HolderIdentity, single_identity
from halog.errors import ConfigError


def read_certificates(path: Path) -> list[x509.Certificate]:
    """Return the certificates of a PEM file, in its order: at least one. ConfigError if there is none, or a wrong
    one."""
    try:
        return x509.load_pem_x509_certificates(read_public(path))
    except ValueError as error:
        raise ConfigError(f"{path}: holds no certificate as PEM, or one that is damaged") from error


def certificate_pem(certificates: Iterable[x509.Certificate]) -> bytes:
    """Return certificates as one PEM file."""
    return b"".join(c.public_bytes(serialization.Encoding.PEM) for c in certificates)


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 of a certificate in hex digits: its name among all others."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def alternative_names(of: x509.Certificate | x509.CertificateSigningRequest) -> list[x509.GeneralName]:
    """Return the subject alternative names of a certificate or a request. ConfigError if its extensions cannot be
    read."""
    try:
        return list(of.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return []
    except ValueError as error:
        raise ConfigError(f"the extensions of {of.subject.rfc4514_string()[:100]!a} cannot be read: {error}") from error


def identity_of(certificate: x509.Certificate | x509.CertificateSigningRequest) -> HolderIdentity | None:
    """Return whom a certificate or a request is for; None if it does not say so as halog's do."""
    names = alternative_names(certificate)
    return single_identity([n.value for n in names if isinstance(n, x509.UniformResourceIdentifier)])


def is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Say whether an authority has signed a certificate. Dates are not looked at."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def issuer_among(certificate: x509.Certificate, authorities: Iterable[x509.Certificate]) -> x509.Certificate | None:
    """Return the authority that has signed a certificate."""
    return next((a for a in authorities if is_issued_by(certificate, a)), None)


def common_name(name: x509.Name) -> str:
    """Return the common name of a subject or an issuer; all of it where it has none."""
    found = name.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return str(found[0].value) if found else name.rfc4514_string()


def days_left(certificate: x509.Certificate, now: dt.datetime) -> int:
    """Return the whole days until a certificate ends; less than 0 once it has ended."""
    return (certificate.not_valid_after_utc - now) // dt.timedelta(days=1)
