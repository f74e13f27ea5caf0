"""This module keeps who is registered, in nodes/<name>, for as long as its session lasts (N4).

nodes/<name>    ephemeral, JSON: `NodeInfo`
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import msgspec

from halog.core.ids import Member
from halog.errors import DuplicateLocationError
from halog.metadata.znode_format import ZnodeFormat
from halog.ports import Coordinator


class NodeInfo(msgspec.Struct, frozen=True):
    """A `NodeInfo` is a node's registration: the znode below `nodes/`."""

    name: str
    incarnation: int
    address: str
    installation: int
    hosts: bool
    """Is it in a zone, so that partitions may be placed there? A client node is not."""
    pid: int
    version: str
    witness: str = ""
    """SHA-256 of the secret that its witness shows when it tells that this process is no more; "": it has none."""
    machine: str = ""
    """Names the machine and the network namespace in which a loopback address leads to it; "" is unknown."""
    types: tuple[str, ...] | None = None
    """The ids of the definitions that it runs, as hex; None: it does not say, as a process of an older halog."""
    protocols: tuple[int, int] = (2, 2)
    """The lowest and the highest protocol that it speaks. It does not say so before halog 0.2."""
    level: int = 1
    """The highest level that its halog knows (`halog.metadata.cluster_level`)."""
    addresses: tuple[str, ...] = ()
    """Where it is reached, in order of preference; `address` is the first. (): it does not say, as before halog 0.3."""
    tls: bool = False
    """Does it take TLS where it listens? It says so from halog 0.3 on."""

    @property
    def member(self) -> Member:
        return Member(self.name, self.incarnation)

    @property
    def reached(self) -> tuple[str, ...]:
        """Return where it is reached, in order of preference; a client is nowhere."""
        return self.addresses or ((self.address,) if self.address else ())


_INFO = ZnodeFormat(msgspec.json.Decoder(NodeInfo).decode, "is no registration of a node")


def register(coordinator: Coordinator, info: NodeInfo, wait_s: float, lives: Callable[[NodeInfo], bool | None]) -> None:
    """Register this node. DuplicateLocationError if another process has the name and goes on.

    The registration of another run of this very node (same installation) is taken away where `lives` says that it has
    ended, and refuses this one where it lives; what nobody can tell of is waited for until its session ends. So is any
    other holder of the name."""
    path, data = f"nodes/{info.name}", msgspec.json.encode(info)
    until = time.monotonic() + wait_s
    while not coordinator.create(path, data, ephemeral=True):
        found = coordinator.get(path)
        if found is None:
            continue
        holder = _INFO.decode(path, found.data)
        goes_on: bool | None = None
        copied = ""
        if holder.installation == info.installation:
            goes_on = False if holder.incarnation == info.incarnation else lives(holder)
            copied = "; its data directory was copied, give the copy another node's name and an empty directory"
        if goes_on is False:
            coordinator.delete(path, found.version)
            continue
        if goes_on or time.monotonic() >= until:
            raise DuplicateLocationError(
                f"a node named {info.name} is running already (pid {holder.pid} at {holder.address}); "
                f"stop it or choose another name{copied}",
                node=info.name,
                incarnation=holder.incarnation,
                pid=holder.pid,
                address=holder.address,
            )
        time.sleep(0.05)


def read_nodes(coordinator: Coordinator, names: Iterable[str]) -> dict[str, NodeInfo]:
    """Return the registrations below `nodes/`."""
    infos = {}
    for name in names:
        info = _INFO.read(coordinator, f"nodes/{name}")
        if info is not None:
            infos[name] = info
    return infos


def is_registration(data: bytes, info: NodeInfo) -> bool:
    """Say whether this registration is the very one that `info` made."""
    return _INFO.decode(f"nodes/{info.name}", data) == info


def running(coordinator: Coordinator) -> set[Member]:
    """Return the runs of nodes that are registered: a node that was restarted serves nothing that its last run did."""
    nodes = read_nodes(coordinator, coordinator.children("nodes"))
    return {Member(info.name, info.incarnation) for info in nodes.values()}
