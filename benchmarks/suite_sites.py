"""Two sites: taking over, and making one history of two that parted, beside how much there is in all.

Each site has servers of its own, one node process, and two lines to the other one that can be cut. Of a restore the
theory is that it costs what was touched since the histories parted: the same is timed with few objects and with many.
What is timed is what `halog restore` does once it has connected, until the initiating site follows. A snapshot of each
site has what was there before the histories parted, as one has of all that is older than a minute. How far a mirror is
behind is told by the two logs: from when the home's broker appended a record until the mirroring site's did. Commits
that wait for the other site (`sync_sites`) are timed in turns with those of the same policy without, in one cluster.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.effort import Effort
from benchmarks.figures import Row, Target, percentile, row
from benchmarks.processes import Child
from benchmarks.scene import Scene, wait_until
from halog.cli.shared.connection import ClusterConnection, connect
from halog.config import ApplicationConfig, Config, NodeConfig, PolicyConfig, ZoneConfig
from halog.core.table.table import PartitionTable
from halog.demo.split.sites import NAMES, SplitSites, other
from halog.demo.split.steps import EAST, WEST
from halog.embedded.progress import LogProgress
from halog.metadata.partition_tables import table_of
from halog.ports import TopicPartition
from halog.runtime.merge.restore_command import RestoreCommand
from halog.runtime.sites.switchover import Switchover
from halog.runtime.support.adapters import SiteAccess
from halog.runtime.topics.state_topic import SnapshotMark
from halog.runtime.topics.topic_names import state_topic

KIND, PARTITIONS = "Kept", 4
PLAIN: Final = "Item"
"""Beside it, where commits of `KIND` wait for the other site."""
FEW: Final = 10_000
TOUCHED: Final = 5_000
"""Objects that each site changes by itself."""
CLIENTS: Final = 4
"""Commit while it is measured how far the mirror is behind: more would keep both cores to themselves."""
LOAD_S: Final = 5.0
"""Some thousand commits: the p99 stands on fifty."""
SNAPSHOT_MS: Final = 5_000
"""For the default minute nobody need wait; each takes some 20 ms a thousand objects that changed."""
WAIT_S = 600.0
"""A million objects are loaded, mirrored and applied in a minute or two."""


def run(scene: Scene, apps: dict[str, Child], effort: Effort) -> list[Row]:
    """Mirroring under load, takeovers that were asked for, and restores."""
    scene.end_all()
    sites = SplitSites(scene.directory / "sites", LogProgress())
    seen = Seen()

    def measure(i: int) -> tuple[float, float]:
        few, many = (_round(scene, sites, f"sites{i}x{n}", n, seen) for n in (FEW, effort.found_objects))
        return few, many

    try:
        sites.start()
        few, many = zip(*scene.calm.rounds(effort.restores, measure), strict=True)
        waiting, plain = _waiting(scene, sites, effort)
    finally:
        scene.end_all()
        sites.stop()
    name = f"restore, {TOUCHED:,} objects touched at each site, of {effort.found_objects:,} (beside: of {FEW:,})"
    by, active = "the operator's command", "the active node"
    return [
        row(name, "s", many, few, target=Target(1.3, "ratio"), client_in=by),
        row("takeover from a site that is there, to the first commit", "s", seen.taken, client_in=by),
        row("mirror lag under load, p50", "ms", [percentile(lags, 0.5) for lags in seen.lags], clients=CLIENTS),
        row("mirror lag under load, p99", "ms", [percentile(lags, 0.99) for lags in seen.lags], clients=CLIENTS),
        row(
            "commit that waits for the other site, p50 (beside: the same policy without)",
            "ms",
            waiting,
            plain,
            client_in=active,
        ),
    ]


@dataclass
class Seen:
    """Beside restores, one for each round."""

    taken: list[float] = field(default_factory=list)
    lags: list[list[float]] = field(default_factory=list)
    """Milliseconds, in order."""


def _round(scene: Scene, sites: SplitSites, name: str, count: int, seen: Seen) -> float:
    """Seconds of one restore."""
    configs = {site: site_config(scene, sites, site, name) for site in NAMES}
    apps: dict[str, Child] = {}
    for site in NAMES:
        apps[site] = scene.app(configs[site], f"{site}-1")
        apps[site].ask("open")
    wait_until("west serves", lambda: all(t["serving"] for t in apps[WEST].ask("state").values()))
    apps[WEST].ask("load", kind=KIND, first=0, count=count)
    level(apps)
    _in_snapshots(configs)
    seen.lags.append(_lags(configs, apps))
    seen.taken.append(_switch(configs[EAST], apps[EAST]))  # and back, both sites being there
    _switch(configs[WEST], apps[WEST])
    level(apps)
    sites.cut()
    _switch(configs[EAST], apps[EAST], may_fork=True)
    for site in NAMES:
        apps[site].ask("change", kind=KIND, first=0 if site == WEST else TOUCHED // 2, count=TOUCHED)
    sites.heal()
    with _reuniting(configs[WEST]) as (reuniting, tables):
        sources = reuniting.sources(tables, {})
        begin = time.perf_counter()
        ended = reuniting.restore(tables, sources, told=lambda partition, now: None)
        took = time.perf_counter() - begin
    if any(r.phase != "done" for r in ended.values()):
        raise RuntimeError(f"not restored: {ended}")
    level(apps)
    for site in NAMES:
        scene.end(apps[site])
    return took


def _waiting(scene: Scene, sites: SplitSites, effort: Effort) -> tuple[list[float], list[float]]:
    """Milliseconds, p50 of one client at west, for each run: of commits that wait for east's log, and of others."""
    configs = {site: site_config(scene, sites, site, "waiting", waits=True) for site in NAMES}
    apps: dict[str, Child] = {}
    for site in NAMES:
        apps[site] = scene.app(configs[site], f"{site}-1")
        apps[site].ask("open")
    wait_until("west serves", lambda: all(t["serving"] for t in apps[WEST].ask("state").values()))
    with connect(configs[WEST], WAIT_S) as west:
        names = [t.name for t in west.tables if t.policy == "kept"]
        wait_until("commits wait for east", lambda: all(table_of(west.coordinator, n).synced for n in names), WAIT_S)
    found: dict[str, list[float]] = {KIND: [], PLAIN: []}
    for kind in found:
        apps[WEST].ask("load", kind=kind, first=0, count=FEW)
    for _ in range(effort.runs):
        for kind, seen in found.items():
            seen.append(apps[WEST].ask("commits", kind=kind, clients=1, seconds=effort.seconds)["p50_us"] / 1000)
    for app in apps.values():
        scene.end(app)
    return found[KIND], found[PLAIN]


