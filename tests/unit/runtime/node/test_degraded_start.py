"""A node whose partitions fail is up, and says which of them and why (P8, O1)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from halog.adapters.memory import MemoryBroker
from halog.cli.cluster.node import _degraded
from halog.cli.cluster.status import as_json
from halog.cli.shared.survey import Survey, node_views, partition_view
from halog.ports import TopicPartition
from halog.runtime.node import node as runtime_node
from halog.runtime.node.node import Runtime
from halog.runtime.node.status import failed, settled
from halog.testing.cluster import Cluster
from tests.unit.counting import REGISTRY, Counter
from tests.unit.runtime.node.test_cluster_identity import stop

pytestmark = [pytest.mark.nodes, pytest.mark.feature("P8", "O1")]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(2, partitions=4, registry=REGISTRY) as cluster:
        with cluster.client().transaction() as tx:
            tx.create(Counter("c"))
        yield cluster


@pytest.mark.parametrize("step", ["advertised", "check_reachable", "begun_anew", "_serve"])
def test_a_node_says_how_it_is_while_it_starts(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """It is asked from the moment it listens, and answers, whatever is not there yet."""
    on: Any = Runtime if hasattr(Runtime, step) else runtime_node
    real = getattr(on, step)
    told: list[dict[str, object]] = []

    def asked(*args: Any, **named: Any) -> Any:
        caller = sys._getframe(1).f_locals["self"]
        told.append(caller.status())
        return real(*args, **named)

    cluster.running.pop("A").node.close()
    monkeypatch.setattr(on, step, asked)
    cluster.restart("A")
    assert [(status["node"], status["hosts"]) for status in told] == [("A", True)]


def test_what_fails_while_the_node_starts_is_told_by_name_with_its_first_word(cluster: Cluster) -> None:
    """A log that cannot be read: everybody's copies of it stop, the others serve."""
    stop(cluster)
    broker: MemoryBroker = cluster.broker
    for index in (1, 2):
        broker.overtake(TopicPartition("test.test.log", index), b"no record")
    for name in cluster.names:
        cluster.restart(name)
    runtime = cluster.node("A").runtime
    found = settled(runtime, 10)
    assert list(found) == ["test-1", "test-2"] == list(settled(cluster.node("B").runtime, 10))
    said = _degraded(found, len(runtime.copies))
    assert said.startswith("; degraded: 2 of its 4 partitions have failed here: test-1: ")
    assert "test-2: " in said
    assert cluster.node("B").runtime.status()["node"] == "B", "both are up"

    nodes = {name: cluster.node(name).runtime for name in cluster.names}
    status = {name: node.status() for name, node in nodes.items()}
    copies = status["B"]["copies"]
    assert isinstance(copies, list)
    copies.sort(key=lambda copy: copy["partition"], reverse=True)  # a copy that was opened again is the last one
    infos = {name: node.info for name, node in nodes.items()}
    views = tuple(partition_view(t, infos, status) for t in cluster.tables().values())
    seen = Survey("test", "home", tuple(node_views(cluster.names, infos, status)), views)
    document = as_json(seen)
    assert not document["ok"]
    assert {(f["partition"], f["node"]) for f in document["failed"]} == {
        (p, n) for p in ("test-1", "test-2") for n in cluster.names
    }
    assert all(f["why"] for f in document["failed"])
    assert all(n.why == "2 of its 4 partitions have failed here: test-1, test-2" for n in seen.nodes)


def test_where_nothing_fails_nothing_is_said(cluster: Cluster) -> None:
    runtime = cluster.node("A").runtime
    assert settled(runtime, 10) == failed(runtime) == {}
    assert _degraded({}, 4) == ""
