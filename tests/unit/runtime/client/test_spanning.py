"""Transactions over several partitions and nodes, by the real runtime over memory adapters (D4, D5)."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import Any

import pytest

import halog.aio
from halog.core import events as ev, results as res
from halog.errors import ConflictError, HalogError, LockedError, NotFoundError, OverloadedError
from halog.runtime.replica.driver import Copy
from halog.runtime.rpc import frames
from halog.testing.cluster import Cluster, wait_until
from halog.transactions import commit as commits
from tests.unit.counting import Counter

pytestmark = pytest.mark.feature("D4")


def apart(cluster: Cluster, count: int = 2) -> list[str]:
    """Names of Counters in as many partitions, the one that decides first."""
    found: dict[str, str] = {}
    for i in range(99):
        found.setdefault(cluster.partition_of(Counter, f"c{i}"), f"c{i}")
    return [found[p] for p in sorted(found)][:count]


def create(cluster: Cluster, names: list[str], value: int = 100) -> None:
    @cluster.client().transactional()  # again, if a busy machine takes longer to prepare it than a test has doubts
    def made() -> None:
        for name in names:
            halog.current().create(Counter(name, value))

    def once() -> bool:
        with suppress(OverloadedError):  # by as much
            made()
            return True
        return False

    wait_until(once, "it is not created")


def values(cluster: Cluster, names: list[str]) -> list[int]:
    """As one transaction reads them, again while it meets others."""

    @cluster.client().transactional()
    def read() -> list[int]:
        return [halog.current().get(Counter, n).value for n in names]

    return read()


def active_copy(cluster: Cluster, name: str) -> Copy:
    partition = cluster.partition_of(Counter, name)
    return cluster.node(cluster.active_for(Counter, name)).runtime.copies[partition]  # type: ignore[no-any-return]


def nothing_in_doubt(cluster: Cluster, names: list[str]) -> None:
    def free() -> bool:
        ledgers = [active_copy(cluster, n).core.state.ledger for n in names]
        return not any(x.undecided or x.locks for x in ledgers)

    wait_until(free, "something is in doubt")


def half_done(cluster: Cluster, names: list[str], *, decided: bool = False, skip: int = 0) -> bytes:
    """What an initiator leaves behind that dies: all but `skip` have voted, and perhaps the first has decided."""
    client = cluster.client()
    tx = client.transaction()
    tx.begin()
    for name in names:
        tx.get(Counter, name).value += 1
    presented = commits.prepare(tx)
    assert presented is not None
    assert presented.works is not None
    assert tx.id is not None
    parts = tuple(sorted(presented.works))
    ballots, until = client.backend.ballots, time.monotonic() + 30  # type: ignore[attr-defined]
    for part in parts[: len(parts) - skip]:
        ballots.prepare(frames.PrepareRequest(part, tx.id, parts[0], parts, b"x", presented.works[part]), until)
    if decided:
        assert ballots.decide(frames.Decide(parts[0], tx.id, True, True), until)[0] == "committed"
    return tx.id


def test_changes_in_several_partitions_happen_together(cluster: Cluster) -> None:
    names = apart(cluster, 3)
    create(cluster, names)
    for node in (cluster.client(), cluster.node("A")):
        with node.transaction() as tx:
            tx.get(Counter, names[0]).value -= 5
            tx.get(Counter, names[1]).value += 5
        assert tx.outcome == "committed"
        assert len(tx.token.positions) == 2
    assert values(cluster, names) == [90, 110, 100]
    nothing_in_doubt(cluster, names)


def test_a_conflict_in_one_undoes_all(cluster: Cluster) -> None:
    names = apart(cluster)
    create(cluster, names)
    with pytest.raises(ConflictError) as caught, cluster.client().transaction() as tx:
        for name in names:
            tx.get(Counter, name).value += 1
        other = threading.Thread(target=bump, args=(cluster, names[1]))
        other.start()
        other.join()
    assert caught.value.evidence["partition"] == cluster.partition_of(Counter, names[1])
    assert tx.outcome == "rolled back"
    nothing_in_doubt(cluster, names)
    assert values(cluster, names) == [100, 101]


def bump(cluster: Cluster, name: str) -> None:
    with cluster.client().transaction() as tx:
        tx.get(Counter, name).value += 1


@pytest.mark.feature("D5")
@pytest.mark.parametrize("skip", [0, 1])
def test_what_a_dead_initiator_left_undecided_is_aborted(cluster: Cluster, skip: int) -> None:
    names = apart(cluster, 3)
    create(cluster, names)
    tx = half_done(cluster, names, skip=skip)
    nothing_in_doubt(cluster, names)
    assert values(cluster, names) == [100, 100, 100]
    assert active_copy(cluster, names[0]).core.state.ledger.decided[tx].commit is False


def unconfirmed(cluster: Cluster, name: str) -> int:
    leading = active_copy(cluster, name).core.leading
    return -1 if leading is None else len(leading.votes.unconfirmed)


@pytest.mark.feature("D5")
@pytest.mark.parametrize("doubt_ms", [3_000])  # nobody else has doubts before it has decided
def test_what_a_dead_initiator_left_decided_is_committed(cluster: Cluster) -> None:
    names = apart(cluster, 3)
    create(cluster, names)
    half_done(cluster, names, decided=True)
    assert values(cluster, names) == [101, 101, 101]  # whoever reads waits
    nothing_in_doubt(cluster, names)
    wait_until(lambda: unconfirmed(cluster, names[0]) == 0, "unconfirmed")


def test_a_commit_waits_for_what_is_held(cluster: Cluster) -> None:
    names = apart(cluster)
    create(cluster, names)
    began = time.monotonic()
    half_done(cluster, names)
    bump(cluster, names[0])
    assert time.monotonic() - began > 0.1
    assert values(cluster, names) == [101, 100]


def test_what_is_held_for_too_long_is_a_conflict(cluster: Cluster) -> None:
    names = apart(cluster)
    create(cluster, names)
    client = cluster.client()
    client.backend.asker.locked_s = 0.05  # type: ignore[attr-defined]
    with pytest.raises(LockedError), client.transaction() as tx:
        counter = tx.get(Counter, names[0])
        half_done(cluster, names)
        counter.value += 1
    nothing_in_doubt(cluster, names)
    assert values(cluster, names) == [100, 100]


def test_the_decorated_form_outlasts_a_dead_initiators_locks(cluster: Cluster) -> None:
    names = apart(cluster, 3)
    create(cluster, names)
    client, runs = cluster.client(), [0]

    @client.transactional(retries=1)
    def run() -> None:
        found = [client.get(Counter, name) for name in names[1:]]
        runs[0] += 1
        if runs[0] == 1:
            half_done(cluster, names[:2])
        for counter in found:
            counter.value += 1

    run()
    assert runs[0] > 1
    assert values(cluster, names) == [100, 101, 101]


@pytest.mark.feature("D4", "D1")
def test_the_same_in_an_event_loop(cluster: Cluster) -> None:
    names = apart(cluster)
    create(cluster, names)

    async def transfer() -> None:
        node = halog.aio.Node(cluster.client())
        async with node.transaction() as tx:
            (await tx.get(Counter, names[0])).value -= 7
            (await tx.get(Counter, names[1])).value += 7
        assert tx.outcome == "committed"
        with pytest.raises(NotFoundError):
            async with node.transaction() as tx:
                (await tx.get(Counter, names[0])).value -= 7
                await tx.get(Counter, "nobody")

    asyncio.run(transfer())
    assert values(cluster, names) == [93, 107]


def test_a_repeated_id_with_other_contents_is_refused(cluster: Cluster) -> None:
    """T1."""
    names = apart(cluster)
    create(cluster, names)
    tx = half_done(cluster, names)
    copy = active_copy(cluster, names[0])
    said: list[res.Result] = []
    parts = tuple(sorted({cluster.partition_of(Counter, n) for n in names}))
    copy.question(said.append, lambda t: ev.PrepareAsked(t, tx, parts[0], parts, b"other", (), (), {}), served=False)
    copy.question(said.append, lambda t: ev.PrepareAsked(t, tx, parts[0], parts, b"x", (), (), {}), served=False)
    assert [type(r) for r in said] == [res.Refusal, res.Success]


@pytest.mark.feature("D4", "R5")
@pytest.mark.parametrize("doubt_ms", [60_000])
@pytest.mark.parametrize("read", ["local", "active"])
def test_a_token_waits_for_what_it_may_have_seen_and_for_nothing_else(cluster: Cluster, read: Any) -> None:
    """In doubt are the objects of `names`; another object of the same partition is not (review, S1)."""
    names = apart(cluster)
    create(cluster, names)
    home = cluster.partition_of(Counter, names[1])
    other = next(f"o{i}" for i in range(999) if cluster.partition_of(Counter, f"o{i}") == home)
    create(cluster, [other])
    half_done(cluster, names)
    node = cluster.node(cluster.active_for(Counter, names[1]))
    node.runtime.asker.call_s = 1.0
    with node.transaction() as tx:
        tx.get(Counter, other).value += 1
    with node.transaction(read=read, after=tx.token) as seen:
        assert seen.get(Counter, other).value == 101
    with pytest.raises(HalogError), node.transaction(read="local", after=tx.token) as held:
        held.get(Counter, names[1])


@pytest.mark.feature("D4", "R5")
@pytest.mark.parametrize("doubt_ms", [1_000])
@pytest.mark.parametrize("who", ["copy", "client"])
def test_what_was_decided_behind_a_moment_is_not_missed_by_a_session(cluster: Cluster, who: str) -> None:
    """The transaction sees the partition as it was before the decision, which its token may have seen."""
    names = apart(cluster)
    create(cluster, names)
    home = cluster.partition_of(Counter, names[1])
    other = next(f"o{i}" for i in range(999) if cluster.partition_of(Counter, f"o{i}") == home)
    create(cluster, [other])
    half_done(cluster, names)
    here = cluster.node(cluster.active_for(Counter, names[1]))
    with here.transaction() as tx:
        tx.get(Counter, other).value += 1
    node = cluster.client() if who == "client" else here
    assert active_copy(cluster, names[1]).core.state.ledger.undecided
    with (
        pytest.raises(ConflictError, match="only after this one began"),
        node.transaction(read="local", after=tx.token) as seen,
    ):
        assert seen.get(Counter, other).value == 101
        assert seen.find(Counter, "nobody") is None
        nothing_in_doubt(cluster, names)
        seen.get(Counter, names[1])
    with node.transaction(read="local", after=tx.token) as seen:
        assert [seen.get(Counter, name).value for name in (other, names[1])] == [101, 100]
