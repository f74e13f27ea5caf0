"""Transactions over several partitions of which one is not served, and what is said when the node closes meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from halog.errors import (
    AvailabilityError,
    ConflictError,
    HalogError,
    OverloadedError,
    PartitionUnavailableError,
    UnreachableError,
)
from halog.runtime.rpc import frames
from halog.testing.cluster import Cluster, wait_until
from tests.unit.counting import REGISTRY, Counter
from tests.unit.runtime.client.test_spanning import (
    active_copy,
    apart,
    bump,
    create,
    half_done,
    nothing_in_doubt,
    values,
)

pytestmark = pytest.mark.feature("D4")
PATIENCE_S = 14.0
"""Of who asks a partition that nobody serves; others take a few ms, or a second on a busy machine."""


class Unserved:
    """A partition without an active node, as one client finds it."""

    def __init__(self, client: Any, partition: str) -> None:
        self.partition = partition
        ballots = client.backend.ballots
        self._prepare = ballots.prepare
        self._decide = ballots.decide
        ballots.prepare, ballots.decide = self.prepare, self.decide

    def prepare(self, r: frames.PrepareRequest, until: float, *args: Any) -> Any:
        return self._nobody(until) if r.partition == self.partition else self._prepare(r, until, *args)

    def decide(self, r: frames.Decide, until: float, site: str) -> Any:
        return self._nobody(until) if r.partition == self.partition else self._decide(r, until)

    def _nobody(self, until: float) -> None:
        time.sleep(max(0.0, until - time.monotonic()))
        raise PartitionUnavailableError("nobody", partition=self.partition)


def new_in(cluster: Cluster, i: int, partitions: set[str]) -> list[str]:
    """Names of new Counters, one in each."""
    found: dict[str, str] = {}
    for j in range(99):
        found.setdefault(cluster.partition_of(Counter, f"n{i}-{j}"), f"n{i}-{j}")
    return [found[p] for p in partitions]


def many(cluster: Cluster, client: Any, partitions: set[str], said: list[Any]) -> list[threading.Thread]:
    """40 transactions over these partitions, under way."""

    def one(i: int) -> None:
        tx = client.transaction()
        try:
            with tx:
                for name in new_in(cluster, i, partitions):
                    tx.create(Counter(name, 1))
        except HalogError as e:
            said.append((tx.outcome, e))

    threads = [threading.Thread(target=one, args=(i,), daemon=True) for i in range(40)]
    for thread in threads:
        thread.start()
    return threads


def one_unserved(cluster: Cluster, said: list[Any]) -> tuple[Any, list[str], list[threading.Thread]]:
    """Counters in three partitions, of which a client finds the first unserved; 40 of its transactions wait for it."""
    names = apart(cluster, 3)
    create(cluster, names)
    client: Any = cluster.client()
    client.backend.asker.call_s = PATIENCE_S
    parts = [cluster.partition_of(Counter, n) for n in names]
    Unserved(client, parts[0])
    return client, names, many(cluster, client, set(parts[:2]), said)


def test_a_partition_that_nobody_serves_holds_up_no_transaction_over_others(patient: Cluster) -> None:
    said = list[Any]()
    client, names, threads = one_unserved(patient, said)
    time.sleep(0.3)
    began = time.monotonic()
    with client.transaction() as tx:
        for n in names[1:]:
            tx.get(Counter, n).value += 1
    assert time.monotonic() - began < 0.75 * PATIENCE_S
    for thread in threads:
        thread.join(60)
    assert time.monotonic() - began < 2.5 * PATIENCE_S
    assert {outcome for outcome, _ in said} == {"rolled back"}
    assert len(said) == 40
    assert {type(e) for _, e in said} <= {PartitionUnavailableError, OverloadedError}
    unserved = patient.partition_of(Counter, names[0])
    assert all("nothing happened" in e.message and e.evidence["partition"] == unserved for _, e in said)


def test_aborts_wait_for_no_votes_and_for_no_partition_that_nobody_serves(patient: Cluster) -> None:
    said = list[Any]()
    client, names, threads = one_unserved(patient, said)
    wait_until(lambda: len(said) >= 10, "nobody gives up")
    with pytest.raises(ConflictError), client.transaction() as tx:
        for n in names[1:]:
            tx.get(Counter, n).value += 1
        other = threading.Thread(target=bump, args=(patient, names[2]))
        other.start()
        other.join()
    began, key = time.monotonic(), REGISTRY.info(Counter).index_key((names[1],))
    wait_until(lambda: key not in active_copy(patient, names[1]).core.state.ledger.locks, "the abort does not arrive")
    assert time.monotonic() - began < 0.75 * PATIENCE_S
    for thread in threads:
        thread.join(60)


def test_a_vote_of_a_partition_that_nobody_serves_is_given_up(cluster: Cluster) -> None:
    names = apart(cluster)
    create(cluster, names)
    client: Any = cluster.client()
    client.backend.asker.call_s = 6.0
    router, dead = client.backend.router, cluster.partition_of(Counter, names[1])
    real = router._once

    def once(target: str | None, data: bytes, until: float) -> frames.Reply:
        r = frames.decode_incoming(data)
        if isinstance(r, frames.PrepareRequest) and r.partition == dead:
            raise UnreachableError("refused", sent=False)
        return real(target, data, until)  # type: ignore[no-any-return]

    router._once = once
    began = time.monotonic()
    with pytest.raises(AvailabilityError) as caught, client.transaction() as tx:
        for n in names:
            tx.get(Counter, n).value += 1
    assert 5.5 < time.monotonic() - began < 20  # a failover, however long, is waited out until the deadline
    assert type(caught.value) is PartitionUnavailableError
    assert "nothing happened" in caught.value.message
    assert tx.outcome == "rolled back"
    nothing_in_doubt(cluster, names)
    assert values(cluster, names) == [100, 100]


def settled(cluster: Cluster, tx: bytes, parts: Sequence[str], *, commit: bool) -> set[str]:
    """What each partition says when it is told so, the first one first."""
    ballots: Any = cluster.client().backend.ballots  # type: ignore[attr-defined]
    asked = [frames.Decide(part, tx, commit, part == parts[0], tuple(parts)) for part in parts]
    return {ballots.decide(decide, time.monotonic() + 5)[0] for decide in asked}


def test_a_scan_waits_for_those_in_doubt_before_and_for_nobody_else(patient: Cluster) -> None:
    """Else no look at all objects is through where something is always in doubt."""
    earlier, later = ([f"{at}{i}" for i in range(99)] for at in "xy")
    pairs = [
        [next(n for n in names if patient.partition_of(Counter, n) == f"test-{p}") for p in (0, 1)]
        for names in (earlier, later)
    ]
    for names in pairs:
        create(patient, names)
    copy, done = active_copy(patient, pairs[0][0]), threading.Event()
    family = REGISTRY.info(Counter).family_id

    def scan() -> None:
        copy.wait_free((family,), 30, prefixes=True)
        done.set()

    first = half_done(patient, pairs[0])
    reader = threading.Thread(target=scan, daemon=True)
    reader.start()
    wait_until(lambda: copy.progress._waiters, "nobody waits")  # type: ignore[attr-defined]
    half_done(patient, pairs[1])
    assert not done.wait(0.1)
    settled(patient, first, ["test-0", "test-1"], commit=False)
    assert done.wait(60), "it waits for one who came later"
    assert len(copy.core.state.ledger.undecided) == 1
    reader.join()


def test_a_scan_that_waits_for_somebody_goes_where_the_role_goes(patient: Cluster) -> None:
    """The copy that drains lets go of it, and does not know how that ended."""
    names = apart(patient)
    create(patient, names)
    tx, family, found = half_done(patient, names), REGISTRY.info(Counter).family_id, list[int]()

    def scan() -> None:
        rows = list(patient.client().runtime.scan("test-0", family))  # type: ignore[attr-defined]
        found.append(rows[0].version)

    reader = threading.Thread(target=scan, daemon=True)
    copy = active_copy(patient, names[0])
    (before,) = [f.version for f in copy.objects.scan(family)]
    reader.start()
    wait_until(lambda: copy.progress._waiters, "nobody waits")  # type: ignore[attr-defined]
    to = next(r.node for r in copy.core.state.table.replicas if r.kind == "sync")
    patient.client().runtime.operators.hand_over("test-0", to)  # type: ignore[attr-defined]
    wait_until(lambda: active_copy(patient, names[0]) is not copy and active_copy(patient, names[0]).serving, "handed")
    assert not found
    settled(patient, tx, ["test-0", "test-1"], commit=True)
    reader.join(60)
    assert found
    assert found[0] > before


def test_a_partition_that_is_busy_holds_up_nobody_who_is_to_tell_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lock is held, for a snapshot say, when the decision is to be told: neither that commit nor another
    partition's waits for it, and it hears of the decision all the same."""
    with Cluster(1, partitions=4, sync_replicas=0, registry=REGISTRY) as one:
        names = apart(one, 3)
        create(one, names)
        first, told, _ = sorted(names, key=lambda n: one.partition_of(Counter, n))
        ballot, busy, done = active_copy(one, first), threading.Event(), threading.Event()
        real, let_go = type(ballot).question, list[bool]()

        def hold() -> None:
            with active_copy(one, told).lock:
                busy.set()
                let_go.append(done.wait(60))

        def question(self: Any, *args: Any, **how: Any) -> Any:
            if self is ballot and not busy.is_set():  # asked for the last vote
                threading.Thread(target=hold, daemon=True).start()
                busy.wait(60)
            return real(self, *args, **how)

        monkeypatch.setattr(type(ballot), "question", question)
        with one.node("A").transaction() as tx:
            for name in (first, told):
                tx.get(Counter, name).value += 1
        bump(one, next(n for n in names if n not in (first, told)))
        done.set()
        assert values(one, names) == [101, 101, 101]
        nothing_in_doubt(one, names)
        assert let_go == [True], "they waited until it was let go of"
