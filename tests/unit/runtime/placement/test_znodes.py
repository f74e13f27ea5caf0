"""What several write: each sees what the one before it wrote, and lost answers are looked into (R1)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from halog.adapters.memory.coordinator import MemoryCoordinator
from halog.errors import VersionError
from halog.metadata.cas import ATTEMPTS, put
from halog.ports import UnknownResult

pytestmark = pytest.mark.feature("R1")


def one_more(before: bytes | None) -> bytes:
    return b"%d" % (int(before or 0) + 1)


def at(coordinator: MemoryCoordinator) -> bytes | None:
    found = coordinator.get("p")
    return None if found is None else found.data


def beside(
    coordinator: MemoryCoordinator, monkeypatch: pytest.MonkeyPatch, does: Callable[[], None], times: int = 1
) -> None:
    """Somebody else does this between a look and the write behind it."""
    left = [does] * times

    def get(path: str) -> object:
        found = real(path)
        if left:
            left.pop()()
        return found

    real = coordinator.get
    monkeypatch.setattr(coordinator, "get", get)


def test_it_is_made_and_changed(coordinator: MemoryCoordinator) -> None:
    assert [put(coordinator, "p", one_more) for _ in range(3)] == [True] * 3
    assert at(coordinator) == b"3"


def test_what_is_to_stay_stays(coordinator: MemoryCoordinator) -> None:
    assert put(coordinator, "p", lambda before: None)
    assert at(coordinator) is None


def test_whoever_is_quicker_is_not_overwritten(coordinator: MemoryCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where nothing was, nor where something was changed."""
    beside(coordinator, monkeypatch, lambda: assert_(coordinator.create("p", b"10")))
    assert put(coordinator, "p", one_more)
    assert at(coordinator) == b"11"
    other = MemoryCoordinator(coordinator.tree)
    other.connect(lambda state: None)
    beside(coordinator, monkeypatch, lambda: assert_(put(other, "p", one_more)), 2)
    assert put(coordinator, "p", one_more)
    assert at(coordinator) == b"14"


def assert_(done: bool) -> None:
    assert done


@pytest.mark.parametrize("error", [VersionError("another version"), UnknownResult("no answer")])
def test_it_is_given_up_in_the_end(
    coordinator: MemoryCoordinator, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    tried: list[bytes] = []

    def refuse(path: str, data: bytes, version: int) -> None:
        tried.append(data)
        raise error

    coordinator.create("p", b"1")
    monkeypatch.setattr(coordinator, "set", refuse)
    assert not put(coordinator, "p", one_more)
    assert tried == [b"2"] * ATTEMPTS
    assert at(coordinator) == b"1"
