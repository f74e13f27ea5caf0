"""Holds on a log: what was promised to be kept is kept, whoever trims at the same moment."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from halog.adapters.memory import MemoryCoordinator, MemoryTree
from halog.errors import ConfigError, NotFoundError, RefusedError
from halog.metadata import log_holds as retention
from halog.metadata.log_holds import Hold, allowed, floor, hold, hold_the_rest, holds, release
from halog.testing.cluster import Cluster
from tests.unit.counting import REGISTRY, Counter
from tests.unit.runtime.host.test_snapshots import on

pytestmark = pytest.mark.feature("N4", "X3")
FAR = 10**15


@pytest.fixture
def tree() -> MemoryTree:
    return MemoryTree()


Connect = Callable[[], MemoryCoordinator]


@pytest.fixture
def connect(tree: MemoryTree) -> Iterator[Connect]:
    made: list[MemoryCoordinator] = []

    def session() -> MemoryCoordinator:
        made.append(MemoryCoordinator(tree))
        made[-1].connect(lambda state: None)
        return made[-1]

    yield session
    for one in made:
        one.close()


def test_the_lowest_hold_bounds_the_trim(connect: Connect) -> None:
    c = connect()
    assert allowed(c, "p", 10) == 10
    hold(c, "p", "audit", Hold(20, FAR))
    hold(c, "p", "job", Hold(15, FAR))
    assert allowed(c, "p", 30) == 15
    assert floor(c, "p") == 15, "not where it was wanted"
    assert allowed(c, "q", 30) == 30, "another partition"
    release(c, "p", "job")
    assert allowed(c, "p", 30) == 20
    assert list(holds(c, "p")) == ["audit"]
    with pytest.raises(NotFoundError, match="held as job"):
        release(c, "p", "job")


def test_what_is_gone_cannot_be_held(connect: Connect) -> None:
    c = connect()
    allowed(c, "p", 10)
    with pytest.raises(RefusedError, match="trimmed up to 10"):
        hold(c, "p", "late", Hold(9, FAR))
    assert holds(c, "p") == {}
    assert hold_the_rest(c, "p", "restore-A", 3, "a copy is restored") == 10
    with pytest.raises(ConfigError, match="before it begins"):
        hold(c, "p", "late", Hold(10, 1))


def test_what_was_trimmed_before_anybody_kept_a_floor_cannot_be_held(connect: Connect) -> None:
    c = connect()
    with pytest.raises(RefusedError, match="trimmed up to 100"):
        hold(c, "p", "late", Hold(99, FAR), 100)
    assert holds(c, "p") == {}


def test_the_floor_never_goes_down(connect: Connect) -> None:
    """Somebody who was replaced long ago may still trim up to where he said."""
    c = connect()
    hold(c, "p", "audit", Hold(40, FAR))
    assert allowed(c, "p", 30) == 30
    assert allowed(c, "p", 200) == 40
    release(c, "p", "audit")
    deposed = connect()
    assert allowed(deposed, "p", 100) == 100, "and is stopped before it trims"
    assert allowed(c, "p", 60) == 60
    with pytest.raises(RefusedError, match="trimmed up to 100"):
        hold(c, "p", "late", Hold(90, FAR))


def test_a_refused_change_leaves_the_hold_as_it_was(connect: Connect) -> None:
    c = connect()
    allowed(c, "p", 100)
    hold(c, "p", "audit", Hold(150, FAR))
    with pytest.raises(RefusedError):
        hold(c, "p", "audit", Hold(50, FAR))
    assert holds(c, "p") == {"audit": Hold(150, FAR)}
    assert allowed(c, "p", 1_000) == 150
    trimmed = Interrupted(c, 5, lambda: retention._announce(c, "p", 170))  # behind its first look, in front of its last
    with pytest.raises(RefusedError):
        hold(trimmed, "p", "audit", Hold(160, FAR))  # type: ignore[arg-type]
    assert holds(c, "p") == {"audit": Hold(150, FAR)}


def test_a_hold_nobody_can_read_holds_everything(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    c = connect()
    c.create("holders/p/newer", b'{"offset": "five"}')
    with caplog.at_level(logging.WARNING, logger="halog"):
        assert allowed(c, "p", 30) == 0
    assert "the hold newer of p cannot be read" in caplog.text
    assert floor(c, "p") == 0
    release(c, "p", "newer")
    assert allowed(c, "p", 30) == 30


@pytest.mark.feature("U1")
def test_a_hold_of_a_later_version_holds_from_where_it_says(connect: Connect) -> None:
    c = connect()
    c.create("holders/p/newer", b'{"offset": 5, "later": "field"}')
    assert allowed(c, "p", 30) == 5


def test_a_hold_ends_with_its_time_and_that_is_said(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    c = connect()
    hold(c, "p", "audit", Hold(5, FAR))
    monkeypatch.setattr(retention, "now_ms", lambda: FAR)
    with caplog.at_level(logging.WARNING, logger="halog"):
        assert allowed(c, "p", 9) == 9
    assert [r.message for r in caplog.records] == ["the log of p is not held any more as audit: its time is over"]
    assert holds(c, "p") == {}


def test_a_hold_can_be_moved_and_prolonged(connect: Connect) -> None:
    c = connect()
    hold(c, "p", "job", Hold(5, FAR))
    hold(c, "p", "job", Hold(8, FAR + 1, "half-way"))
    assert holds(c, "p") == {"job": Hold(8, FAR + 1, "half-way")}
    assert allowed(c, "p", 20) == 8


def test_a_hold_prolonged_while_it_ends_stands(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    c = connect()
    hold(c, "p", "job", Hold(5, FAR))
    ended = retention._ended

    def prolonged_first(*args: Any) -> bool:
        found = c.get("holders/p/job")
        assert found is not None
        c.set("holders/p/job", found.data.replace(b"%d" % FAR, b"%d" % (2 * FAR)), found.version)
        return ended(*args)

    monkeypatch.setattr(retention, "_ended", prolonged_first)
    monkeypatch.setattr(retention, "now_ms", lambda: FAR)
    assert allowed(c, "p", 9) == 5
    assert holds(c, "p")["job"].until_ms == 2 * FAR


def test_a_hold_without_a_time_ends_with_the_session_that_made_it(connect: Connect) -> None:
    """Also if an earlier session of the same node had one under this name."""
    first, second, other = connect(), connect(), connect()
    hold(first, "p", "restore-A", Hold(5))
    hold(second, "p", "restore-A", Hold(6))
    first.close()
    assert allowed(other, "p", 9) == 6
    second.close()
    assert allowed(other, "p", 9) == 9


class Interrupted:
    """A coordinator in front of whose n-th call somebody else does something."""

    def __init__(self, inner: MemoryCoordinator, at: int, does: Callable[[], None]) -> None:
        self.inner = inner
        self.left = at
        self.does = does

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.inner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                self.does()
            return real(*args, **kwargs)

        return call


def held(coordinator: Any) -> bool:
    try:
        hold(coordinator, "p", "job", Hold(5, FAR))
    except RefusedError:
        return False
    return True


@pytest.mark.parametrize("at", range(1, 12))
@pytest.mark.parametrize("first", ["trim", "hold"])
def test_whoever_comes_in_between_either_is_kept_or_knows(connect: Connect, at: int, first: str) -> None:
    """Every point at which the one may interrupt the other: no hold is acknowledged and trimmed over."""
    one, other = connect(), connect()
    was_held: list[bool] = []
    trimmed: list[int] = []
    if first == "trim":
        trimmed.append(allowed(Interrupted(one, at, lambda: was_held.append(held(other))), "p", 9))  # type: ignore[arg-type]
    else:
        was_held.append(held(Interrupted(one, at, lambda: trimmed.append(allowed(other, "p", 9)))))
    assert not any(was_held) or max(trimmed, default=0) <= 5
    assert floor(one, "p") >= max(trimmed, default=0)
    assert bool(holds(one, "p")) is any(was_held)
    if not trimmed or trimmed == [5]:
        assert all(was_held) or floor(one, "p") > 5


@pytest.mark.parametrize("at", range(1, 14))
def test_a_hold_that_moves_while_the_log_is_trimmed_is_kept_or_is_as_it_was(connect: Connect, at: int) -> None:
    """Acknowledged at 7, moved to 5 while somebody trims up to 9: 7 stays held whatever becomes of the move."""
    one, other = connect(), connect()
    hold(one, "p", "job", Hold(7, FAR))
    trimmed: list[int] = []
    moved = True
    try:
        hold(Interrupted(one, at, lambda: trimmed.append(allowed(other, "p", 9))), "p", "job", Hold(5, FAR))  # type: ignore[arg-type]
    except RefusedError:
        moved = False
    assert max(trimmed, default=0) <= (5 if moved else 7)
    assert holds(one, "p")["job"].offset == (5 if moved else 7)
    assert allowed(other, "p", 9) <= 7


def test_a_snapshot_trims_no_further_than_what_is_held() -> None:
    with Cluster(1, partitions=1, sync_replicas=0, registry=REGISTRY) as cluster:
        client = cluster.client()
        taker, copy = on(cluster, "A")
        taker.policy = type(taker.policy)(1, 1_000_000, 0)
        with client.transaction() as tx:
            tx.create(Counter("c"))
        hold(taker.coordinator, "test-0", "audit", Hold(taker.log.bounds(copy.tp)[0], FAR))
        for _ in range(3):
            with client.transaction() as tx:
                tx.get(Counter, "c").value += 1
        first = taker.log.bounds(copy.tp)[0]
        taker.take(copy)
        assert taker.log.bounds(copy.tp)[0] == first
        release(taker.coordinator, "test-0", "audit")
        with client.transaction() as tx:
            tx.get(Counter, "c").value += 1
        taker.take(copy)
        assert taker.log.bounds(copy.tp)[0] > first
