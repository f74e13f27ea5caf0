"""Clusters in memory whose one partition, P, is placed by the application; and callers that count without a break."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from halog.adapters.memory import MemoryLog
from halog.config import PolicyConfig
from halog.config.static import StaticPartition
from halog.events import Event
from halog.ports import TopicPartition
from halog.runtime.node.partitions import PartitionHandle
from halog.testing.cluster import Cluster, wait_until
from tests.unit.counting import REGISTRY, Counter

P = "p"


def unplaced(nodes: int = 3, **policy: Any) -> Cluster:
    """P is on no node, and the nodes run."""
    cluster = Cluster(nodes, partitions=1, registry=REGISTRY)
    static = PolicyConfig("test", kind="static", static={P: StaticPartition(())}, **policy)
    cluster.config = replace(cluster.config, policies={"test": static}).validate()
    for name in cluster.names:
        cluster.restart(name)
    wait_until(lambda: all(len(cluster.node(n).runtime.members.alive) == nodes for n in cluster.names), "all are up")
    return cluster


def at(cluster: Cluster, node: str, partition: str = P) -> PartitionHandle:
    return cluster.node(node).partitions[partition]


def place(cluster: Cluster, *nodes: str) -> None:
    """Every one of them defines and enables it; it is there."""
    for node in nodes:
        at(cluster, node).define(nodes)
        at(cluster, node).enable(wait_s=60)
    wait_until(lambda: cluster.tables()[P].node_list == nodes, f"{P} is on {nodes}")


def is_on(cluster: Cluster, *nodes: str) -> bool:
    table = cluster.tables()[P]
    return (table.configured, table.node_list, table.target) == (nodes, nodes, None)


def copies(cluster: Cluster) -> set[str]:
    """Nodes with a copy."""
    return {n for n in cluster.names if n in cluster.running and P in cluster.node(n).runtime.copies}


def told(cluster: Cluster, *codes: str) -> list[Event]:
    """Of the event history."""
    log, topic = MemoryLog(cluster.broker), TopicPartition("test.events", 0)
    found = [Event.from_bytes(e.value) for e in log.read(topic, *log.bounds(topic))]
    return [e for e in found if e.code in codes]


class Counting:
    """A client that counts; every error is kept."""

    def __init__(self, cluster: Cluster) -> None:
        self.client = cluster.client()
        self.told = 0
        self.errors = list[BaseException]()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        with self.client.transaction():
            self.client.create(Counter("x"))

    def __enter__(self) -> Counting:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join(30)
        assert self.errors == []
        with self.client.transaction():
            assert self.client.get(Counter, "x").value == self.told

    def _once(self) -> None:
        self.client.get(Counter, "x").value += 1

    def _run(self) -> None:
        count: Callable[[], None] = self.client.transactional(retries=200)(self._once)
        while not self._stop.wait(0.001):
            try:
                count()
                self.told += 1
            except BaseException as e:
                self.errors.append(e)

    def goes_on(self) -> None:
        now = self.told
        wait_until(lambda: self.told > now + 3, "callers are answered")
