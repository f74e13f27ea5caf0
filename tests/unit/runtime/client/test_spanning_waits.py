"""Transactions over several partitions of which one fails over for longer than anybody doubts: a living initiator waits
as long as for any answer, and a dead one's objects are free as soon as ever (D4, D5)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from halog.errors import ConflictError, UnreachableError
from halog.runtime.rpc import frames
from halog.testing.cluster import Cluster, wait_until
from tests.unit.counting import Counter
from tests.unit.runtime.client.test_spanning import active_copy, apart, create, half_done, nothing_in_doubt, values
from tests.unit.runtime.client.test_spanning_unserved import settled
from tests.unit.runtime.conftest import started

pytestmark = pytest.mark.feature("D4", "D5")

DOUBT_S = 1.0
AWAY_S = 5.0
"""Five times as long as a dead initiator's objects are held."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with started(int(DOUBT_S * 1000)) as made:
        yield made


class Away:
    """Partitions that one client does not reach for a while, as during a long failover; the others it does."""

    def __init__(self, client: Any, *partitions: str) -> None:
        router = client.backend.router
        self.until = time.monotonic() + AWAY_S
        self.prepared = list[str]()
        real = router._once

        def once(target: str | None, data: bytes, until: float) -> frames.Reply:
            r = frames.decode_incoming(data)
            if isinstance(r, frames.PrepareRequest):
                self.prepared.append(r.partition)
                if r.partition in partitions and time.monotonic() < self.until:
                    raise UnreachableError("refused", sent=False)
            return real(target, data, until)  # type: ignore[no-any-return]

        router._once = once


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("last", [False, True])
def test_a_long_failover_of_a_participant_is_waited_out(cluster: Cluster, count: int, last: bool) -> None:
    """`last`: of the one that decides, when all others have voted."""
    names = apart(cluster, count)
    create(cluster, names)
    nothing_in_doubt(cluster, names)
    client: Any = cluster.client()
    away = Away(client, cluster.partition_of(Counter, names[0 if last else 1]))
    with client.transaction() as tx:
        for name in names:
            tx.get(Counter, name).value += 1
    assert time.monotonic() >= away.until
    assert tx.outcome == "committed"
    assert values(cluster, names) == [101] * count
    if count == 3 or last:
        assert away.prepared.count(cluster.partition_of(Counter, names[-1])) > 2, "it hears that the initiator lives"
    nothing_in_doubt(cluster, names)


READS: dict[str, Callable[[Any, str], int]] = {
    "get": lambda node, name: _read(node, lambda tx: tx.get(Counter, name).value),
    "extent": lambda node, name: _read(node, lambda tx: {c.name: c.value for c in tx.extent(Counter)}[name]),
    "method": lambda node, name: _read(node, lambda tx: tx.get(Counter, name).add(0)),
    "barrier": lambda node, name: _read(node, lambda tx: tx.get(Counter, name).value, read="barrier"),
}


def _read(node: Any, look: Callable[[Any], int], **mode: str) -> int:
    with node.transaction(**mode) as tx:
        found = look(tx)
        tx.rollback()
    return found


@pytest.mark.parametrize("here", [False, True], ids=["from elsewhere", "on the active node"])
@pytest.mark.parametrize("how", READS)
def test_who_reads_what_a_living_one_holds_waits_as_it_does(cluster: Cluster, how: str, here: bool) -> None:
    names = apart(cluster, 2)
    create(cluster, names)
    nothing_in_doubt(cluster, names)
    client: Any = cluster.client()
    reader: Any = cluster.node(cluster.active_for(Counter, names[1])) if here else cluster.client()
    away = Away(client, cluster.partition_of(Counter, names[0]))

    def bump() -> None:
        with client.transaction() as tx:
            for name in names:
                tx.get(Counter, name).value += 1

    other = threading.Thread(target=bump)
    other.start()
    wait_until(lambda: active_copy(cluster, names[1]).core.state.ledger.locks, "nothing is held")
    assert READS[how](reader, names[1]) == 101
    assert time.monotonic() >= away.until, "it was not decided before"
    other.join()


def test_what_is_done_at_once_tells_nobody_that_it_lives(cluster: Cluster) -> None:
    names = apart(cluster)
    create(cluster, names)
    client: Any = cluster.client()
    away = Away(client)
    for _ in range(5):
        with client.transaction() as tx:
            for name in names:
                tx.get(Counter, name).value += 1
    assert len(away.prepared) == 10


def test_a_dead_initiators_objects_are_free_as_soon_as_ever(cluster: Cluster) -> None:
    """Though another one lives, and waits."""
    names = apart(cluster, 4)
    create(cluster, names)
    nothing_in_doubt(cluster, names)
    client: Any = cluster.client()
    away = Away(client, cluster.partition_of(Counter, names[0]))
    away.until += AWAY_S

    def waits() -> None:
        with client.transaction() as tx:
            for name in (names[0], names[3]):
                tx.get(Counter, name).value += 1

    other = threading.Thread(target=waits)
    other.start()
    half_done(cluster, names[1:3])
    nothing_in_doubt(cluster, names[1:3])
    assert active_copy(cluster, names[3]).core.state.ledger.locks, "the living one's are held"
    away.until = 0.0
    other.join(60)
    assert values(cluster, names) == [101, 100, 100, 101]


@pytest.mark.parametrize("last", [False, True])
def test_one_that_was_given_up_is_told_so_and_repeated_under_a_new_id(cluster: Cluster, last: bool) -> None:
    """Somebody had it aborted while it waited: nobody waits for the rest of the time, and nothing has happened."""
    names = apart(cluster, 3)
    create(cluster, names)
    nothing_in_doubt(cluster, names)
    parts = [cluster.partition_of(Counter, n) for n in names]
    client: Any = cluster.client()
    away = Away(client, parts[0] if last else parts[1])
    away.until += 30.0
    ids = list[bytes]()

    @client.transactional()
    def bump() -> None:
        tx = client.current()
        for name in names:
            tx.get(Counter, name).value += 1
        if ids:
            away.until = 0.0
        real = client.backend.commit_over
        client.backend.commit_over = lambda id_, works: ids.append(id_) or real(id_, works)

    def abort() -> None:
        wait_until(lambda: active_copy(cluster, names[2]).core.state.ledger.undecided, "nobody votes")
        (tx,) = active_copy(cluster, names[2]).core.state.ledger.undecided
        settled(cluster, tx, [parts[0], parts[2]], commit=False)

    other = threading.Thread(target=abort)
    other.start()
    began = time.monotonic()
    bump()
    other.join()
    assert time.monotonic() - began < 12, "before a call's deadline of 15 s"
    assert len(set(ids)) == 2
    assert values(cluster, names) == [101] * 3


def test_in_a_block_it_is_a_conflict(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """An initiator that cannot say that it lives: the others have it aborted when they have waited."""
    names = apart(cluster)
    create(cluster, names)
    nothing_in_doubt(cluster, names)
    client: Any = cluster.client()
    monkeypatch.setattr(client.backend._half.spanning._initiating, "_turn", lambda now: None)
    Away(client, cluster.partition_of(Counter, names[0]))
    with pytest.raises(ConflictError, match="given up") as told, client.transaction() as tx:
        for name in names:
            tx.get(Counter, name).value += 1
    assert told.value.happened is False
    assert tx.outcome == "rolled back"
    assert values(cluster, names) == [100, 100]
