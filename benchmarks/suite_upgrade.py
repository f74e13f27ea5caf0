"""What callers notice of a rolling upgrade (U1): each of three nodes gives its roles away, stops in order, and is
started again, while all partitions are written to."""

from __future__ import annotations

import time

from benchmarks.effort import Effort
from benchmarks.figures import Row, Target, row
from benchmarks.judged import Writes
from benchmarks.processes import Child
from benchmarks.scene import Scene
from benchmarks.suite_failover import AFTER_S, BEFORE_S, CLIENT, NODES, NONE_LOST, RATE, Cluster, happened, longest_gap

PAUSED = Target(100, "value", hard=True)


def run(scene: Scene, apps: dict[str, Child], effort: Effort) -> list[Row]:
    """As many rounds over all nodes as there are pauses to be measured."""
    cluster = Cluster(scene, "upgrade", 1, 1)
    pauses, told = [], Writes()
    for i in range(effort.pauses):
        pauses.append(_round(cluster, i, told))
    lost = told.wrong(happened(cluster.config))
    scene.end_all()
    name = "rolling upgrade of three nodes"
    return [
        row(f"{name}, longest pause of any partition, worst", "ms", [max(pauses)], target=PAUSED, client_in=CLIENT),
        row(f"{name}, longest pause of any partition, median", "ms", pauses, client_in=CLIENT),
        row(f"{name}, acknowledged writes lost", "1", [lost], target=NONE_LOST, client_in=CLIENT),
    ]


def _round(cluster: Cluster, turn: int, told: Writes) -> float:
    """Restart each node; return the longest pause of any partition in ms."""
    cluster.whole()
    cluster.client.ask("begin_writes", kind="Item", rate=RATE, partitions=sorted(cluster.state()))
    time.sleep(BEFORE_S)
    at = time.monotonic()
    for node in NODES:
        _restart(cluster, node, f"{node}-{turn}")
    time.sleep(AFTER_S)
    written = cluster.client.ask("end_writes")
    for each in written.values():
        told.told(each["acknowledged"], each["failed"])
    return max(longest_gap(each["times"], at) for each in written.values())


def _restart(cluster: Cluster, node: str, process: str) -> None:
    """Do as `halog upgrade start` does: hand over each partition to a node that has a copy, stop, start, and wait until
    all copies are back."""
    for partition, table in cluster.state().items():
        if table["active"] == node:
            cluster.client.ask("hand_over", partition=partition, to=(table["sync"] or table["replicas"])[0])
    cluster.scene.end(cluster.nodes[node])
    cluster.nodes[node] = cluster.scene.app(cluster.config, node, f"{cluster.config.stem}-{process}")
    cluster.nodes[node].ask("open")
    cluster.whole()
