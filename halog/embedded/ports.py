"""This module finds free ports of this machine, outside the kernel's ephemeral range. It never keeps a socket open.

Why outside: a client that reconnects to a closed loopback port *in* that range can get the very port it calls as its
own. It is then connected to itself, and the server cannot come back (TCP simultaneous open).
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

from halog.embedded.model import LOOPBACK, Ports
from halog.errors import ConfigError, SiteError

LOWEST = 20_000  # well-known services are below it
HIGHEST = 65_000
TRIES = 2_000


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Say whether a server could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the JVM does: TIME_WAIT is no obstacle
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def ephemeral_range() -> tuple[int, int]:
    """Return the range of ports the kernel hands to outgoing connections."""
    try:
        low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        return int(low), int(high)
    except (OSError, ValueError):
        return 32_768, 60_999  # Linux' default


def _candidates() -> list[int]:
    low, high = ephemeral_range()
    outside = [p for p in range(LOWEST, HIGHEST) if not low <= p <= high]
    return outside or list(range(LOWEST, HIGHEST))


def pick(taken: set[int], host: str = LOOPBACK) -> int:
    """Return a free port that is not in `taken`. It is random, so that sites starting together rarely choose the
    same."""
    candidates = _candidates()
    for _ in range(TRIES):
        port = random.choice(candidates)
        if port not in taken and is_free(port, host):
            return port
    raise SiteError(f"no free port found on {host}: stop some servers, or give the ports as options")


def _wanted(port: int, option: str, host: str) -> int:
    if not 1 <= port <= 65_535:
        raise ConfigError(f"{option} {port}: a port is a number from 1 to 65535")
    if not is_free(port, host):
        raise SiteError(
            f"port {port} is taken by another program: stop it, choose another {option}, or leave the option out",
            port=port,
        )
    return port


def asked_for(
    kafka: int | None, zookeeper: int | None, remote: int | None = None, host: str = LOOPBACK
) -> dict[str, int]:
    """Return the ports given as options, if they are free; called before anything slow is done."""
    if remote is not None and remote in (kafka, zookeeper):
        raise ConfigError(f"the remote listener's port {remote} is that of a server: it needs its own")
    if kafka is not None and kafka == zookeeper:
        raise ConfigError(f"--kafka-port and --zookeeper-port are both {kafka}: each server needs its own")
    asked = {"kafka": (kafka, "--kafka-port"), "zookeeper": (zookeeper, "--zookeeper-port")}
    asked |= {"remote": (remote, "remote listener's port")}
    hosts = {"kafka": host, "zookeeper": host, "remote": LOOPBACK}
    return {name: _wanted(port, option, hosts[name]) for name, (port, option) in asked.items() if port is not None}


def choose(
    saved: Ports | None,
    kafka: int | None = None,
    zookeeper: int | None = None,
    remote: int | None = None,
    host: str = LOOPBACK,
) -> Ports:
    """Return ports: the options' first (taken = error), then the last start's if still free, then new ones."""
    chosen = asked_for(kafka, zookeeper, remote, host)
    for name, where in (("kafka", host), ("controller", LOOPBACK), ("zookeeper", host)):
        if name not in chosen:
            taken = set(chosen.values())
            last = getattr(saved, name) if saved else 0
            chosen[name] = last if last and last not in taken and is_free(last, where) else pick(taken, where)
    chosen.pop("remote", None)  # each start names it anew
    return Ports(**chosen)
