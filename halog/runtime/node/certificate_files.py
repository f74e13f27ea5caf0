"""This module finds the files by which a process shows who it is, on the node channel and to ZooKeeper, and whom it
trusts (N5).

A directory of certificates may serve several processes of a machine, as `halog certs` makes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from halog.config.security import OFF, SecurityConfig
from halog.config.zookeeper_security import X509

Files = tuple[Path, Path, Path]
"""The authorities, the certificate, and the key to it."""


def certificate_files(security: SecurityConfig, process: str) -> Files | None:
    """Return the files of a process of this name; None: it speaks no TLS. Whether they can be used is not looked at."""
    if security.node_tls == OFF:
        return None
    ca, cert, key = files_in(security, process)
    return (ca, cert, key) if ca and cert and key else None


def files_in(security: SecurityConfig, process: str) -> tuple[Path | None, Path | None, Path | None]:
    """Return the files of a process of this name, whatever it speaks; None: neither the file nor a directory is
    given."""
    directory, ca, cert, key = security.certs_dir, security.ca, security.cert, security.key
    if directory is None:
        return ca, cert, key
    stem = _stem(directory, process)
    return ca or directory / "ca.crt", cert or directory / f"{stem}.crt", key or directory / f"{stem}.key"


class ZooKeeperFiles(NamedTuple):
    """Names the authorities that are trusted, and what is shown to servers that ask for a certificate."""

    ca: Path
    cert: Path | None
    key: Path | None


def zookeeper_files(security: SecurityConfig, process: str) -> ZooKeeperFiles | None:
    """Return the files of a process of this name for ZooKeeper; None: it speaks no TLS there."""
    found = security.zookeeper
    if found is None or found.tls == OFF:
        return None
    directory = security.certs_dir
    ca = found.ca or security.ca or (None if directory is None else directory / "ca.crt")
    if ca is None:
        return None
    if found.cert is not None:
        return ZooKeeperFiles(ca, found.cert, found.key)
    cert, key = security.cert, security.key
    if directory is not None:
        stem = _stem(directory, process)
        cert, key = cert or directory / f"{stem}.crt", key or directory / f"{stem}.key"
        if security.cert is None and found.auth != X509 and not cert.is_file():
            cert = key = None  # servers may do without
    return ZooKeeperFiles(ca, cert, key)


def _stem(directory: Path, process: str) -> str:
    """Return how the files of a process are called: by the node's name, "node", or as the only user's or node's there
    are."""
    if (directory / f"node.{process}.crt").is_file():
        return f"node.{process}"
    if (directory / "node.crt").is_file():
        return "node"
    for pattern in ("user.*.crt", "node.*.crt"):
        if len(found := list(directory.glob(pattern))) == 1:
            return found[0].name.removesuffix(".crt")
    return "node"
