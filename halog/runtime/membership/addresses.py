"""A node must be reached by its registered address from wherever another one runs.

Two do not. The address of all interfaces names the machine of whoever dials it. A loopback address does too, so it is
good for nodes and clients of one machine only. Each would ask itself instead of the other, take it for down, and both
would take every partition from each other for ever. So it is refused at start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from halog.config import NodeConfig
from halog.config.addresses import is_loopback, listed, names_all_interfaces
from halog.errors import ConfigError
from halog.metadata.nodes import NodeInfo

BOOT_ID, NETWORK = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/net")


@lru_cache(maxsize=1)
def machine() -> str:
    """Names the loopback interface of this process: the machine's boot id and the network namespace. "" is unknown."""
    try:
        return f"{BOOT_ID.read_text().strip()}/{NETWORK.readlink()}"
    except OSError:
        return ""


def advertised(node: str, own: NodeConfig, actual: Sequence[str]) -> tuple[str, ...]:
    """Return where others reach a node, in order of preference. `actual`: where it listens, for each address of
    `own.listens`. Port 0 of an advertised address is that of the listener at the same place, or of the first where
    there is none. Raises ConfigError where nothing is advertised and a configured name turned out to be the address of
    all interfaces."""
    if own.advertise:
        return tuple(
            _with_port(address, actual[i if i < len(actual) else 0]) for i, address in enumerate(listed(own.advertise))
        )
    for configured, address in zip(own.listens, actual, strict=True):
        if names_all_interfaces(address.rpartition(":")[0]):
            key = "listen" if own.listen else "address"
            raise ConfigError(
                f"nodes.{node}.{key}: {configured} is {address} here, which stands for every interface of whichever "
                f"machine reads it; set nodes.{node}.advertise to the host or the address by which other machines "
                "reach this one",
                node=node,
                address=address,
            )
    return tuple(dict.fromkeys(actual))


def _with_port(address: str, listener: str) -> str:
    host, _, port = address.rpartition(":")
    return address if int(port) else f"{host}:{listener.rpartition(':')[2]}"


def check_reachable(me: NodeInfo, others: Iterable[NodeInfo]) -> None:
    """Raise ConfigError that names the node whose address does not lead to it from the machine of the other one.

    `me` has just registered; `others` are registered, or were when this was read.
    """
    for other in others:
        if other.name == me.name or not other.hosts or not _are_apart(me, other):
            continue
        for one, far in ((me, other), (other, me)):
            near = next(filter(is_loopback, one.reached), "") if one.hosts else ""
            if near:
                raise ConfigError(
                    f"node {one.name} is registered at {near}, which leads to it on its own machine only, and "
                    f"{'node' if far.hosts else 'client'} {far.name} runs on another one or in another network "
                    f"namespace: set nodes.{one.name}.address to a host name or an address by which other machines "
                    f"reach it, and start it again",
                    node=one.name,
                    address=near,
                )


def leading_to(run: NodeInfo) -> tuple[str, ...]:
    """Return the addresses of a run, without those that lead to this machine though the run is on another one, or was
    before a restart of this one: what is met there says nothing of it."""
    apart = bool(run.machine) and run.machine != machine()
    return tuple(address for address in run.reached if not (apart and is_loopback(address)))


def _are_apart(one: NodeInfo, other: NodeInfo) -> bool:
    return bool(one.machine and other.machine) and one.machine != other.machine
