"""Three nodes in memory with zones and quorums, for the tests of both."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from halog.adapters.memory import MemoryLog
from halog.config import SnapshotConfig, TimingConfig, ZoneConfig, ZoneQuorumConfig
from halog.core.roles import Role
from halog.events import Event
from halog.ports import TopicPartition
from halog.runtime.node.node import Runtime
from halog.runtime.rpc import frames
from halog.testing.cluster import Cluster, wait_until
from halog.transactions.node import Node
from tests.unit.counting import REGISTRY, Counter

EVENTS = TopicPartition("test.events", 0)
Make = Callable[..., Cluster]
TIMING = TimingConfig(call_deadline_ms=30_000)


def make() -> Iterator[Make]:
    """A fixture, for the module that names it so."""
    made: list[Cluster] = []

    def start(
        zones: dict[str, ZoneConfig] | None = None,
        votes: dict[str, int] | None = None,
        snapshot: SnapshotConfig = SnapshotConfig(),  # noqa: B008 - frozen
        below_quorum: str = "refuse",
        **quorum: int,
    ) -> Cluster:
        cluster = Cluster(3, partitions=2, registry=REGISTRY)
        made.append(cluster)
        policy = dataclasses.replace(cluster.config.policies["test"], below_quorum=below_quorum)
        zones = zones or {"test": ZoneConfig(("A", "B", "C"), ZoneQuorumConfig(**quorum))}
        config = cluster.config
        nodes = {n: dataclasses.replace(c, votes=(votes or {}).get(n, 1)) for n, c in config.nodes.items()}
        cluster.config = dataclasses.replace(
            config, zones=zones, nodes=nodes, timing=TIMING, snapshot=snapshot, policies={"test": policy}
        ).validate()
        cluster.start()
        with cluster.client().transaction() as tx:
            tx.create(Counter("c"))
        return cluster

    yield start
    for cluster in made:
        cluster.close()


def add(node: Node) -> int:
    with node.transaction() as tx:
        return tx.get(Counter, "c").add(1)


def runtime(cluster: Cluster, name: str) -> Runtime:
    return cluster.node(name).runtime


def state(cluster: Cluster, name: str, zone: str = "test") -> str:
    zones: Any = runtime(cluster, name).status()["zones"]
    return str(next(z["state"] for z in zones if z["zone"] == zone))


def goes_offline(cluster: Cluster, name: str) -> None:
    wait_until(lambda: runtime(cluster, name).members.offline, f"{name} is not offline")


def is_online(cluster: Cluster, name: str) -> bool:
    r = runtime(cluster, name)
    return not r.members.offline and all(c.core.state.role is not Role.OFFLINE for c in r.copies.values())


def told(cluster: Cluster) -> list[Event]:
    log = MemoryLog(cluster.broker)
    return [Event.from_bytes(e.value) for e in log.read(EVENTS, *log.bounds(EVENTS))]


def cut(cluster: Cluster, name: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Nothing that other nodes say by themselves reaches `name`, and the other way round; clients reach everybody."""
    healed = threading.Event()

    def deaf(service: Any, to: Callable[[str], bool]) -> None:
        real = service._control

        def control(member: Any, frame: frames.Control) -> None:
            if healed.is_set() or not to(member.node):
                real(member, frame)

        monkeypatch.setattr(service, "_control", control)

    for each in cluster.names:
        deaf(runtime(cluster, each).service, (lambda n: n != name) if each == name else (lambda n: n == name))
    return healed.set
