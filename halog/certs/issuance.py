"""This module makes the files of a holder: its key and its certificate, or a request that is signed elsewhere."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.x509.oid import NameOID

from halog.certs.authority import AUTHORITY_DAYS, HOLDER_DAYS, Authority, Holder
from halog.certs.certificate import alternative_names, certificate_pem, identity_of
from halog.certs.directory import PUBLIC_MODE, SECRET_MODE, CertsDirectory, NewFile, read_public
from halog.certs.identity import HolderIdentity, HolderKind
from halog.certs.inventory import (
    AUTHORITIES,
    AUTHORITY_KEY,
    BUNDLE,
    CERTIFICATE,
    KEY,
    REQUEST,
    HeldCertificate,
    Inventory,
)
from halog.certs.keys import PrivateKey, PublicKey, key_pem, make_key, public_bytes, read_key, weakness
from halog.certs.rotation import signing_authority
from halog.certs.rotation_plan import read_plan
from halog.errors import ConfigError, RefusedError

ROLES: Final = ("client", "operator", "viewer")
"""Roles of users. A certificate tells its role to people; the configuration says who has which."""


def create_authority(
    directory: CertsDirectory, cluster: str, now: dt.datetime, days: int = AUTHORITY_DAYS, *, overwrite: bool = False
) -> x509.Certificate:
    """Make the authority of a cluster: `ca.key` and `ca.crt`."""
    made = Authority.create(cluster, now, days)
    with directory.writing():
        if read_plan(directory) is not None:
            raise RefusedError(
                "a rotation of the authority is under way; nothing was changed. End it: `halog certs rotate-ca status`"
            )
        there = [name for name in (AUTHORITY_KEY, AUTHORITIES) if directory.place(name).exists()]
        if there and not overwrite:
            raise RefusedError(
                f"{directory.place(there[0])}: is there already; nothing was changed. `halog certs rotate-ca begin` "
                "replaces an authority under traffic. With --overwrite nobody trusts what the old one has signed"
            )
        directory.write_together(
            [
                NewFile(AUTHORITY_KEY, key_pem(made.key), SECRET_MODE),
                NewFile(AUTHORITIES, certificate_pem([made.certificate])),
            ]
        )
    return made.certificate


def create(
    directory: CertsDirectory,
    holder: Holder,
    authority_key: Path,
    now: dt.datetime,
    days: int = HOLDER_DAYS,
    *,
    overwrite: bool = False,
) -> x509.Certificate:
    """Make the key and the certificate of a holder."""
    stem = holder.identity.stem
    with directory.writing():
        there = [name for name in _files(holder.identity, stem) if directory.place(name).exists()]
        if there and not overwrite:
            raise RefusedError(
                f"{directory.place(there[0])}: is there already; nothing was changed. `halog certs renew {stem}` makes "
                "a newer one of the same names; --overwrite replaces it"
            )
        authority = signing_authority(directory, authority_key, holder.identity.cluster)
        return issue(directory, stem, holder, authority, now, days)


def issue(
    directory: CertsDirectory, stem: str, holder: Holder, authority: Authority, now: dt.datetime, days: int
) -> x509.Certificate:
    """Write a new key and its certificate. The directory is being written to by the caller."""
    key = make_key()
    made = authority.sign(holder, key.public_key(), now, days)
    certificate, private = certificate_pem([made]), key_pem(key)
    contents = {KEY: private, BUNDLE: private + certificate, CERTIFICATE: certificate}
    directory.write_together(
        [
            NewFile(name, contents[suffix], PUBLIC_MODE if suffix == CERTIFICATE else SECRET_MODE)
            for name in _files(holder.identity, stem)
            for suffix in [name.removeprefix(stem)]
        ]
    )
    return made


def _files(identity: HolderIdentity, stem: str) -> list[str]:
    """Return the names of a holder's files in the order in which they are written. Servers of the JVM read the key and
    the certificate from one file."""
    suffixes = (KEY, BUNDLE, CERTIFICATE) if identity.kind is HolderKind.SERVER else (KEY, CERTIFICATE)
    return [stem + suffix for suffix in suffixes]


def request(directory: CertsDirectory, holder: Holder) -> Path:
    """Write a request for a certificate, and return its file. The holder's key is made, unless it is there."""
    stem = holder.identity.stem
    with directory.writing():
        key: PrivateKey
        if directory.place(stem + KEY).exists():
            key = read_key(directory.place(stem + KEY))
        else:
            key = make_key()
            directory.write(NewFile(stem + KEY, key_pem(key), SECRET_MODE))
        asked = (
            x509.CertificateSigningRequestBuilder()
            .subject_name(holder.subject)
            .add_extension(x509.SubjectAlternativeName(holder.names), critical=False)
            .sign(key, None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256())
        )
        directory.write(NewFile(stem + REQUEST, asked.public_bytes(serialization.Encoding.PEM)))
    return directory.place(stem + REQUEST)


