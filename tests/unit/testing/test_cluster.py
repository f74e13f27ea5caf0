"""A cluster of real nodes in one process: kill and pause do what they promise, and nothing committed is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from halog.errors import ClosedError
from halog.testing.cluster import Cluster, wait_until
from tests.unit.counting import REGISTRY, Counter


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, partitions=3, registry=REGISTRY) as cluster:
        yield cluster


@pytest.mark.feature("X5", "P10", "R5")
def test_a_killed_active_is_replaced_and_nothing_is_lost(cluster: Cluster) -> None:
    client = cluster.client()
    with client.transaction() as tx:
        tx.create(Counter("c", 5))
    killed = cluster.active_for(Counter, "c")
    cluster.kill(killed)
    with client.transaction() as tx:
        assert tx.get(Counter, "c").add(1) == 6
    assert cluster.active_for(Counter, "c") != killed


@pytest.mark.feature("X5", "R5")
def test_a_transaction_begun_before_a_kill_goes_on_after_it(cluster: Cluster) -> None:
    """The initiator holds the transaction; the new active can be given it."""
    client = cluster.client()
    with client.transaction() as tx:
        tx.create(Counter("c", 5))
    with client.transaction() as tx:
        one = tx.get(Counter, "c")
        assert one.add(1) == 6
        cluster.kill(cluster.active_for(Counter, "c"))
        assert one.add(1) == 7
    with client.transaction() as tx:
        assert tx.get(Counter, "c").value == 7


@pytest.mark.feature("X5", "P11")
def test_a_restarted_node_comes_back_with_its_copies(cluster: Cluster) -> None:
    client = cluster.client()
    killed = cluster.active_for(Counter, "c")
    cluster.kill(killed)
    with client.transaction() as tx:
        tx.create(Counter("c", 5))
    node = cluster.restart(killed)
    cluster.settle()

    def copied() -> bool:
        with node.transaction(read="local") as tx:
            found = tx.find(Counter, "c")
            assert tx.lag is not None
            return found is not None and found.value == 5

    assert wait_until(copied, "the restarted node has no copy")


@pytest.mark.feature("X5", "P10")
def test_a_paused_active_is_replaced_and_steps_down_when_it_wakes(cluster: Cluster) -> None:
    client = cluster.client()
    with client.transaction() as tx:
        tx.create(Counter("c", 5))
    paused = cluster.active_for(Counter, "c")
    cluster.pause(paused)
    with client.transaction() as tx:
        tx.get(Counter, "c").add(1)
    cluster.resume(paused)
    cluster.settle()
    with cluster.node(paused).transaction() as tx:
        assert tx.get(Counter, "c").value == 6


@pytest.fixture
def others() -> set[threading.Thread]:
    """Those of earlier tests."""
    return set(threading.enumerate())


@pytest.mark.feature("X5")
def test_a_killed_node_refuses_and_leaves_no_threads(others: set[threading.Thread], cluster: Cluster) -> None:
    node = cluster.node("A")
    before = {t for t in threading.enumerate() if t.name.startswith("halog-")} - others
    cluster.kill("A")
    with pytest.raises(ClosedError):
        node.transaction()
    cluster.close()
    wait_until(lambda: not any(t.is_alive() for t in before), f"threads are left of {sorted(t.name for t in before)}")
