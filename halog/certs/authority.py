"""This module makes the authority of a cluster, and says what stands in the certificates that it signs.

All but the holder's names and public key is decided here, whatever a request asks for: dates, usages, serial numbers.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from halog.certs.certificate import fingerprint
from halog.certs.identity import HolderIdentity, HolderKind
from halog.certs.keys import PrivateKey, PublicKey, fits, make_key, read_key
from halog.errors import ConfigError, RefusedError

AUTHORITY_DAYS: Final = 3_650
HOLDER_DAYS: Final = 365
BACK: Final = dt.timedelta(minutes=5)
"""A certificate is valid from so long before it was made: clocks of machines differ."""
MOST_CHARACTERS: Final = 64
"""X.509 allows a common name so long. The whole name stands in the URI."""
SHOWN: Final = 8


@dataclass(frozen=True)
class Holder:
    """A `Holder` is what is certified: an identity, the other names beside it, and a role that is told to people."""

    identity: HolderIdentity
    hosts: Sequence[x509.GeneralName] = ()
    role: str = ""

    @property
    def names(self) -> list[x509.GeneralName]:
        """Return its subject alternative names, the identity first."""
        return [x509.UniformResourceIdentifier(self.identity.uri), *self.hosts]

    @property
    def subject(self) -> x509.Name:
        """Return its subject. It identifies nobody: the URI does."""
        told = [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, self.role)] if self.role else []
        return x509.Name([*told, x509.NameAttribute(NameOID.COMMON_NAME, self.identity.name[:MOST_CHARACTERS])])


@dataclass(frozen=True)
class Authority:
    """An `Authority` signs with this key. Its certificate is the one that others trust."""

    certificate: x509.Certificate
    key: PrivateKey

    @classmethod
    def create(cls, cluster: str, now: dt.datetime, days: int = AUTHORITY_DAYS) -> Authority:
        """Make a new authority for a cluster. Its name has a part of its serial number, so that two of one cluster are
        told apart."""
        key, serial = make_key(), x509.random_serial_number()
        identity = HolderIdentity.of(cluster, HolderKind.CA)
        marked = f" {serial:040x}"[: SHOWN + 1]
        title = f"halog CA {cluster}"[: MOST_CHARACTERS - len(marked)] + marked
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, title)])
        public = key.public_key()
        usage = _key_usage(signs_certificates=True)
        builder = (
            _dated(now, days, None)
            .subject_name(name)
            .issuer_name(name)
            .public_key(public)
            .serial_number(serial)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(
                x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity.uri)]),
                critical=False,
            )
        )
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def read(cls, trusted: Sequence[x509.Certificate], key_path: Path) -> Authority:
        """Return the authority whose key stands in a file. RefusedError if nobody trusts it."""
        if not key_path.exists():
            raise ConfigError(
                f"{key_path}: the authority's key is not there; name its file with --ca-key, or make a request with "
                "--csr and sign it where the key is"
            )
        key = read_key(key_path)
        found = next((c for c in trusted if fits(key, c)), None)
        if found is None:
            raise RefusedError(f"{key_path}: this key belongs to no certificate of ca.crt; nothing was signed")
        return cls(found, key)

    def sign(self, holder: Holder, public: PublicKey, now: dt.datetime, days: int = HOLDER_DAYS) -> x509.Certificate:
        """Return the certificate of a holder. It does not outlive the authority's own."""
        if self.certificate.not_valid_after_utc <= now:
            raise RefusedError(
                f"the authority {fingerprint(self.certificate)[:SHOWN]} has ended on "
                f"{self.certificate.not_valid_after_utc:%Y-%m-%d}; nothing was signed. Make another one: `halog certs "
                "rotate-ca begin`"
            )
        if days < 1:
            raise ConfigError(f"a certificate of {days} days is none")
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if holder.identity.kind is not HolderKind.USER:
            usages.insert(0, ExtendedKeyUsageOID.SERVER_AUTH)
        builder = (
            _dated(now, days, self.certificate.not_valid_after_utc)
            .subject_name(holder.subject)
            .issuer_name(self.certificate.subject)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(self._key_identifier, critical=False)
            .add_extension(x509.SubjectAlternativeName(holder.names), critical=False)
        )
        return builder.sign(self.key, None if isinstance(self.key, ed25519.Ed25519PrivateKey) else hashes.SHA256())

    @property
    def _key_identifier(self) -> x509.AuthorityKeyIdentifier:
        """Return how what it signs refers to its key: as its own certificate does, where that says so."""
        try:
            own = self.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        except x509.ExtensionNotFound:
            return x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def _dated(now: dt.datetime, days: int, at_most: dt.datetime | None) -> x509.CertificateBuilder:
    end = now + dt.timedelta(days=days)
    end = end if at_most is None else min(end, at_most)
    return x509.CertificateBuilder().not_valid_before(now - BACK).not_valid_after(end)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
