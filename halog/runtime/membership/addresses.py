"""A node must be reached by its registered address from wherever another one runs.

Two do not. The address of all interfaces names the machine of whoever dials it. A loopback address does too, so it is
good for nodes and clients of one machine only. Each would ask itself instead of the other, take it for down, and both
would take every partition from each other for ever. So it is refused at start.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from halog.config import NodeConfig
from halog.config.sites import names_all_interfaces
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


def advertised(node: str, own: NodeConfig, actual: str) -> str:
    """Return where others reach a node that listens at `actual`. Raises ConfigError where nothing is advertised and
    the configured name turned out to be the address of all interfaces."""
    if own.advertise:
        host, _, port = own.advertise.rpartition(":")
        return own.advertise if int(port) else f"{host}:{actual.rpartition(':')[2]}"
    if names_all_interfaces(actual.rpartition(":")[0]):
        key = "listen" if own.listen else "address"
        raise ConfigError(
            f"nodes.{node}.{key}: {own.listens} is {actual} here, which stands for every interface of whichever "
            f"machine reads it; set nodes.{node}.advertise to the host or the address by which other machines reach "
            "this one",
            node=node,
            address=actual,
        )
    return actual


def check_reachable(me: NodeInfo, others: Iterable[NodeInfo]) -> None:
    """Raise ConfigError that names the node whose address does not lead to it from the machine of the other one.

    `me` has just registered; `others` are registered, or were when this was read.
    """
    for other in others:
        if other.name == me.name or not other.hosts or not _are_apart(me, other):
            continue
        for one, far in ((me, other), (other, me)):
            if one.hosts and _is_loopback(one.address):
                raise ConfigError(
                    f"node {one.name} is registered at {one.address}, which leads to it on its own machine only, and "
                    f"{'node' if far.hosts else 'client'} {far.name} runs on another one or in another network "
                    f"namespace: set nodes.{one.name}.address to a host name or an address by which other machines "
                    f"reach it, and start it again",
                    node=one.name,
                    address=one.address,
                )


def leads_elsewhere(run: NodeInfo) -> bool:
    """Say whether the address of a run leads to this machine, though the run is on another one, or was before a
    restart of this one: what is met there says nothing of it."""
    return _is_loopback(run.address) and bool(run.machine) and run.machine != machine()


def _are_apart(one: NodeInfo, other: NodeInfo) -> bool:
    return bool(one.machine and other.machine) and one.machine != other.machine


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return (getattr(ip, "ipv4_mapped", None) or ip).is_loopback
