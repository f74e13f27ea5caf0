"""This module finds what a certificates directory holds: the authorities in `ca.crt`, and a file for each holder."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cryptography import x509

from halog.certs.certificate import identity_of, is_issued_by, read_certificates
from halog.certs.directory import CertsDirectory
from halog.certs.identity import AUTHORITY_STEM, HolderIdentity
from halog.errors import ConfigError, UnknownNameError

CERTIFICATE: Final = ".crt"
KEY: Final = ".key"
BUNDLE: Final = ".pem"
REQUEST: Final = ".csr"
AUTHORITIES: Final = AUTHORITY_STEM + CERTIFICATE
AUTHORITY_KEY: Final = AUTHORITY_STEM + KEY
SOON: Final = dt.timedelta(days=30)
"""What ends within this time is warned of."""


@dataclass(frozen=True)
class HeldCertificate:
    """A `HeldCertificate` stands in a file of the directory. `identity` is None if it is not one of halog's."""

    stem: str
    certificate: x509.Certificate
    identity: HolderIdentity | None
    has_key: bool

    @property
    def file(self) -> str:
        """Return the name of its file."""
        return self.stem + CERTIFICATE

    def ends_within(self, time: dt.timedelta, now: dt.datetime) -> bool:
        """Say whether it ends within this time, or has ended."""
        return self.certificate.not_valid_after_utc - now < time


@dataclass(frozen=True)
class Inventory:
    """An `Inventory` is what a directory held when it was read. `unreadable` says why, by the file's name."""

    authorities: list[x509.Certificate]
    holders: list[HeldCertificate]
    unreadable: dict[str, str]
    names: list[str]

    @classmethod
    def read(cls, directory: CertsDirectory) -> Inventory:
        """Read a directory."""
        names = directory.names()
        found, unreadable = list[HeldCertificate](), dict[str, str]()
        authorities = list[x509.Certificate]()
        for name in names:
            if not name.endswith(CERTIFICATE):
                continue
            try:
                certificates = read_certificates(directory.place(name))
                if name == AUTHORITIES:
                    authorities = certificates
                    continue
                stem = name.removesuffix(CERTIFICATE)
                found.append(HeldCertificate(stem, certificates[0], identity_of(certificates[0]), stem + KEY in names))
            except ConfigError as error:
                unreadable[name] = error.message
        return cls(authorities, found, unreadable, names)

    def named(self, name: str) -> HeldCertificate:
        """Return the certificate of a file (`node.A`), or of the only holder of this name (`A`)."""
        by_file = [h for h in self.holders if name in (h.stem, h.file)]
        found = by_file or [h for h in self.holders if h.identity is not None and h.identity.name == name]
        if not found:
            raise UnknownNameError.of("certificate", name, [h.stem for h in self.holders])
        if len(found) > 1:
            raise ConfigError(f"the name {name} has several certificates: say {' or '.join(h.stem for h in found)}")
        return found[0]

    def issued_by(self, authority: x509.Certificate) -> Iterator[HeldCertificate]:
        """Yield the certificates that an authority has signed."""
        return (h for h in self.holders if is_issued_by(h.certificate, authority))


def trusted_authorities(directory: CertsDirectory) -> list[x509.Certificate]:
    """Return what `ca.crt` holds. ConfigError says how to make one."""
    if not directory.place(AUTHORITIES).exists():
        raise ConfigError(
            f"{directory.place(AUTHORITIES)}: there is no authority yet; make one with `halog certs create-ca`, or put "
            "the certificate of yours there"
        )
    return read_certificates(directory.place(AUTHORITIES))