def site_config(scene: Scene, sites: SplitSites, site: str, name: str, *, waits: bool = False) -> Path:
    """`waits`: commits of `KIND` wait for the other site, and those of `PLAIN` do not."""
    made: Config = sites.config(site, scene.directory / name, name, PARTITIONS)
    node = f"{site}-1"
    policy = PolicyConfig("here", partitions=PARTITIONS, sync_replicas=0, local_sync="WRITE_NO_SYNC", home=WEST)
    policies, bindings = {"kept": policy}, {KIND: "kept"}
    if waits:
        policies = {"kept": replace(policy, sync_sites=NAMES), "plain": policy}
        bindings[PLAIN] = "plain"
    config = replace(
        made,
        application=ApplicationConfig(("benchmarks.model",)),
        zones={"here": ZoneConfig((node,))},
        policies=policies,
        bindings=bindings,
        nodes={node: NodeConfig(scene.directory / name / node)},
        snapshot=replace(made.snapshot, every_ms=SNAPSHOT_MS),
    )
    path = scene.directory / f"{name}-{site}.toml"
    path.write_text(config.to_toml())
    return path


def level(apps: dict[str, Child]) -> None:
    """Both sites have the same history."""
    names = list(apps[WEST].ask("state"))
    wait_until("both sites are level", lambda: _lsns(apps[WEST], names) == _lsns(apps[EAST], names), WAIT_S)


def _in_snapshots(configs: dict[str, Path]) -> None:
    """A snapshot of each site has all that its log has now."""
    for config in configs.values():
        with connect(config, WAIT_S) as connection:
            log, ends = connection.adapters.log, dict[str, int]()
            for table in connection.tables:
                ends[table.name] = log.bounds(TopicPartition(table.topic, table.index))[1]
            wait_until("a snapshot has everything", partial(_has, connection, ends), WAIT_S)


def _has(connection: ClusterConnection, ends: dict[str, int]) -> bool:
    return all(_marked(connection, name) >= end for name, end in ends.items())


def _marked(connection: ClusterConnection, partition: str) -> int:
    """Up to which offset the last snapshot has everything."""
    found = connection.coordinator.get(f"snapshots/{partition}")
    return 0 if found is None else SnapshotMark.from_bytes(found.data).next_offset


def _lsns(app: Child, names: list[str]) -> list[int]:
    return [int(app.ask("lsn", partition=n)["lsn"]) for n in names]


def _lags(configs: dict[str, Path], apps: dict[str, Child]) -> list[float]:
    """Of each record that was committed within some seconds of load."""
    topics = {n: TopicPartition(t["topic"], t["index"]) for n, t in apps[WEST].ask("state").items()}
    with connect(configs[WEST], WAIT_S) as west, connect(configs[EAST], WAIT_S) as east:
        logs = west.adapters.log, east.adapters.log
        begin = {(tp, log): log.bounds(tp)[1] for tp in topics.values() for log in logs}
        apps[WEST].ask("commits", kind=KIND, clients=CLIENTS, seconds=LOAD_S)
        level(apps)
        found: list[float] = []
        for tp in topics.values():
            at: dict[bytes, int] = {}
            for log in logs:
                for entry in log.read(tp, begin[tp, log], log.bounds(tp)[1], WAIT_S):
                    if log is logs[0]:
                        at[entry.value] = entry.timestamp_ms
                    elif (sent := at.pop(entry.value, None)) is not None:  # a second copy of it counts nothing
                        found.append(float(entry.timestamp_ms - sent))
    return sorted(found)


def _switch(config: Path, app: Child, *, may_fork: bool = False) -> float:
    """Seconds."""
    begin = time.perf_counter()
    promote(config, may_fork=may_fork)
    app.ask("change", kind=KIND, first=0, count=1)
    return time.perf_counter() - begin


def promote(config: Path, *, may_fork: bool) -> None:
    """What `halog site promote` does, at the site of this configuration, with every partition."""
    with connect(config, WAIT_S) as connection:
        here = connection.config.site.name
        switching = Switchover(connection.coordinator, here, connection.adapters.reach, 60.0)
        switching.promote([t.name for t in connection.tables], may_fork=may_fork)


@contextmanager
def _reuniting(config: Path) -> Iterator[tuple[RestoreCommand, list[PartitionTable]]]:
    with connect(config, WAIT_S) as connection:
        yield _of(connection), list(connection.tables)


def _of(connection: ClusterConnection) -> RestoreCommand:
    adapters, config = connection.adapters, connection.config
    own = SiteAccess(config.site.name, adapters.log, adapters.coordinator)
    return RestoreCommand(own, partial(state_topic, config), adapters.reach, [other(own.name)], WAIT_S)
