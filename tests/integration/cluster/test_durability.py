"""Transactions that ask for less than their policy, or for more, with real processes killed (R6)."""

from __future__ import annotations

import threading

import pytest

from halog.core.durability import Durability
from halog.errors import RefusedError, ReplicasError
from halog.runtime.node.open import RunningNode
from halog.transactions import Transaction
from tests.integration.cluster.checker import check, history
from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.load import Load, tails
from tests.integration.cluster.processes import passes, wait
from tests.integration.cluster.test_sync_policies import on_disk

pytestmark = [pytest.mark.feature("R6"), pytest.mark.timeout(600)]

LESS = Durability(local="NO_SYNC")
MORE = Durability(remote="SYNC")


APPENDS_MS = 30_000
"""Longer than the broker stands still in any test, also where processes stand still: no epoch is given up for it."""


def started(make: Make, nodes: str = "ABC", partitions: int = 3, async_: int = 1) -> Cluster:
    cluster = make(nodes=nodes, partitions=partitions, async_=async_)
    cluster.timed(append_deadline_ms=APPENDS_MS)
    cluster.start()
    cluster.whole()
    return cluster


def create(node: RunningNode, tail: str, durability: Durability | None = None) -> None:
    with node.transaction(durability=durability) as tx:
        tx.create(Aircraft(tail=tail))


class Landings:
    """One aircraft in each partition lands again and again, and does not wait for the log; none waits for another."""

    def __init__(self, node: RunningNode, durability: Durability | None = LESS) -> None:
        self.node = node
        self.durability = durability
        self.mine = {p: tail for p, (tail,) in tails(node, "less-").items()}
        self.told: dict[str, list[tuple[bytes, int]]] = {p: [] for p in self.mine}
        """(transaction id, lsn) by partition, as told."""
        for tail in self.mine.values():
            create(node, tail)
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(p,), daemon=True) for p in self.mine]

    def __enter__(self) -> Landings:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        assert not any(t.is_alive() for t in self._threads), "a caller never got an answer"

    def _run(self, partition: str) -> None:
        @self.node.transactional(retries=200, durability=self.durability)
        def once() -> Transaction:
            self.node.get(Aircraft, self.mine[partition]).landings += 1
            return self.node.current()

        while not self._stop.is_set():
            tx = once()
            assert tx.id is not None
            assert tx.lsn is not None
            self.told[partition].append((tx.id, tx.lsn))

    def go_on(self) -> None:
        """Without the log, in some partition. (Where a replica told its position in this very epoch they wait for the
        log all the same: E1.) Of each aircraft one commit is under way: the log may have had that one before it
        stopped, and none behind it."""
        before = {p: len(t) for p, t in self.told.items()}
        wait(lambda: any(len(t) > before[p] + 20 for p, t in self.told.items()), "they go on", APPENDS_MS / 2_000)

    def landed(self) -> dict[str, int]:
        """By partition, as anybody reads it now."""
        with self.node.transaction() as tx:
            return {p: tx.get(Aircraft, tail).landings for p, tail in self.mine.items()}


def test_while_the_log_stands_still_those_go_on_that_do_not_wait_for_it(make: Make) -> None:
    """A transaction that asks for nothing waits, and so does what comes behind it; when the log goes on all have
    happened, where they were told."""
    cluster = started(make)
    node = cluster.client()
    with Landings(node) as less:
        cluster.site.pause("kafka")
        try:
            less.go_on()
            plain = threading.Thread(target=create, args=(node, tails(node, "plain-")["p-0"][0]))
            plain.start()
            plain.join(0.5)
            waited = plain.is_alive()
        finally:
            cluster.site.resume("kafka")
    plain.join(60)
    assert (waited, plain.is_alive()) == (True, False)
    for partition, (tail,) in tails(node, "last-").items():  # behind all of them, and in the log
        create(node, tail)
        ids = history(cluster, partition).ids
        assert [ids[tx] for tx, _ in less.told[partition]] == [[lsn] for _, lsn in less.told[partition]]
    assert less.landed() == {p: len(t) for p, t in less.told.items()}
    check(cluster)


@pytest.mark.feature("P1", "P10")
def test_a_killed_active_takes_with_it_only_what_did_not_wait_for_the_log(make: Make) -> None:
    """The log stands still, transactions that do not wait for it are answered, and the active node is killed: they may
    be gone, everywhere alike; what others were told is there, once."""
    cluster = started(make)
    node = cluster.client()
    with Load(cluster.client("other"), "kept") as kept:
        kept.flows()
    victim = cluster.table("p-0").node_list[0]
    with Landings(node) as less:
        cluster.site.pause("kafka")
        try:
            less.go_on()
            cluster.kill(victim)
            passes(0.2)
        finally:
            cluster.site.resume("kafka")
        passes(1.0)
    with Load(cluster.client("third"), "later") as later:
        later.flows()
    assert later.errors == []
    cluster.start([victim])
    cluster.whole()
    histories = check(cluster, kept, later)
    for partition, told in less.told.items():
        ids = histories[partition].ids
        there = [lsn for tx, lsn in told if tx in ids]
        assert there == [ids[tx][0] for tx, _ in told if tx in ids], "what is there is where it was told"
        assert less.landed()[partition] == len(there), "and the object knows of nothing else"
        if cluster.table(partition).epoch.number == 1:
            assert len(there) == len(told), "its active node lived on"


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
    before = history(cluster, "p-0").ids.keys()
    with pytest.raises(RefusedError, match="p-0 is of policy p with sync_replicas = 1"):
        create(node, "two", Durability(remote="SYNC", replicas=2))
    (victim,) = (r.node for r in cluster.table("p-0").replicas)
    cluster.kill(victim)
    wait(lambda: not cluster.table("p-0").replicas, "it has left the node list")
    with pytest.raises(ReplicasError, match="0 sync replicas are there, 1 are to flush"):
        create(node, "two", MORE)
    assert history(cluster, "p-0").ids.keys() == before
    create(node, "two")
    cluster.start([victim])
    cluster.whole()

    def granted() -> bool:
        """The table names it a moment before the active node knows that it does."""
        try:
            create(node, "three", MORE)
        except ReplicasError:
            return False
        return True

    wait(granted, "it is asked again")
    check(cluster)
