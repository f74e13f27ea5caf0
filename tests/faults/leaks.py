"""What a run that healed must have given back: threads and open files of the processes that lived through it, and
everything in ZooKeeper that belonged to those that did not.

Processes are compared with themselves before the faults, by /proc. Znodes need no such comparison: docs/protocol.md
lists all that there may be.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kazoo.exceptions import KazooException, NoNodeError

from halog.runtime.node.open import RunningNode
from halog.runtime.sites.mirror_audience import MIRRORING
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.processes import ROOT, wait

_ROW = re.compile(r"^\| `([^`]+)` \| (?:ephemeral|persistent)", re.MULTILINE)
_PLACE = re.compile(r"<[^>]+>")
SETTLES_S = 60.0
"""Connections to whoever was silent are given up within their timeouts; the rest is a busy machine."""


class Footprint(NamedTuple):
    """What a process holds."""

    threads: int
    """Without those of Kafka clients."""
    kafka: int
    """Kafka clients: each has a thread of this name, and some more."""
    connections: int
    """Sockets, pipes and other open files without a path."""
    files: int
    """Open files with a path; each once, however often it is open."""

    def within(self, most: Footprint) -> bool:
        return all(n <= m for n, m in zip(self, most, strict=True))


def footprint(pid: int) -> Footprint:
    """Of a process that runs."""
    names = [_name(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()]
    threads = [_said(task / "comm") for task in Path(f"/proc/{pid}/task").iterdir()]
    return Footprint(
        sum(not t.startswith("rdk:") for t in threads),
        threads.count("rdk:main"),
        sum(":" in n for n in names if not n.startswith("/")),
        len({n for n in names if n.startswith("/")}),
    )


def _said(file: Path) -> str:
    with suppress(FileNotFoundError, ProcessLookupError):  # ended meanwhile
        return file.read_text().strip()
    return ""


def _name(fd: Path) -> str:
    try:
        return str(fd.readlink())
    except FileNotFoundError:  # closed meanwhile
        return ""


def footprints(node: RunningNode) -> dict[int, Footprint]:
    """Of the nodes that this one knows, by process; all of them run on this machine."""
    pids = [info.pid for info in list(node.runtime.router.nodes.values())]
    return {pid: footprint(pid) for pid in pids if Path(f"/proc/{pid}/fd").is_dir()}


def given_back(cluster: Cluster, before: Mapping[int, Footprint], settles_s: float = SETTLES_S) -> None:
    """Everything was, or the test fails."""
    partitions, sites = len(cluster.partitions()), bool(cluster.values["other_sites"])
    for name in cluster.running():
        pid = cluster.processes[name].pid
        if pid in before:
            _shrinks(name, pid, bound(before[pid], partitions, sites=sites), settles_s)
    wait(lambda: not _left_over_now(cluster), lambda: f"no znode is left over: {_left_over_now(cluster)}", settles_s)


def _shrinks(name: str, pid: int, most: Footprint, settles_s: float) -> None:
    wait(lambda: footprint(pid).within(most), lambda: f"{name} holds {footprint(pid)}, at most {most}", settles_s)


CLIENTS = 3
"""Roles move: who leads nothing has seven Kafka clients, who leads has nine; and one may just be replaced."""
AFAR = 6
"""Of another site's log, for who mirrors it or brings it level, and as many threads that work with them."""
PASSING = 4
"""Threads that end by themselves: they make a client, register, drain a connection."""
TABLES = 20
"""Files that a store has written since, and has not merged yet."""


def bound(before: Footprint, partitions: int, *, sites: bool = False) -> Footprint:
    """What it may hold now: threads of pools are made when they are needed, two for each partition, and kept; a Kafka
    client has six pipes and two sockets, a thread of ours at most two."""
    threads, clients = 2 * partitions + PASSING + AFAR * sites, CLIENTS + AFAR * sites
    return Footprint(
        before.threads + threads,
        before.kafka + clients,
        before.connections + 8 * clients + 2 * threads,
        before.files + TABLES,
    )


def _left_over_now(cluster: Cluster) -> list[str]:
    try:
        return list(left_over(cluster))
    except KazooException as error:  # the connection is just made anew
        return [f"ZooKeeper does not tell: {error!r}"]


def left_over(cluster: Cluster) -> Iterator[str]:
    """Znodes that no document knows, or of sessions or processes that have ended; and nodes without one."""
    known, sessions = documented(cluster.partitions()), set[int]()
    found = list(_below(cluster, ""))
    for path, owner in found:
        if path.startswith("nodes/"):
            data = cluster.znode(path)
            if data is not None and not Path(f"/proc/{json.loads(data)['pid']}").is_dir():
                yield f"{path}: of a process that has ended"
            sessions.add(owner)
    for path, owner in found:
        if not known.fullmatch(path):
            yield f"{path}: nothing that is documented"
        elif owner and owner not in sessions and not path.startswith(f"{MIRRORING}/"):  # that is another site's
            yield f"{path}: of a session that is no node's"
    there = {path for path, _ in found}
    yield from (f"nodes/{n} is not there" for n in cluster.running() if f"nodes/{n}" not in there)


def _below(cluster: Cluster, path: str) -> Iterator[tuple[str, int]]:
    """Paths below this one, with their sessions."""
    at = f"/halog/{cluster.name}/{path}".rstrip("/")
    with suppress(NoNodeError):  # deleted meanwhile
        if path:
            yield path, cluster.zk.get(at)[1].ephemeralOwner
        for child in cluster.zk.get_children(at):
            yield from _below(cluster, f"{path}/{child}".lstrip("/"))


def documented(partitions: Sequence[str]) -> re.Pattern[str]:
    """Every path of the table of docs/protocol.md, and what is above it."""
    rows = _ROW.findall((ROOT / "docs/protocol.md").read_text())
    named = {"<partition>": "|".join(map(re.escape, partitions))}
    paths = {"/".join(parts[:n]) for row in rows for parts in [row.split("/")] for n in range(1, len(parts) + 1)}
    return re.compile("|".join(_PLACE.sub(lambda m: f"(?:{named.get(m[0], '[^/]+')})", path) for path in sorted(paths)))
