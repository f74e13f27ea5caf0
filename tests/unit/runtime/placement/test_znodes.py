"""What several write: each sees what the one before it wrote, and lost answers are looked into (R1)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from halog.adapters.memory import Attempt, MemoryCoordinator
from halog.errors import VersionError
from halog.metadata.cas import ATTEMPTS, put
from halog.ports import UnknownResult

pytestmark = pytest.mark.feature("R1")


def one_more(before: bytes | None) -> bytes:
    return b"%d" % (int(before or 0) + 1)


def at(coordinator: MemoryCoordinator) -> bytes | None:
    found = coordinator.get("p")
    return None if found is None else found.data


def beside(coordinator: MemoryCoordinator, does: Callable[[], None], times: int = 1) -> None:
    """Somebody else does this between a look and the write behind it."""

    def get(attempt: Attempt[object]) -> object:
        found = attempt.land()
        does()
        return found

    coordinator.faults.add("get", get, times=times)


def test_it_is_made_and_changed(coordinator: MemoryCoordinator) -> None:
    assert [put(coordinator, "p", one_more) for _ in range(3)] == [True] * 3
    assert at(coordinator) == b"3"


def test_what_is_to_stay_stays(coordinator: MemoryCoordinator) -> None:
    assert put(coordinator, "p", lambda before: None)
    assert at(coordinator) is None


def test_whoever_is_quicker_is_not_overwritten(coordinator: MemoryCoordinator) -> None:
    """Neither where nothing was, nor where something was changed."""
    beside(coordinator, lambda: assert_(coordinator.create("p", b"10")))
    assert put(coordinator, "p", one_more)
    assert at(coordinator) == b"11"
    other = MemoryCoordinator(coordinator.tree)
    other.connect(lambda state: None)
    beside(coordinator, lambda: assert_(put(other, "p", one_more)), 2)
    assert put(coordinator, "p", one_more)
    assert at(coordinator) == b"14"


def assert_(done: bool) -> None:
    assert done


@pytest.mark.parametrize("error", [VersionError("another version"), UnknownResult("no answer")])
def test_it_is_given_up_in_the_end(coordinator: MemoryCoordinator, error: Exception) -> None:
    coordinator.create("p", b"1")
    refused = coordinator.faults.fail("set", error)
    assert not put(coordinator, "p", one_more)
    assert len(refused.met) == ATTEMPTS
    assert at(coordinator) == b"1"
