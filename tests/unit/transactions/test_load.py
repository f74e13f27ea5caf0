"""Bulk load: everything once, in bounded commits, duplicates by name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from halog.backend import Work
from halog.errors import (
    DuplicateKeyError,
    FieldTypeError,
    OutcomeUnknownError,
    RecordTooLargeError,
    UnknownTypeError,
    UnreachableError,
)
from halog.testing.memory import MemoryCluster
from halog.testing.nodes import MemoryNode
from halog.transactions import load
from halog.transactions.gathered import ROOM_BYTES
from tests.unit.transactions.model import REGISTRY, Account, Aircraft, NeverDeclared, Plain

pytestmark = pytest.mark.feature("D1")


def ids(node: MemoryNode) -> list[int]:
    with node.transaction() as tx:
        return sorted(p.id for p in tx.extent(Plain))


def test_everything_is_loaded_once_and_can_be_used(spread: MemoryNode) -> None:
    done = spread.load([*(Plain(i, str(i)) for i in range(1000)), Account("ann", 1, tags=["a"])], batch=20)
    assert (done.objects, done.duplicates) == (1001, ())
    assert done.commits >= 50
    assert done.seconds > 0
    assert ids(spread) == list(range(1000))
    with spread.transaction() as tx:
        one = tx.get(Account, "ann", 1)
        assert tx.resolve(tx.ref(one)) is one
        one.tags.append("b")


def test_commits_are_bounded_by_count_and_bytes(here: MemoryNode) -> None:
    sizes: list[tuple[int, int]] = []

    def measure(partition: str, work: Work) -> None:
        sizes.append((len(work.writes), sum(len(w.value or b"") for w in work.writes)))

    here.backend.before_commit = measure
    here.load((Plain(i, "x" * 100_000) for i in range(40)), batch=500)
    here.load((Plain(1000 + i) for i in range(95)), batch=10)
    assert max(count for count, _ in sizes[-10:]) == 10
    assert all(size <= load.CHUNK_BYTES + 100_100 for _, size in sizes)
    assert len(sizes) == 4 + 10


def test_duplicates_are_named_and_the_rest_is_loaded(spread: MemoryNode) -> None:
    spread.load(Plain(i, "old") for i in (3, 5))
    with pytest.raises(DuplicateKeyError, match=r"2 objects were not loaded.*Plain [35].*other 8 were"):
        spread.load((Plain(i, "new") for i in range(10)), batch=3)
    assert ids(spread) == list(range(10))
    with spread.transaction() as tx:
        assert tx.get(Plain, 3).text == "old"


def test_duplicates_may_be_accepted(here: MemoryNode) -> None:
    done = here.load([Plain(1), Plain(2), Plain(1)], duplicates="skip")
    again = here.load([Plain(1), Plain(3)], duplicates="skip")
    assert (done.objects, done.duplicates) == (2, ("Plain 1",))
    assert (again.objects, again.duplicates, again.duplicate_count) == (1, ("Plain 1",), 1)


def test_only_a_bounded_part_of_an_endless_iterable_is_held(here: MemoryNode) -> None:
    taken = [0]

    def endless() -> Iterator[Plain]:
        while True:
            taken[0] += 1
            yield Plain(taken[0])

    def stop(partition: str, work: Work) -> None:
        if taken[0] > 3000:
            raise UnreachableError("enough")

    here.backend.before_commit = stop
    with pytest.raises(UnreachableError) as caught:
        here.load(endless(), batch=10)
    held = 10 * (2 * load.COMMITS_IN_FLIGHT + 2)
    assert taken[0] - caught.value.evidence["loaded"] <= held


def test_what_is_gathered_for_hundreds_of_partitions_is_bounded_over_all_of_them() -> None:
    """No partition has enough for a commit of its own yet."""
    taken, at_first = [0], list[int]()

    def endless() -> Iterator[Plain]:
        while True:
            taken[0] += 1
            yield Plain(taken[0], "x" * 5_000)

    def stop(partition: str, work: Work) -> None:
        at_first.append(taken[0])
        raise UnreachableError("enough")

    with MemoryNode(MemoryCluster(partitions=300), REGISTRY) as node:
        node.backend.before_commit = stop
        with pytest.raises(UnreachableError):
            node.load(endless())
    assert at_first[0] * 5_000 < ROOM_BYTES * 1.1


def test_the_fullest_goes_early_and_the_others_wait_until_they_have_enough(spread: MemoryNode) -> None:
    info = spread.space.info_of(Plain)

    def partition_of(i: int) -> str:
        return spread.backend.partition_of(info.name, info.keys_of(Plain(i))[1])

    commits: list[tuple[str, int]] = []
    spread.backend.before_commit = lambda partition, work: commits.append((partition, len(work.writes)))
    full = partition_of(0)
    others = [i for i in range(300) if partition_of(i) != full]
    large = [i for i in range(1000, 2000) if partition_of(i) == full][:50]
    done = load.load(
        spread.space, [*(Plain(i) for i in others), *(Plain(i, "x" * 10_000) for i in large)], room=200_000
    )
    assert done.objects == len(others) + len(large) == len(ids(spread))
    assert sorted(p for p, _ in commits if p != full) == sorted({partition_of(i) for i in others})
    early = [count for p, count in commits if p == full]
    assert (len(early), sum(early)) == (6, 50)  # the others keep about half of the room


@pytest.mark.parametrize(
    ("bad", "kind"),
    [(Plain(9, 9), FieldTypeError), (NeverDeclared(), UnknownTypeError), (3, UnknownTypeError)],  # type: ignore[arg-type]
)
def test_a_bad_object_stops_the_load_and_is_named(here: MemoryNode, bad: object, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"Plain|NeverDeclared|int"):
        here.load([Plain(1), bad, Plain(2)], batch=1)
    assert 2 not in ids(here)


def test_an_attribute_that_is_no_field_is_noticed(here: MemoryNode) -> None:
    stray = Aircraft("N1")
    stray.mile = 3  # type: ignore[attr-defined]
    with pytest.raises(FieldTypeError, match="mile"):
        here.load([stray])


def test_progress_is_told(here: MemoryNode) -> None:
    told: list[int] = []
    here.load((Plain(i) for i in range(100)), batch=10, progress=told.append)
    assert told == list(range(10, 101, 10))


@pytest.mark.parametrize("size", [5_000_000, 20_000_000])  # the active node refuses it; no frame would take it
def test_an_object_that_is_too_large_is_named_with_its_place_and_what_is_stored(here: MemoryNode, size: int) -> None:
    given = [*(Plain(i) for i in range(30)), Plain(500, "x" * size), Plain(501)]
    with pytest.raises(RecordTooLargeError, match=r"^the load ended with .*; its object 31: .*Plain 500 ") as caught:
        here.load(given, batch=10)
    told, stored = caught.value, ids(here)
    assert set(range(30)) <= set(stored)
    assert 500 not in stored
    assert (told.evidence["loaded"], told.evidence["number"]) == (len(stored), 31)
    assert told.message.startswith(f"the load ended with {len(stored)} objects stored (")
    assert "make it smaller" in told.message
    done = here.load([*given[:30], Plain(500, "x"), Plain(501)], duplicates="skip")
    assert done.objects == 32 - len(stored)


def test_an_object_that_cannot_be_encoded_is_told_with_its_place(here: MemoryNode) -> None:
    with pytest.raises(FieldTypeError, match=r"^the load ended with 10 objects stored .*; its object 13: ") as caught:
        here.load([*(Plain(i) for i in range(12)), Plain(99, 9)], batch=10)  # type: ignore[arg-type]
    assert caught.value.evidence["number"] == 13


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (UnreachableError("B is away; nothing was done"), "the load ended with 20 objects stored ("),
        (OutcomeUnknownError("commit unsettled"), "the load ended with at least 20 objects stored ("),
    ],
)
def test_what_stops_a_load_says_first_what_was_done(
    here: MemoryNode, error: UnreachableError | OutcomeUnknownError, told: str
) -> None:
    def stop(partition: str, work: Work) -> None:
        if any(w.value is not None and b"last" in w.value for w in work.writes):
            raise error

    here.backend.before_commit = stop
    with pytest.raises(type(error)) as caught:
        here.load([*(Plain(i) for i in range(20)), Plain(20, "last")], batch=10)
    assert caught.value.message.startswith(told)
    assert caught.value.message.endswith(f"; one of its commits: {error.args[0]}")
