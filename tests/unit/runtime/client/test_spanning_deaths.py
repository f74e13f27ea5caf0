"""Transactions over several partitions whose nodes die meanwhile: what is in doubt outlives them (D4, D5)."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import halog
from halog.errors import ConflictError
from halog.runtime.client.outcome_delivery import DecisionDelivery
from halog.runtime.rpc import frames
from halog.testing.cluster import Cluster, wait_until
from tests.unit.counting import REGISTRY, Counter
from tests.unit.runtime.client.test_spanning import (
    active_copy,
    apart,
    create,
    half_done,
    nothing_in_doubt,
    values,
)

pytestmark = pytest.mark.feature("D4")


@pytest.mark.parametrize("decided", [False, True])
@pytest.mark.parametrize("victim", [0, 1])
def test_locks_survive_the_active_node(cluster: Cluster, victim: int, decided: bool) -> None:
    """Of a participant, or of the first: the Prepare is in the log."""
    names = apart(cluster)
    create(cluster, names)
    half_done(cluster, names, decided=decided)
    cluster.kill(cluster.active_for(Counter, names[victim]))
    assert values(cluster, names) == ([101, 101] if decided else [100, 100])
    nothing_in_doubt(cluster, names)


@pytest.mark.feature("D4", "P10")
@pytest.mark.parametrize("doubt_ms", [60_000])
def test_a_commit_whose_first_partition_fails_over_before_it_is_told_holds_nothing_for_long(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others hold its objects until they hear of it; the next active node tells them, before anybody doubts."""
    names = apart(cluster)
    victim = cluster.active_for(Counter, names[0])
    if victim == cluster.active_for(Counter, names[1]):
        cluster.node(victim).runtime.operators.hand_over(
            cluster.partition_of(Counter, names[1]), next(n for n in cluster.names if n != victim)
        )
        cluster.settle()
    create(cluster, names)
    nothing_in_doubt(cluster, names)
    real = DecisionDelivery._tell
    monkeypatch.setattr(
        DecisionDelivery, "_tell", lambda self, c, e, p: c.node.me.node == victim or real(self, c, e, p)
    )
    half_done(cluster, names, decided=True)
    assert active_copy(cluster, names[1]).core.state.ledger.undecided
    cluster.kill(victim)
    wait_until(lambda: victim not in {cluster.active_for(Counter, n) for n in names}, "nobody takes over")
    nothing_in_doubt(cluster, names)
    assert values(cluster, names) == [101, 101]


def test_a_whole_cluster_starts_again_with_what_is_in_doubt(cluster: Cluster) -> None:
    names = apart(cluster)
    create(cluster, names)
    nothing_in_doubt(cluster, names)
    timing = replace(cluster.config.timing, doubt_timeout_ms=60_000)
    slow = replace(cluster.config, timing=timing).validate()
    fast, cluster.config = cluster.config, slow
    for name in cluster.names:
        cluster.kill(name)
        cluster.restart(name)
        cluster.settle()
    tx = half_done(cluster, names)
    cluster.config = fast
    for name in cluster.names:
        cluster.kill(name)
    for name in cluster.names:
        cluster._start(name)
    cluster.settle()
    nothing_in_doubt(cluster, names)
    assert active_copy(cluster, names[0]).core.state.ledger.decided[tx].commit is False
    assert values(cluster, names) == [100, 100]


@pytest.mark.feature("D4", "P11")
@pytest.mark.parametrize("doubt_ms", [60_000])
def test_a_snapshot_holds_what_is_in_doubt(cluster: Cluster) -> None:
    """Trace 32: restored behind the Prepare, a copy makes the change that the outcome stands for."""
    names = apart(cluster)
    create(cluster, names)
    half_done(cluster, names, decided=True, skip=0)
    tx = half_done_again(cluster, names)
    copy = active_copy(cluster, names[0])
    host = cluster.node(cluster.active_for(Counter, names[0])).runtime.host
    assert host is not None
    host.snapshots.take(copy)
    other = next(n for n in cluster.names if n != copy.node.me.node and copy.name in cluster.node(n).runtime.copies)
    cluster.kill(other)
    cluster.disks[other].data.clear()
    cluster.restart(other)
    wait_until(lambda: copy.name in cluster.node(other).runtime.copies, "no copy")
    restored = cluster.node(other).runtime.copies[copy.name]
    assert restored.began_at > 0
    assert set(restored.core.state.ledger.undecided) == {tx}
    client = cluster.client()
    ballots, parts = client.backend.ballots, sorted({cluster.partition_of(Counter, n) for n in names})  # type: ignore[attr-defined]
    assert ballots.decide(frames.Decide(parts[0], tx, True, True), time.monotonic() + 5)[0] == "committed"
    cluster.settle()
    wait_until(lambda: tx in restored.core.state.ledger.decided, "the replica did not hear")
    key = REGISTRY.info(Counter).index_key((names[0],))
    wait_until(lambda: restored.objects.version(key) == copy.objects.version(key), "the replica lacks the change")
    assert values(cluster, names) == [102, 102]


def half_done_again(cluster: Cluster, names: list[str]) -> bytes:
    wait_until(
        lambda: all(not active_copy(cluster, n).core.state.ledger.undecided for n in names), "the first is in doubt"
    )
    return half_done(cluster, names)


PACE_S = 0.01
"""Between two transactions: callers that never rest take the CPUs from the other tests."""


class Bank:
    """Threads that transfer and audit until they are stopped."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.done = 0
        self.totals = list[int]()
        self.errors: list[BaseException] = []
        self.stopped = threading.Event()

    def run(self, work: Callable[[Any], None], client: Any) -> None:
        while not self.stopped.wait(PACE_S):
            try:
                work(client)
            except ConflictError:
                continue
            except BaseException as error:
                self.errors.append(error)

    def transfer(self, client: Any) -> None:
        @client.transactional()
        def once() -> None:
            frm, to = random.sample(self.names, 2)
            amount = random.randint(1, 5)
            halog.current().get(Counter, frm).value -= amount
            halog.current().get(Counter, to).value += amount

        once()
        self.done += 1

    def audit(self, client: Any) -> None:
        @client.transactional()
        def once() -> int:
            return sum(halog.current().get(Counter, n).value for n in self.names)

        self.totals.append(once())


def test_money_is_conserved_while_nodes_die(cluster: Cluster) -> None:
    names = apart(cluster, 4)
    create(cluster, names)
    bank = Bank(names)
    works = [(bank.transfer, cluster.client()), (bank.transfer, cluster.client()), (bank.audit, cluster.client())]
    threads = [threading.Thread(target=bank.run, args=each) for each in works]
    for thread in threads:
        thread.start()
    for name in ("A", "B", "C"):
        time.sleep(0.3)
        cluster.kill(name)
        time.sleep(0.5)
        cluster.restart(name)
        cluster.settle()
    bank.stopped.set()
    for thread in threads:
        thread.join(30)
    assert bank.errors == []
    assert bank.done > 20
    assert set(bank.totals) == {100 * len(names)}
    nothing_in_doubt(cluster, names)
    assert sum(values(cluster, names)) == 100 * len(names)
