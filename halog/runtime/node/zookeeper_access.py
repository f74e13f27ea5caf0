"""This module leads from `[security.zookeeper]` to how a process speaks to ZooKeeper (N5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halog.config.zookeeper_security import DIGEST, WHERE, X509, ZooKeeperSecurity
from halog.errors import ConfigError
from halog.runtime.node.certificate_files import zookeeper_files

if TYPE_CHECKING:
    from halog.adapters.zookeeper.access import ZooKeeperAccess
    from halog.config import Config


def zookeeper_access(config: Config, name: str) -> ZooKeeperAccess:
    """Return how process `name` speaks to ZooKeeper, at every site. It reads the password; files of certificates are
    tried. ConfigError names the key of what cannot be used."""
    from halog.adapters.zookeeper.access import TlsFiles, ZnodeOwner, ZooKeeperAccess, digest_principal

    found = config.security.zookeeper or ZooKeeperSecurity()
    files = zookeeper_files(config.security, name)
    tls = None if files is None else TlsFiles(*files, found.check_hostname)
    if tls is not None:
        try:
            tls.context()
        except ConfigError as error:
            raise ConfigError(f"{config.source}: {error.message}") from None
    if found.auth == DIGEST and found.password is not None:
        password = found.password.read(f"{WHERE}.password")
        user = digest_principal(found.username, password)
        return ZooKeeperAccess(tls, found.username, password, (user,), found.closed)
    owners = tuple(ZnodeOwner("x509", subject) for subject in found.principals if found.auth == X509)
    return ZooKeeperAccess(tls, principals=owners, closed=found.closed)
