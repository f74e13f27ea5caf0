"""What readers are shown of a copy that changes: the moment at which they began."""

from __future__ import annotations

import gc
import weakref

import pytest

from halog.core.replica.moments import ENTRY, MomentReader, Moments, OverError

pytestmark = pytest.mark.feature("R5")

A, B = b"a", b"b"


class Objects:
    """A copy: what changes it, and its readers."""

    def __init__(self, limit: int = 1 << 20) -> None:
        self.moments: Moments[int] = Moments(limit)
        self.now: dict[bytes, int] = {}

    def change(self, *pairs: tuple[bytes, int | None]) -> None:
        self.moments.begin()
        for key, value in pairs:
            self.set(key, value)
        self.moments.end()

    def set(self, key: bytes, value: int | None) -> None:
        noting = self.moments.noting
        if noting is not None and key not in noting:
            self.moments.note(key, self.now.get(key), 0)
        if value is None:
            self.now.pop(key, None)
        else:
            self.now[key] = value

    def read(self) -> MomentReader[int]:
        assert self.moments.now is not None
        return MomentReader(self.moments.now)

    def seen(self, past: MomentReader[int], key: bytes) -> int | None:
        return past.of(key, self.now.get(key))


def test_a_reader_sees_one_moment_whatever_comes() -> None:
    objects = Objects()
    objects.change((A, 1), (B, 1))
    first = objects.read()
    assert objects.seen(first, A) == 1
    objects.change((A, 2), (B, 2))
    second = objects.read()
    objects.change((A, None))
    objects.change((A, 3), (B, 3))
    third = objects.read()
    assert [objects.seen(first, key) for key in (A, B)] == [1, 1]
    assert [objects.seen(second, key) for key in (A, B)] == [2, 2]
    assert [objects.seen(third, key) for key in (A, B)] == [3, 3]


def test_what_came_later_is_not_there_and_what_went_is() -> None:
    objects = Objects()
    objects.change((A, 1))
    past = objects.read()
    objects.change((A, None), (B, 1))
    assert objects.seen(past, B) is None
    assert objects.seen(past, A) == 1
    assert past.changed() == {A: 1, B: None}


def test_whoever_comes_while_objects_change_sees_none_of_it_if_somebody_reads() -> None:
    objects = Objects()
    objects.change((A, 1), (B, 1))
    reader = objects.read()
    objects.moments.begin()
    objects.set(A, 2)
    late = objects.read()
    assert objects.seen(late, A) == 1
    objects.set(B, 2)
    objects.moments.end()
    assert [objects.seen(late, key) for key in (A, B)] == [1, 1]
    assert [objects.seen(reader, key) for key in (A, B)] == [1, 1]


def test_where_nobody_reads_nothing_is_written_down_and_who_comes_waits() -> None:
    objects = Objects()
    objects.moments.begin()
    assert objects.moments.noting is None
    assert objects.moments.now is None
    objects.moments.end()
    assert objects.moments.now is not None


def test_changes_within_a_change_are_one() -> None:
    objects = Objects()
    past = objects.read()
    objects.moments.begin()
    objects.change((A, 1))
    late = objects.read()
    objects.change((B, 1))
    objects.moments.end()
    for one in (past, late):
        assert [objects.seen(one, key) for key in (A, B)] == [None, None]


def test_moments_that_nobody_can_ask_for_are_freed() -> None:
    objects = Objects()
    past = objects.read()
    began = weakref.ref(past._at)
    for n in range(1_000):
        objects.change((A, n))
    assert objects.seen(past, A) is None
    gc.collect()
    assert began() is None, "the reader has passed it"
    kept = weakref.ref(past._at)
    del past
    objects.change((A, 0))
    objects.change((A, 0))
    assert kept() is None
    assert objects.moments.noting is None


def test_a_long_chain_goes_at_once() -> None:
    objects = Objects(1 << 30)
    past = objects.read()
    for n in range(100_000):
        objects.change((A, n))
    del past
    objects.change((A, -1))
    assert objects.moments.now is not None


def test_too_much_is_let_go_of_and_readers_of_it_are_told() -> None:
    objects = Objects(limit=10 * ENTRY)
    idle, other = objects.read(), objects.read()
    for n in range(11):
        objects.change((A, n))
    newer = objects.read()
    for past in (idle, other):
        with pytest.raises(OverError):
            objects.seen(past, B)
        with pytest.raises(OverError):
            past.changed()
    objects.change((A, 99))
    assert objects.seen(newer, A) == 10


def test_a_reader_that_follows_holds_no_more_than_that_either() -> None:
    objects = Objects(limit=1 << 30)
    assert objects.moments.now is not None
    past = MomentReader(objects.moments.now, 10 * ENTRY)
    with pytest.raises(OverError):
        for n in range(12):
            objects.change((A, n))
            assert objects.seen(past, A) is None


def test_readers_of_a_copy_that_is_given_up_are_told() -> None:
    objects = Objects()
    past = objects.read()
    objects.change((A, 1))
    now = objects.read()
    objects.moments.lose()
    late = objects.read()
    """Found just before it was given up."""
    for one in (past, now, late):
        with pytest.raises(OverError):
            objects.seen(one, A)
    objects.moments.restart()
    assert objects.seen(objects.read(), A) == 1
