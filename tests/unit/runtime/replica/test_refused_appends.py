"""The log takes nothing of one partition: what that costs the others of its node, which share its session (W1)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from halog.errors import HalogError
from halog.ports import LogSession, TopicPartition
from halog.schema import Registry, managed
from halog.testing.cluster import Cluster, wait_until

pytestmark = pytest.mark.feature("R4", "P10")

REGISTRY = Registry()
PARTITIONS = 8
WAITED_S = 12.0
"""Three epochs of the partition are given up by then: after 3 s, 3 s of the other node, and so on."""


@managed(key="name", registry=REGISTRY)
class Thing:
    name: str
    n: int = 0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster(2, partitions=PARTITIONS, registry=REGISTRY)
    timing = replace(made.config.timing, append_deadline_ms=1_000, call_deadline_ms=4_000, min_stay_ms=600_000)
    made.config = replace(made.config, timing=timing).validate()
    with made.start():
        yield made


def numbers(cluster: Cluster) -> dict[str, int]:
    return {name: table.epoch.number for name, table in cluster.tables().items()}


def stick(cluster: Cluster) -> str:
    """The log takes nothing of one partition, and a commit there is not acknowledged in time; which one it is."""
    client: Any = cluster.client()
    with client.transaction():
        client.create(Thing("N"))
    stuck, before = cluster.partition_of(Thing, "N"), numbers(cluster)
    cluster.broker.hold(place(cluster, stuck))
    with suppress(HalogError), client.transaction():
        client.get(Thing, "N").n += 1
    wait_until(lambda: numbers(cluster)[stuck] > before[stuck], "it is claimed again")
    return stuck


def place(cluster: Cluster, name: str) -> TopicPartition:
    table = cluster.tables()[name]
    return TopicPartition(table.topic, table.index)


def session(cluster: Cluster, node: str) -> LogSession:
    host = cluster.node(node).runtime.host
    assert host is not None
    return host.current_session()


def test_a_partition_that_takes_nothing_costs_the_others_one_epoch(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """That of the commit which was not acknowledged in time, and none of an epoch that does not open."""
    before = numbers(cluster)
    stuck = stick(cluster)
    time.sleep(WAITED_S)
    after = numbers(cluster)
    assert after[stuck] > before[stuck] + 2, "more than one did not open"
    assert {name for name in before if name != stuck and after[name] > before[name] + 1} == set()
    assert f"HALOG-1126 partition {stuck}: " in caplog.text
    assert caplog.text.count("HALOG-1126") <= 2, "by each node once"
    cluster.broker.release(place(cluster, stuck))
    cluster.settle()
    client: Any = cluster.client()
    with client.transaction():
        client.get(Thing, "N").n += 10
    with client.transaction():
        assert client.get(Thing, "N").n in (10, 11)


def test_a_session_that_fails_while_nobody_waits_for_it_is_replaced_before_anybody_needs_it(cluster: Cluster) -> None:
    """By what was sent for an epoch that was given up, say."""
    client: Any = cluster.client()
    with client.transaction():
        client.create(Thing("N"))
    before, node = numbers(cluster), cluster.active_for(Thing, "N")
    failed: Any = session(cluster, node)
    failed._fail("a record of it was refused")
    wait_until(lambda: session(cluster, node) is not failed, "it is replaced")
    stuck = cluster.partition_of(Thing, "N")
    wait_until(lambda: numbers(cluster)[stuck] > before[stuck], "its epochs end, and others follow")
    cluster.settle()
    with client.transaction():
        client.get(Thing, "N").n += 1
    assert set(numbers(cluster).values()) <= {number + 1 for number in before.values()} | set(before.values())
