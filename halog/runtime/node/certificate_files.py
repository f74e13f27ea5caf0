"""This module finds the files by which a process shows who it is on the node channel, and whom it trusts (N5).

A directory of certificates may serve several processes of a machine, as `halog certs` makes it.
"""

from __future__ import annotations

from pathlib import Path

from halog.config.security import OFF, SecurityConfig

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
