"""Bounded caches: the oldest go, and finding them stays cheap however many have gone before."""

from __future__ import annotations

import pytest

from halog.core.bounded import SHARE, make_room


class Steps(dict[int, int]):
    """Counts how often somebody started at its front."""

    starts = 0

    def __iter__(self):  # type: ignore[no-untyped-def]
        self.starts += 1
        return super().__iter__()


@pytest.mark.feature("D1")
def test_the_oldest_go_and_the_newest_stay() -> None:
    cache: dict[int, int] = {}
    for n in range(10_000):
        cache[n] = n
        make_room(cache, 160)
        assert 150 <= len(cache) <= 160 or n < 160
        assert n in cache
    assert list(cache) == list(range(10_000 - len(cache), 10_000))


@pytest.mark.feature("D1")
def test_the_front_is_looked_for_once_for_many() -> None:
    """One by one each would skip all that left before it: 100,000 objects in a full cache took minutes."""
    cache = Steps()
    for n in range(10_000):
        cache[n] = n
        make_room(cache, 1_600)
    assert cache.starts <= 10_000 // (1_600 // SHARE)


@pytest.mark.feature("D1")
@pytest.mark.parametrize("limit", [1, 2, 15])
def test_a_small_one_keeps_what_it_may(limit: int) -> None:
    cache: dict[int, int] = {}
    for n in range(100):
        cache[n] = n
        make_room(cache, limit)
    assert list(cache) == list(range(100 - limit, 100))
