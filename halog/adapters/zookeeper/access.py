"""This module says how this process reaches ZooKeeper: by TLS or without, as whom, and to whom its znodes belong. It
renders that as kazoo's arguments.

Nothing here shows a password: neither a repr nor a log has it.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from kazoo.protocol.serialization import Auth
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Id, Permissions

from halog.config.secrets import Secret
from halog.errors import ConfigError

ALL: Final = Permissions.ALL
WORLD: Final = Id("world", "anyone")


class ZnodeOwner(NamedTuple):
    """A `ZnodeOwner` is somebody whom an ACL names, as ZooKeeper has it."""

    scheme: str
    id: str

    def __str__(self) -> str:
        """Say who it is. The hash of a password is left out."""
        if self.scheme == "digest":
            return f"digest user {self.id.partition(':')[0]}"
        return "everybody" if tuple(self) == tuple(WORLD) else f"{self.scheme} {self.id}"


@dataclass(frozen=True)
class TlsFiles:
    """`TlsFiles` names the files of whom this process trusts and what it shows. They are read for each connection."""

    ca: Path
    cert: Path | None = None
    key: Path | None = None
    check_hostname: bool = True

    def context(self) -> ssl.SSLContext:
        """Return a context of the files as they are now. It trusts nobody but their authorities. ConfigError names the
        file that cannot be used."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        made.check_hostname = self.check_hostname
        try:
            made.load_verify_locations(self.ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"security.zookeeper.ca: {self.ca} cannot be used: {_why(error)}") from None
        if self.cert is not None:
            try:
                made.load_cert_chain(self.cert, self.key, password=_no_password)
            except (OSError, ssl.SSLError, ValueError) as error:
                said = f"security.zookeeper.cert: {self.cert} with {self.key} cannot be used: {_why(error)}"
                raise ConfigError(said) from None
        return made


def _no_password() -> str:
    raise ValueError("the key has a password, and halog knows none")


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "it holds nothing that TLS can use"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


@dataclass(frozen=True)
class ZooKeeperAccess:
    """A `ZooKeeperAccess` says how one process speaks to ZooKeeper. Without values: in plain text, as nobody, with
    znodes for everybody."""

    tls: TlsFiles | None = None
    username: str = ""
    password: Secret | None = None
    principals: tuple[ZnodeOwner, ...] = field(default=())
    """Who may do everything to the znodes of the cluster."""
    closed: bool = False
    """Is nobody else to use znodes that are made?"""

    @property
    def acl(self) -> list[ACL]:
        """Return what znodes are made with."""
        return self.closed_acl if self.closed else list(OPEN_ACL_UNSAFE)

    @property
    def closed_acl(self) -> list[ACL]:
        """Return what znodes have that belong to the cluster alone."""
        return [ACL(ALL, Id(*principal)) for principal in self.principals]

    def arguments(self) -> dict[str, Any]:
        """Return kazoo's arguments: as whom it speaks, and the ACL of what it makes."""
        shown: dict[str, Any] = {"default_acl": self.acl} if self.closed else {}
        if self.password is not None:
            shown["auth_data"] = [("digest", f"{self.username}:{self.password.reveal()}")]
        return shown

    @property
    def me(self) -> str:
        """Say as whom this process speaks."""
        if self.password is not None:
            return f"digest user {self.username}"
        if self.tls is not None and self.tls.cert is not None:
            return f"the certificate {self.tls.cert}"
        return "nobody in particular"


PLAIN: Final = ZooKeeperAccess()


def digest_principal(username: str, password: Secret) -> ZnodeOwner:
    """Return whom ZooKeeper takes a user with this password for, as its ACLs have it (by SHA-1, its default)."""
    hashed = hashlib.sha1(f"{username}:{password.reveal()}".encode(), usedforsecurity=False).digest()
    return ZnodeOwner("digest", f"{username}:{base64.b64encode(hashed).decode()}")


class QuietLogger(logging.LoggerAdapter[logging.Logger]):
    """Lowers what kazoo warns of, which is every attempt to reconnect; the states tell what matters. It leaves out what
    shows who this process is."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        shown = ["Auth(…)" if isinstance(arg, Auth) else arg for arg in args]
        self.logger.log(level if level > logging.WARNING else logging.DEBUG, msg, *shown, **kwargs)


class TlsSocket(ssl.SSLSocket):
    """A `TlsSocket` tells what TLS said when it ended: of a certificate that the server refuses, only the first read
    hears."""

    heard: Callable[[ssl.SSLError], None] | None = None

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        try:
            return super().recv(buflen, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            if self.heard is not None:
                self.heard(error)
            raise


def connect_tls(
    tls: TlsFiles, address: tuple[str, int], host: str | None, timeout: float, heard: Callable[[ssl.SSLError], None]
) -> ssl.SSLSocket:
    """Connect, and let the server show its certificate. `heard`: is told what TLS says against it, now or later.
    OSError with what is wrong with a file, too: kazoo tries again then."""
    try:
        context = tls.context()
    except ConfigError as error:
        raise OSError(error.message) from None
    context.sslsocket_class = TlsSocket
    made = socket.create_connection(address, timeout)
    try:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sealed = context.wrap_socket(made, server_hostname=host or address[0])
    except BaseException as error:
        made.close()
        if isinstance(error, ssl.SSLError):
            heard(error)
        raise
    assert isinstance(sealed, TlsSocket)
    sealed.heard = heard
    return sealed
