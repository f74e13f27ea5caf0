"""This module says whom a certificate is for: a node, a user or a server of one cluster, or the authority itself.

The identity is a URI among the certificate's subject alternative names: `halog://fleet/node/A`. Names are plain, so
that nothing in the URI is escaped, and no name leads out of the directory of its file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from halog.config.check import NAMED, is_plain
from halog.errors import ConfigError

SCHEME: Final = "halog://"
AUTHORITY_STEM: Final = "ca"


class HolderKind(StrEnum):
    """Says what the holder of a certificate is."""

    CA = "ca"
    NODE = "node"
    USER = "user"
    SERVER = "server"


SERVERS: Final = ("kafka", "zookeeper")
"""Servers that nodes connect to. All servers of one kind may share a certificate, with the hosts of all."""


@dataclass(frozen=True)
class HolderIdentity:
    """An `HolderIdentity` is the holder of a certificate. The authority of a cluster has no name."""

    cluster: str
    kind: HolderKind
    name: str = ""

    @classmethod
    def of(cls, cluster: str, kind: HolderKind, name: str = "") -> HolderIdentity:
        """Return the identity. ConfigError names what is wrong with one of the names."""
        check_name("cluster", cluster)
        if kind is HolderKind.SERVER and name not in SERVERS:
            raise ConfigError(f"there is no server {name[:110]!a}; known are {', '.join(SERVERS)}")
        if kind is not HolderKind.CA:
            check_name(kind.value, name)
        return cls(cluster, kind, name)

    @property
    def uri(self) -> str:
        """Return what stands in the certificate."""
        return f"{SCHEME}{self.cluster}/{self.kind}" + (f"/{self.name}" if self.name else "")

    @property
    def stem(self) -> str:
        """Return the name of its files, without their suffix."""
        if self.kind is HolderKind.CA:
            return AUTHORITY_STEM
        return self.name if self.kind is HolderKind.SERVER else f"{self.kind}.{self.name}"

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.name else "the authority"


def check_name(what: str, name: str) -> None:
    """Raise ConfigError if this is no name of a cluster, a node or a user."""
    if not is_plain(name):
        raise ConfigError(
            f"the {what} name {name[:110]!a} must be {NAMED} (it becomes the name of a file and stands in a URI)"
        )


def parse_identity(uri: str) -> HolderIdentity | None:
    """Return the identity that a URI tells; None if it tells none of halog's."""
    cluster, _, rest = uri.removeprefix(SCHEME).partition("/")
    kind, _, name = rest.partition("/")
    if not uri.startswith(SCHEME) or kind not in list(HolderKind):
        return None
    try:
        found = HolderIdentity.of(cluster, HolderKind(kind), name)
    except ConfigError:
        return None
    return found if found.uri == uri else None


def identity_uris(uris: Iterable[str]) -> list[str]:
    """Return those among a certificate's URIs that are halog's, well-formed or not."""
    return [uri for uri in uris if uri.lower().startswith(SCHEME)]


def single_identity(uris: Iterable[str]) -> HolderIdentity | None:
    """Return the one identity among a certificate's URIs. None if there is none, or more than one URI of halog's: a
    certificate that speaks for two is for neither."""
    ours = identity_uris(uris)
    return parse_identity(ours[0]) if len(ours) == 1 else None
