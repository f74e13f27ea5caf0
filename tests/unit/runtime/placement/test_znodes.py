"""What several write: each sees what the one before it wrote, and lost answers are looked into (R1)."""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec
import pytest

from halog.adapters.memory import Attempt, MemoryCoordinator
from halog.errors import CoordinatorError, VersionError
from halog.metadata.cas import ATTEMPTS, attempts, put, write
from halog.metadata.znode_format import ZnodeFormat
from halog.ports import UnknownResult

NUMBERS = ZnodeFormat(msgspec.json.Decoder(int).decode, "holds no number")

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


@pytest.mark.parametrize("error", [VersionError("another version"), UnknownResult("no answer")])
@pytest.mark.parametrize("synced", [True, False])
def test_each_attempt_behind_a_failure_sees_what_failed_it(
    coordinator: MemoryCoordinator, error: Exception, synced: bool
) -> None:
    """The server catches up between the failure and the next look, once the caller has noted the failure."""
    coordinator.create("p", b"1")
    done: list[str] = []

    def noted(what: str) -> None:
        def call(attempt: Attempt[object]) -> object:
            done.append(what)
            return attempt.land()

        coordinator.faults.add(what, call)

    noted("sync")
    noted("get")
    coordinator.faults.fail("set", error, times=2)
    for attempt in attempts(coordinator, "p", 5, synced=synced):
        if attempt.write(b"2"):
            break
        assert attempt.unanswered == isinstance(error, UnknownResult)
        done.append("failed")
    again = ["sync", "get"] if synced else ["get"]
    assert done == ["get", "failed", *again, "failed", *again]
    assert at(coordinator) == b"2"


def test_attempts_end_by_themselves(coordinator: MemoryCoordinator) -> None:
    coordinator.create("p", b"1")
    coordinator.faults.fail("set", UnknownResult("no answer"))
    assert [attempt.write(b"2") for attempt in attempts(coordinator, "p", 3)] == [False] * 3


def test_a_version_is_written_over_and_no_other(coordinator: MemoryCoordinator) -> None:
    version = write(coordinator, "p", b"1", -1)
    with pytest.raises(VersionError, match="somebody made p meanwhile"):
        write(coordinator, "p", b"2", -1)
    later = write(coordinator, "p", b"2", version)
    with pytest.raises(VersionError):
        write(coordinator, "p", b"3", version)
    assert (at(coordinator), later) == (b"2", version + 1)


def test_what_is_there_is_read_with_its_version(coordinator: MemoryCoordinator) -> None:
    assert NUMBERS.read_version(coordinator, "p") == (None, -1)
    coordinator.create("p", b"0")
    assert NUMBERS.read_version(coordinator, "p") == (0, 0)
    coordinator.set("p", b"7", 0)
    assert NUMBERS.read_version(coordinator, "p") == (7, 1)
    assert (NUMBERS.read(coordinator, "p"), NUMBERS.read(coordinator, "q")) == (7, None)


def test_a_znode_that_cannot_be_decoded_is_named(coordinator: MemoryCoordinator) -> None:
    coordinator.create("p", b"[]")
    with pytest.raises(CoordinatorError, match=r"^znode p holds no number: Expected `int`") as refused:
        NUMBERS.read(coordinator, "p", partition="p-0")
    assert refused.value.evidence == {"partition": "p-0"}


def test_it_may_count_as_absent_and_is_logged(coordinator: MemoryCoordinator, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("halog.test")
    coordinator.create("p", b"[]")
    with caplog.at_level(logging.WARNING, "halog.test"):
        assert NUMBERS.read_or_none(coordinator, "q", logger) is None
        assert not caplog.records
        assert NUMBERS.read_or_none(coordinator, "p", logger) is None
    assert [r.getMessage()[:24] for r in caplog.records] == ["znode p holds no number:"]
    coordinator.set("p", b"7", 0)
    assert NUMBERS.read_or_none(coordinator, "p", logger) == 7


@pytest.mark.parametrize("data", [b"", b"[", b'"text"', b'"\xff"'])
def test_what_is_no_value_is_told_by_its_znode(coordinator: MemoryCoordinator, data: bytes) -> None:
    coordinator.create("p", data)
    with pytest.raises(CoordinatorError, match="znode p holds no number: "):
        NUMBERS.read(coordinator, "p")
