"""This module has `[security.zookeeper]`: how this process reaches ZooKeeper, who it is there, and who may touch the
znodes that it makes.

It reads no file and no secret; see `halog.adapters.zookeeper.access`. What counts for one ZooKeeper counts for those of
all sites.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from halog.config.secrets import SecretPlace

OFF, REQUIRED = "off", "required"
NONE, DIGEST, X509 = "none", "digest", "x509"
OPEN, CLOSED = "open", "closed"
TLS_MODES: Final = (OFF, REQUIRED)
AUTHS: Final = (NONE, DIGEST, X509)
ACLS: Final = (OPEN, CLOSED)
WHERE: Final = "security.zookeeper"

Problems = Iterator[tuple[str, str]]


@dataclass(frozen=True)
class ZooKeeperSecurity:
    """`[security.zookeeper]` says how this process speaks to ZooKeeper, and to whom its znodes belong."""

    tls: str = OFF  # required: site.zookeeper names the servers' secureClientPort
    check_hostname: bool = True  # the servers' certificates must name the hosts of site.zookeeper
    ca: Path | None = None  # the only authorities that are trusted; None: those of [security]
    cert: Path | None = None  # this process's, for servers that ask for one; None: that of [security], if it is there
    key: Path | None = None  # the key to it, without a password; None: likewise
    auth: str = NONE  # digest: a user and a password; x509: the certificate's subject
    username: str = ""  # for digest
    password: SecretPlace | None = None  # for digest; read when the process starts
    principals: tuple[str, ...] = ()  # for x509: the subjects of all processes of the cluster, as "CN=A"
    acl: str | None = None  # of znodes that are made: open to everybody, or closed; None: closed where there is an auth

    @property
    def closed(self) -> bool:
        """Say whether znodes are made for the cluster's own processes alone."""
        return self.auth != NONE if self.acl is None else self.acl == CLOSED


def zookeeper_problems(
    found: ZooKeeperSecurity | None, certs_dir: Path | None, ca: Path | None, cert: Path | None
) -> Problems:
    """Yield (key, reason) of what cannot be meant. The other values are those of `[security]`."""
    if found is None:
        return
    for name, value, known in (("tls", found.tls, TLS_MODES), ("auth", found.auth, AUTHS), ("acl", found.acl, ACLS)):
        if value is not None and value not in known:
            yield f"{WHERE}.{name}", f"{value[:110]!r} must be one of {', '.join(known)}"
    if found.tls == REQUIRED and (found.ca or ca or certs_dir) is None:
        yield f"{WHERE}.ca", "is missing, and so are security.ca and security.certs_dir: tls is required"
    for name, other, given in (("cert", "key", found.cert), ("key", "cert", found.key)):
        if given is not None and getattr(found, other) is None:
            yield f"{WHERE}.{other}", f"is missing: {name} is given, and each is of no use alone"
    yield from _digest_problems(found)
    yield from _x509_problems(found, has_certificate=(found.cert or cert or certs_dir) is not None)
    if found.auth == NONE and found.acl == CLOSED:
        yield f"{WHERE}.auth", "is none, and acl is closed: nobody could use the znodes"


def _digest_problems(found: ZooKeeperSecurity) -> Problems:
    if found.password is not None:
        yield from found.password.problems(f"{WHERE}.password")
    if found.auth != DIGEST:
        if found.username:
            yield f"{WHERE}.username", f"is for auth = {DIGEST!r}, which is {found.auth[:110]!r}"
        if found.password is not None:
            yield f"{WHERE}.password", f"is for auth = {DIGEST!r}, which is {found.auth[:110]!r}"
        return
    if not found.username:
        yield f"{WHERE}.username", "is missing: auth is digest"
    elif ":" in found.username or not found.username.isprintable():
        yield f"{WHERE}.username", f"{found.username[:110]!a} must not have a colon, and nothing that is not printed"
    if found.password is None:
        yield f"{WHERE}.password", "is missing: auth is digest"


def _x509_problems(found: ZooKeeperSecurity, *, has_certificate: bool) -> Problems:
    if found.auth != X509:
        if found.principals:
            yield f"{WHERE}.principals", f"are for auth = {X509!r}, which is {found.auth[:110]!r}"
        return
    if found.tls != REQUIRED:
        yield f"{WHERE}.tls", "must be required: auth is x509, and only TLS shows a certificate"
    if not has_certificate:
        yield f"{WHERE}.cert", "is missing, and so are security.cert and security.certs_dir: auth is x509"
    if not found.principals and found.closed:
        yield f"{WHERE}.principals", 'is missing: auth is x509; name every process of the cluster, as ["CN=A", "CN=B"]'
