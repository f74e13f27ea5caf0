"""What a client sees when processes are killed: kill -9 of the active node, and of a sync replica; also while notifiers
of the other nodes hang."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.effort import Effort
from benchmarks.figures import Row, Target, median, percentile, row
from benchmarks.judged import Writes
from benchmarks.processes import Child
from benchmarks.scene import WAIT_S, Scene, complete, wait_until
from halog.cli.shared.connection import connect
from halog.cli.shared.partition_log import PartitionLog
from halog.config import PolicyConfig
from halog.config.security import NOTHING_SET, SecurityConfig
from halog.core.log.chain import Verdict
from halog.core.log.records import Commit

NODES = "ABC"
RATE = 100.0
"""Writes a second and partition: a kill falls between or into writes, as in life."""
BEFORE_S, AFTER_S = 0.3, 1.3
"""Writing before a kill, and after it: longer than the worst failover that may pass."""
CLIENT = "a client node"
NO_TARGET = Target()
NONE_LOST = Target(0, "value", hard=True)


class Cluster:
    """Three nodes and a client that writes; whoever is killed is started again."""

    def __init__(
        self,
        scene: Scene,
        name: str,
        sync: int,
        asynchronous: int,
        security: SecurityConfig = NOTHING_SET,
        *,
        hanging: bool = False,
    ) -> None:
        policy = PolicyConfig(
            "zone", partitions=3, sync_replicas=sync, async_replicas=asynchronous, local_sync="WRITE_NO_SYNC"
        )
        self.scene = scene
        self.config: Path = scene.cluster(name, NODES, {"Item": policy}, security=security)
        self.nodes = scene.open(self.config, NODES, client="client")
        self.client = self.nodes.pop("client")
        self._runs = itertools.count(1)
        self._hanging = hanging
        for node in self.nodes.values():
            self._notify(node)

    def state(self) -> dict[str, Any]:
        """As the client sees it."""
        found: dict[str, Any] = self.client.ask("state")
        return found

    def whole(self) -> None:
        """Every partition has an active and both replicas."""
        wait_until("all replicas are back", lambda: complete(self.state(), len(NODES)))

    def kill(self, victim: str, partitions: list[str]) -> tuple[float, dict[str, Any]]:
        """Write, kill, write on; (when it was killed, the writers' times). The node is started again meanwhile."""
        self.client.ask("begin_writes", kind="Item", rate=RATE, partitions=partitions)
        time.sleep(BEFORE_S)
        at = time.monotonic()
        self.scene.end(self.nodes[victim], kill=True)
        time.sleep(AFTER_S)
        written = self.client.ask("end_writes")
        self.nodes[victim] = self.scene.app(self.config, victim, f"{self.config.stem}-{victim}{next(self._runs)}")
        self.nodes[victim].ask("open")
        self._notify(self.nodes[victim])
        return at, written

    def fail_over(self, turn: int) -> tuple[float, dict[str, Any]]:
        """Kill the active node of one partition after the other; (ms from there to the first new acknowledged write of
        the slowest partition that it led, what the writers were told by partition)."""
        self.whole()
        state = self.state()
        victim = state[sorted(state)[turn % len(state)]]["active"]
        led = [p for p, t in state.items() if t["active"] == victim]
        at, written = self.kill(victim, led)
        return max(first_after(written[p]["times"], at) for p in led), {p: written[p] for p in led}

    def _notify(self, node: Child) -> None:
        """Let the node's notifiers hang, if this is about that: each is under way for every other node."""
        if self._hanging:
            node.ask("hang")


def first_after(times: list[tuple[float, float]], at: float) -> float:
    """From `at` to the end of the first write begun after it and acknowledged, in ms; infinite if there is none."""
    return next(((end - at) * 1000 for begin, end in times if begin >= at), float("inf"))


def longest_gap(times: list[tuple[float, float]], at: float) -> float:
    """The longest time between two acknowledgements of which the second came after `at`, in ms."""
    ends = [end for _, end in times]
    return max(((b - a) * 1000 for a, b in itertools.pairwise(ends) if b >= at), default=float("inf"))


def happened(config: Path) -> Iterator[str]:
    """The ids of all transactions that the logs have."""
    with connect(config, WAIT_S) as connection:
        for table in connection.tables:
            log = PartitionLog(connection, table)
            if log.start > 0:
                raise RuntimeError(f"the log of {table.name} was trimmed: what it had cannot be told any more")
            commits = (j.record for j in log.judged() if j.verdict == Verdict.ACCEPTED.value)
            yield from (record.header.tx.hex() for record in commits if isinstance(record, Commit))


def failover(scene: Scene, apps: dict[str, Child], effort: Effort) -> list[Row]:
    """Kill the active of one partition after the other; every partition it led counts, the slowest one."""
    baseline = [_raw_takeover(scene) for _ in range(min(5, effort.kills))]
    cluster = Cluster(scene, "failover", 1, 1)
    times, told = [], Writes()
    for i in range(effort.kills):
        took, written = cluster.fail_over(i)
        times.append(took)
        for each in written.values():
            told.told(each["acknowledged"], each["failed"])
    lost = told.wrong(happened(cluster.config))
    scene.end_all()
    name = "failover of a killed process, first new acknowledged write"
    median_, worst = Target(300, "value", hard=True), Target(1000, "value", hard=True)
    return [
        row(f"{name}, median", "ms", times, [median(baseline)], target=median_, client_in=CLIENT),
        _single(f"{name}, p99", percentile(sorted(times), 0.99), max(baseline), len(times)),
        _single(f"{name}, worst", max(times), max(baseline), len(times), worst),
        row("acknowledged writes lost in these kills", "1", [lost], target=NONE_LOST, client_in=CLIENT),
    ]


def notifiers(scene: Scene, apps: dict[str, Child], effort: Effort) -> list[Row]:
    """Kill the active of one partition after the other, in two clusters by turns: in one of them every notifier hangs
    (N3)."""
    taken: dict[bool, list[float]] = {False: [], True: []}
    clusters = {hanging: Cluster(scene, "hangs" if hanging else "returns", 1, 1, hanging=hanging) for hanging in taken}
    for i in range(effort.kills):
        for hanging, cluster in clusters.items():
            cluster.whole()
            state = cluster.state()
            partition = sorted(state)[i % len(state)]
            at, written = cluster.kill(state[partition]["active"], [partition])
            taken[hanging].append(first_after(written[partition]["times"], at))
    scene.end_all()
    name = "failover of a killed process while notifiers hang, first new acknowledged write, median; beside none"
    return [row(name, "ms", taken[True], taken[False], target=Target(1.2, "ratio"), client_in=CLIENT)]


def pause(scene: Scene, apps: dict[str, Child], effort: Effort) -> list[Row]:
    """Kill the sync replica of a partition; the longest time without an acknowledgement."""
    baseline = [_raw_pause(scene) for _ in range(min(3, effort.pauses))]
    cluster = Cluster(scene, "pause", 1, 1)
    times = []
    for i in range(effort.pauses):
        cluster.whole()
        state = cluster.state()
        partition = sorted(state)[i % len(state)]
        at, written = cluster.kill(state[partition]["sync"][0], [partition])
        times.append(longest_gap(written[partition]["times"], at))
    scene.end_all()
    target = Target(300, "value", hard=True)
    name = "writes' pause when a sync replica is killed"
    return [
        _single(f"{name}, worst", max(times), max(baseline), len(times), target),
        row(f"{name}, median", "ms", times, [median(baseline)], client_in=CLIENT),
    ]


def _single(name: str, ms: float, baseline: float, runs: int, target: Target = NO_TARGET) -> Row:
    found = row(name, "ms", [ms], [baseline], target=target, client_in=CLIENT)
    return Row(**{**found.to_dict(), "runs": runs})


def _raw_takeover(scene: Scene) -> float:
    """A warm standby with a connection to the primary: kill to its first acknowledged write, in ms."""
    primary = scene.start("raw-primary", "raw-primary")
    standby = scene.raw("raw-standby", "raw.failover")
    standby.ask("standby", port=primary.ask("port")["port"])
    time.sleep(0.2)
    at = time.monotonic()
    scene.end(primary, kill=True)
    took = (standby.ask("took_over")["at"] - at) * 1000
    scene.end(standby)
    return float(took)


def _raw_pause(scene: Scene) -> float:
    """Raw replicated writes while the second process is killed: the longest gap, in ms."""
    client = scene.raw("raw-pause", "raw.pause")
    port = client.ask("listen")["port"]
    replica = scene.start("raw-pause-2", "raw-replica", bootstrap=scene.info.bootstrap, topic="raw.pause", port=port)
    replica.ask("ready")
    client.command("writing", seconds=1.2, rate=RATE)
    time.sleep(0.6)
    scene.end(replica, kill=True)
    gap = client.heard()["pause_ms"]
    scene.end(client)
    return float(gap)
