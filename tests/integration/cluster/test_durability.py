"""Transactions that ask for less than their policy, or for more, with real processes killed (R6)."""

from __future__ import annotations

import threading

import pytest

from halog.core.durability import Durability
from halog.errors import RefusedError, ReplicasError
from halog.runtime.open import Node
from tests.integration.cluster.checker import check, history
from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.load import Load, tails
from tests.integration.cluster.processes import passes, wait
from tests.integration.cluster.test_sync_policies import on_disk

pytestmark = [pytest.mark.feature("R6"), pytest.mark.timeout(180)]

LESS = Durability(local="NO_SYNC")
MORE = Durability(remote="SYNC")


def started(make: Make, nodes: str = "ABC", partitions: int = 3, async_: int = 1) -> Cluster:
    cluster = make(nodes=nodes, partitions=partitions, async_=async_)
    cluster.start()
    cluster.whole()
    return cluster


def create(node: Node, tail: str, durability: Durability | None = None) -> None:
    with node.transaction(durability=durability) as tx:
        tx.create(Aircraft(tail=tail))


def test_while_the_log_stands_still_those_go_on_that_do_not_wait_for_it(make: Make) -> None:
    """A transaction that asks for nothing waits, and so does what comes behind it; when the log goes on all have
    happened, where they were told."""
    cluster = started(make)
    node, threads = cluster.client(), 6
    with Load(node, "less", threads=threads, durability=LESS) as less:
        cluster.site.pause("kafka")
        try:
            passes(0.3)  # what the log had acknowledged before it stopped is told by then
            before = len(less.acked)
            passes(0.7)
            went_on = len(less.acked) - before
            (tail,) = tails(node, "plain-")["p-0"]
            plain = threading.Thread(target=create, args=(node, tail))
            plain.start()
            plain.join(0.5)
            waited = plain.is_alive()
        finally:
            cluster.site.resume("kafka")
        plain.join(20)
        less.flows()
    assert went_on > threads, "more than what the log may have acknowledged before it stopped"
    assert (waited, plain.is_alive()) == (True, False)
    assert less.errors == []
    cluster.whole()
    check(cluster, less)


@pytest.mark.feature("P1", "P10")
def test_a_killed_active_takes_with_it_only_what_did_not_wait_for_the_log(make: Make) -> None:
    """The log stands still, transactions that do not wait for it are answered, and the active node is killed: they may
    be gone, everywhere alike; what others were told is there, once."""
    cluster = started(make)
    node = cluster.client()
    with Load(cluster.client("other"), "kept") as kept:
        kept.flows()
    victim = cluster.table("p-0").node_list[0]
    with Load(node, "less", durability=LESS) as less:
        cluster.site.pause("kafka")
        try:
            before = len(less.acked)
            wait(lambda: len(less.acked) > before + 20, "they go on without the log")
            cluster.kill(victim)
            passes(0.2)
        finally:
            cluster.site.resume("kafka")
        less.flows()
        with Load(cluster.client("third"), "later") as later:
            later.flows()
    assert less.errors == later.errors == []
    cluster.start([victim])
    cluster.whole()
    histories = check(cluster, kept, later)
    assert not [tx for tx, (p, lsn) in less.acked.items() if histories[p].ids.get(tx, [lsn]) != [lsn]]
    lost = [tx for tx, (p, _) in less.acked.items() if tx not in histories[p].ids]
    assert len(lost) < len(less.acked) / 2, "only what was under way"


def test_a_killed_replica_has_stored_what_it_was_asked_to_flush(make: Make) -> None:
    """The policy asks for its memory only. It is killed in the middle of the load, again and again."""
    cluster = started(make, nodes="AB", partitions=1, async_=0)
    with Load(cluster.client(), "stored", pause_s=0.0, durability=MORE) as load:
        for _ in range(3):
            (victim,) = (r.node for r in cluster.table("p-0").replicas)
            load.flows()
            acked = max(lsn for _, lsn in list(load.acked.values()))
            cluster.kill(victim)
            assert on_disk(cluster, victim, "p-0") >= acked
            cluster.start([victim])
            cluster.whole()
            load.flows()
    assert all(isinstance(e, ReplicasError) for e in load.errors), load.errors
    check(cluster, load)


def test_what_cannot_be_given_is_refused_and_nothing_is_in_the_log(make: Make) -> None:
    cluster = started(make, nodes="AB", partitions=1, async_=0)
    node = cluster.client()
    create(node, "one", MORE)
    before = history(cluster, "p-0").lsn
    with pytest.raises(RefusedError, match="p-0 is of policy p with sync_replicas = 1"):
        create(node, "two", Durability(remote="SYNC", replicas=2))
    (victim,) = (r.node for r in cluster.table("p-0").replicas)
    cluster.kill(victim)
    wait(lambda: not cluster.table("p-0").replicas, "it has left the node list")
    with pytest.raises(ReplicasError, match="0 sync replicas are there, 1 are to flush"):
        create(node, "two", MORE)
    assert history(cluster, "p-0").lsn == before
    create(node, "two")
    cluster.start([victim])
    cluster.whole()
    create(node, "three", MORE)
    check(cluster)
