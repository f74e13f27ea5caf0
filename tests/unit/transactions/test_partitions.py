"""Partitions: what changes in several happens in all of them or in none, what only reads is checked at the end."""

from __future__ import annotations

import contextvars
from collections.abc import Callable

import pytest

from halog.backend import Lag
from halog.core.durability import Durability
from halog.errors import ConflictError, DuplicateKeyError, LockedError, RefusedError
from halog.testing.nodes import MemoryNode
from tests.unit.transactions.model import Account, Aircraft, Plain

pytestmark = pytest.mark.feature("D1")
SYNC = Durability(remote="SYNC")


def apart(node: MemoryNode) -> tuple[int, int]:
    """Ids of two Plains in different partitions."""
    first = node.space.route(Plain, (0,)).partition
    return 0, next(i for i in range(1, 99) if node.space.route(Plain, (i,)).partition != first)


def elsewhere(change: Callable[[], None]) -> None:
    contextvars.Context().run(change)


def test_objects_partitioned_by_the_same_values_change_together(spread: MemoryNode) -> None:
    with spread.transaction() as tx:
        for number in range(20):
            tx.create(Account("ann", number))
        tx.create(Aircraft("ann"))


@pytest.mark.feature("D4")
def test_creates_in_two_partitions_happen_together(spread: MemoryNode) -> None:
    a, b = apart(spread)
    with spread.transaction() as tx:
        tx.create(Plain(a))
        tx.create(Plain(b))
    assert tx.outcome == "committed"
    assert set(tx.token.positions) == {spread.space.route(Plain, (i,)).partition for i in (a, b)}
    with spread.transaction() as tx:
        assert [tx.get(Plain, i).id for i in (a, b)] == [a, b]


@pytest.mark.feature("D4")
def test_a_duplicate_in_one_partition_undoes_the_others(spread: MemoryNode) -> None:
    a, b = apart(spread)
    spread.load([Plain(b)])
    before = spread.state_hash()
    with pytest.raises(DuplicateKeyError, match=f"Plain {b}"), spread.transaction() as tx:
        tx.create(Plain(a))
        tx.create(Plain(b))
    assert tx.outcome == "rolled back"
    assert spread.state_hash() == before
    with spread.transaction() as tx:
        tx.create(Plain(a))  # nothing of it is locked


@pytest.mark.feature("D4")
@pytest.mark.parametrize("late", ["first", "second"])
def test_who_lost_a_race_hears_of_the_conflict_not_of_what_the_winner_created(spread: MemoryNode, late: str) -> None:
    """Both land the same aircraft and create the flight of that number, in another partition: the loser's flight exists
    because its aircraft is old. Whichever partition is asked first, it may try again."""
    ids = sorted(apart(spread), key=lambda i: spread.space.route(Plain, (i,)).partition)
    read, made = ids if late == "second" else reversed(ids)
    spread.load([Plain(read)])

    def land() -> None:
        with spread.transaction() as tx:
            tx.get(Plain, read).text += "landed"
            tx.create(Plain(made))

    with pytest.raises(ConflictError, match=f"Plain {read}:"), spread.transaction() as tx:
        tx.get(Plain, read).text += "landed"
        elsewhere(land)
        tx.create(Plain(made))
    assert tx.outcome == "rolled back"
    with pytest.raises(DuplicateKeyError, match=f"Plain {made}"):
        land()


@pytest.mark.parametrize("order", ["read first", "created first"])
def test_within_a_partition_too_the_conflict_is_told_before_the_duplicate(here: MemoryNode, order: str) -> None:
    here.load([Plain(1)])

    def land(between: Callable[[], None] = lambda: None) -> None:
        with here.transaction() as tx:
            if order == "created first":
                tx.create(Plain(2))
            tx.get(Plain, 1).text += "landed"
            between()
            if order == "read first":
                tx.create(Plain(2))

    with pytest.raises(ConflictError, match="Plain 1:"):
        land(lambda: elsewhere(land))
    with pytest.raises(DuplicateKeyError, match="Plain 2"):
        land()