def sign_request(
    directory: CertsDirectory,
    path: Path,
    cluster: str,
    authority_key: Path,
    now: dt.datetime,
    days: int = HOLDER_DAYS,
    *,
    overwrite: bool = False,
) -> tuple[Holder, x509.Certificate]:
    """Write the certificate that a node or a user of this cluster requests. Only the names and the public key
    are taken from it."""
    holder, public = read_request(path, cluster)
    stem = holder.identity.stem
    with directory.writing():
        if directory.place(stem + CERTIFICATE).exists() and not overwrite:
            raise RefusedError(
                f"{directory.place(stem + CERTIFICATE)}: is there already; nothing was signed. --overwrite replaces it"
            )
        if directory.place(stem + KEY).exists():
            present = read_key(directory.place(stem + KEY)).public_key()
            if public_bytes(present) != public_bytes(public):
                raise RefusedError(
                    f"{path}: asks for another key than that of {directory.place(stem + KEY)}, which would no longer "
                    "fit its certificate; nothing was signed. Make the request anew, or sign it in another directory"
                )
        authority = signing_authority(directory, authority_key, cluster)
        made = authority.sign(holder, public, now, days)
        directory.write(NewFile(stem + CERTIFICATE, certificate_pem([made])))
    return holder, made


def read_request(path: Path, cluster: str) -> tuple[Holder, PublicKey]:
    """Return whom a request is for, and his key. ConfigError if it is damaged, RefusedError if it is not to be
    signed."""
    data = read_public(path)
    try:
        asked = x509.load_pem_x509_csr(data)
        public = asked.public_key()
        is_own = asked.is_signature_valid
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{path}: holds no request for a certificate as PEM") from error
    if not is_own:
        raise RefusedError(f"{path}: is not signed by the key that it names; nothing was signed")
    if not isinstance(public, PublicKey) or weakness(public):
        raise RefusedError(f"{path}: its key is {weakness(public)}; nothing was signed")
    identity = identity_of(asked)
    if identity is None or identity.kind not in (HolderKind.NODE, HolderKind.USER):
        raise RefusedError(
            f"{path}: does not say for whom it is; nothing was signed. One of its alternative names must be the URI "
            f"halog://{cluster}/node/NAME or halog://{cluster}/user/NAME, and no other of halog's"
        )
    if identity.cluster != cluster:
        raise RefusedError(f"{path}: is for cluster {identity.cluster}, not for {cluster}; nothing was signed")
    return Holder(identity, _hosts(asked, str(path)), _role(asked)), public


def renew(
    directory: CertsDirectory,
    stems: Sequence[str],
    cluster: str,
    authority_key: Path,
    now: dt.datetime,
    days: int = HOLDER_DAYS,
) -> list[tuple[str, x509.Certificate]]:
    """Make a new key and a new certificate of the same names for each of these holders, whose keys are here. Each one
    is complete before the next is begun."""
    with directory.writing():
        inventory = Inventory.read(directory)
        authority = signing_authority(directory, authority_key, cluster)
        holders = dict[str, Holder]()
        for found in [inventory.named(stem) for stem in stems]:
            if found.identity is None or found.identity.cluster != cluster:
                raise RefusedError(
                    f"{found.file}: is for {found.identity.uri if found.identity else 'nobody of halog'}, not of "
                    f"cluster {cluster}; nothing was renewed"
                )
            if not found.has_key:
                raise RefusedError(
                    f"{found.file}: its key is not here; nothing was renewed. Make a request where it is, and sign "
                    "that: `halog certs sign --csr`"
                )
            holders[found.stem] = Holder(
                found.identity, _hosts(found.certificate, found.file), _role(found.certificate)
            )
        return [(stem, issue(directory, stem, holder, authority, now, days)) for stem, holder in holders.items()]


def to_renew(directory: CertsDirectory, within: dt.timedelta | None, now: dt.datetime) -> list[HeldCertificate]:
    """Return what `renew --all` is about: what ends within this time, or all. While a rotation is under way, what the
    leaving authority has issued, and beside that what ends within the time that was given."""
    inventory = Inventory.read(directory)
    plan = read_plan(directory)
    leaving = set() if plan is None else {h.stem for h in inventory.issued_by(plan.leaving)}
    return [
        h
        for h in inventory.holders
        if h.stem in leaving or (plan is None and within is None) or (within is not None and h.ends_within(within, now))
    ]


def holder_to_renew(directory: CertsDirectory, name: str) -> Holder:
    """Return the holder of a certificate, for a request of the same names."""
    found = Inventory.read(directory).named(name)
    if found.identity is None or found.identity.kind not in (HolderKind.NODE, HolderKind.USER):
        raise ConfigError(f"{found.file}: is not for a node or a user; no request is made for it")
    return Holder(found.identity, _hosts(found.certificate, found.file), _role(found.certificate))


def _hosts(of: x509.Certificate | x509.CertificateSigningRequest, file: str) -> list[x509.GeneralName]:
    """Return the names beside the identity. RefusedError if there are others than hosts."""
    found = alternative_names(of)
    kinds = (x509.DNSName, x509.IPAddress)
    rest = [n for n in found if not isinstance(n, kinds)]
    told = ", ".join(str(n.value) for n in rest)
    if len(rest) > 1:
        raise RefusedError(
            f"{file}: has names that are neither the identity nor hosts: {told[:200]!a}; nothing was signed"
        )
    return [n for n in found if isinstance(n, kinds)]


def _role(of: x509.Certificate | x509.CertificateSigningRequest) -> str:
    found = of.subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
    return str(found[0].value) if found and found[0].value in ROLES else ""