@pytest.mark.feature("D4")
def test_a_duplicate_is_told_where_its_own_vote_still_holds_what_was_read(
    spread: MemoryNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its abort may arrive late: it is no conflict with itself. Somebody else's vote may be one."""
    a, b = apart(spread)
    spread.load([Plain(a), Plain(b)])
    holder = ""

    def held(partition: str, reads: object, *, least: int = 0, mapping: int = 0) -> None:
        raise LockedError("held", key=b"", tx=holder or (tx.id and tx.id.hex()))

    monkeypatch.setattr(spread.backend, "validate", held)
    with pytest.raises(DuplicateKeyError, match=f"Plain {b}"), spread.transaction() as tx:
        tx.get(Plain, a).text += "changed"
        tx.create(Plain(b))
    holder = "00" * 16
    with pytest.raises(LockedError), spread.transaction() as tx:
        tx.get(Plain, a).text += "changed"
        tx.create(Plain(b))


@pytest.mark.feature("D4")
@pytest.mark.parametrize("changes", ["first", "second", "delete"])
def test_a_change_beside_a_read_of_another_partition_is_checked_with_it(spread: MemoryNode, changes: str) -> None:
    """Somebody else changes what was only read: the two might contradict each other."""
    a, b = apart(spread)
    spread.load([Plain(a), Plain(b)])

    def attempt(between: Callable[[], None]) -> None:
        with spread.transaction() as tx:
            one, two = tx.get(Plain, a), tx.get(Plain, b)
            between()
            if changes == "delete":
                tx.delete(two)
            else:
                (one if changes == "first" else two).text += "changed"

    def other() -> None:
        with spread.transaction() as tx:
            tx.get(Plain, b if changes == "first" else a).text += "x"

    with pytest.raises(ConflictError, match="Plain"):
        attempt(lambda: elsewhere(other))
    attempt(lambda: None)


@pytest.mark.feature("D4")
def test_a_flush_over_several_partitions_is_refused(spread: MemoryNode) -> None:
    a, b = apart(spread)
    with pytest.raises(RefusedError, match="2 partitions"), spread.transaction(durability=SYNC) as tx:
        tx.create(Plain(a))
        tx.create(Plain(b))
    assert tx.outcome == "rolled back"


def test_reading_several_partitions_is_one_snapshot_or_a_conflict(spread: MemoryNode) -> None:
    a, b = apart(spread)
    spread.load([Plain(a), Plain(b)])
    with spread.transaction() as tx:
        assert [tx.get(Plain, i).text for i in (a, b)] == ["", ""]

    def change() -> None:
        with spread.transaction() as tx:
            tx.get(Plain, a).text = "new"

    with pytest.raises(ConflictError, match=f"Plain {a}"), spread.transaction() as tx:
        tx.get(Plain, a)
        elsewhere(change)
        tx.get(Plain, b)


def test_one_object_read_is_never_a_conflict(spread: MemoryNode) -> None:
    spread.load([Plain(1)])

    def change() -> None:
        with spread.transaction() as tx:
            tx.get(Plain, 1).text += "x"

    with spread.transaction() as tx:
        tx.get(Plain, 1)
        elsewhere(change)
        before = spread.backend.requests
    assert spread.backend.requests == before


def test_an_object_found_absent_counts_as_read(spread: MemoryNode) -> None:
    spread.load([Plain(1)])

    def change() -> None:
        with spread.transaction() as tx:
            tx.create(Plain(2))

    with pytest.raises(ConflictError, match="Plain 2"), spread.transaction() as tx:
        assert tx.find(Plain, 2) is None
        elsewhere(change)
        tx.get(Plain, 1)


def test_what_was_only_read_is_checked_with_the_change(here: MemoryNode) -> None:
    """Write skew: both sum two accounts and take from one; only one may."""
    with here.transaction() as tx:
        tx.create(Account("x", 1, balance=5))
        tx.create(Account("x", 2, balance=5))

    def take(number: int) -> None:
        with here.transaction() as tx:
            if tx.get(Account, "x", 1).balance + tx.get(Account, "x", 2).balance >= 10:
                if number == 1:
                    elsewhere(lambda: take(2))
                tx.get(Account, "x", number).balance -= 10

    with pytest.raises(ConflictError, match="Account 'x', 2"):
        take(1)


def test_a_local_read_asks_nobody_and_tells_its_lag(spread: MemoryNode) -> None:
    spread.load([Plain(1, "t")])
    spread.backend.unreachable = True
    with spread.transaction(read="local") as tx:
        assert tx.get(Plain, 1).text == "t"
        assert tx.lag == Lag(0, 0.0)
        assert tx.find(Plain, 2) is None


def test_a_local_read_changes_nothing(here: MemoryNode) -> None:
    here.load([Plain(1)])
    before = here.state_hash()
    with here.transaction(read="local") as tx:
        one = tx.get(Plain, 1)
        for use in (lambda: tx.create(Plain(2)), lambda: tx.delete(one)):
            with pytest.raises(RefusedError, match="local"):
                use()
    with pytest.raises(RefusedError, match="Plain 1 was changed"), here.transaction(read="local") as tx:
        tx.get(Plain, 1).text = "lost"
    assert here.state_hash() == before
