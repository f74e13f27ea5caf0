"""What is asked for, and told, about a restore: by whom, whether it is refused, what a late word changes (M2)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from halog.adapters.memory.coordinator import MemoryCoordinator, MemoryTree
from halog.core.sites.mirror import Checkpoint
from halog.errors import CoordinatorError, RefusedError, VersionError
from halog.metadata import mirror_starts as places, restore_requests as restores
from halog.metadata.restore_requests import DONE, FAILED, MERGING, READING, ClosedBranch, RestoreRequest, restore_of
from halog.ports import Coordinator
from halog.runtime.merge.merge_paces import MergePaces
from halog.runtime.merge.restore_command import undo
from halog.runtime.node.paces import Paces
from halog.runtime.sites.mirror_link import MirrorLink
from halog.testing.cluster import Cluster, wait_until
from tests.unit.core.sites.site_model import Site
from tests.unit.sites.model import registry
from tests.unit.sites.test_restoring import coordinator, mend, note, noted
from tests.unit.sites.test_restoring_hindered import part, reuniting
from tests.unit.sites.test_restoring_reviewed import ended
from tests.unit.sites.test_switching import NAMES, switching
from tests.unit.sites.two import east, fly, level, stands, west

pytestmark = pytest.mark.feature("M2", "X3")
__all__ = ["east", "west"]

ASKED = RestoreRequest(site="west", by="test", at_ms=7)


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    registry.triggers.clear()


@pytest.fixture
def alone() -> Coordinator:
    made = MemoryCoordinator(MemoryTree())
    made.connect(lambda state: None)
    return made


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def begun(coordinator: Coordinator, tries: int, phase: str = READING) -> RestoreRequest:
    one = msgspec.structs.replace(ASKED, tries=tries, phase=phase)
    restores.progress(coordinator, "p", one)
    return one


def test_a_node_that_was_replaced_says_nothing_any_more(alone: Coordinator) -> None:
    """It hears late that its epoch is over: the restore that the next active node has begun goes on."""
    restores.ask(alone, "p", ASKED)
    begun(alone, 1)
    now = begun(alone, 2)
    begun(alone, 1, FAILED)
    assert restore_of(alone, "p") == now
    done = begun(alone, 2, DONE)
    begun(alone, 3, MERGING)
    assert restore_of(alone, "p") == done


def test_the_same_is_asked_for_twice_and_another_is_refused_until_it_has_ended(alone: Coordinator) -> None:
    other, elsewhere = msgspec.structs.replace(ASKED, two_way=True), msgspec.structs.replace(ASKED, active="east-B")
    restores.check(alone, "p", other)
    restores.ask(alone, "p", ASKED)
    now = begun(alone, 1)
    restores.check(alone, "p", ASKED)
    restores.ask(alone, "p", msgspec.structs.replace(ASKED, at_ms=8))
    for refused in (restores.check, restores.ask):
        for one in (other, elsewhere):
            with pytest.raises(RefusedError, match="test has asked for another restore, which is reading"):
                refused(alone, "p", one)
    assert restore_of(alone, "p") == now
    begun(alone, 1, FAILED)
    restores.ask(alone, "p", other)
    assert restore_of(alone, "p") == other


def test_the_end_of_a_branch_that_cannot_be_told_is_an_error(
    alone: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a branch ends is what is merged: whoever believes that it was told gives the log away."""

    def refuse(path: str, data: bytes, version: int) -> None:
        raise VersionError(f"{path} has another version")

    closed = ClosedBranch(Checkpoint(3, Site.beginning("west")))
    restores.close(alone, "p", closed)
    monkeypatch.setattr(alone, "set", refuse)
    with pytest.raises(CoordinatorError, match="closed/p cannot be written"):
        restores.close(alone, "p", closed)


idle = pytest.mark.parametrize("paces", [Paces(merges=MergePaces(look_s=1000.0))])
"""Nobody begins with what is asked for: it goes on, and on."""


@idle
def test_a_restore_of_which_one_part_is_refused_closes_nothing(west: Cluster, east: Cluster) -> None:
    fly(west, *range(6))
    part(west, east)
    restores.ask(coordinator(east), NAMES[-1], RestoreRequest(site="west", by="somebody", at_ms=now_ms(), two_way=True))
    with pytest.raises(RefusedError, match="somebody has asked for another restore"):
        reuniting(west, east)
    assert [t.owner for t in west.tables().values()] == [""] * len(NAMES)
    assert [restore_of(coordinator(east), name) for name in NAMES[:-1]] == [None] * (len(NAMES) - 1)


@idle
def test_an_undo_of_which_one_part_is_refused_asks_for_nothing(west: Cluster) -> None:
    restores.ask(coordinator(west), NAMES[-1], RestoreRequest(site="east", by="somebody", at_ms=now_ms()))
    with pytest.raises(RefusedError, match="somebody has asked for another restore"):
        undo(coordinator(west), dict.fromkeys(NAMES, "ab"), 1, lambda name, now: None)
    assert [restore_of(coordinator(west), name) for name in NAMES[:-1]] == [None] * (len(NAMES) - 1)


def test_a_merge_whose_place_cannot_be_offered_is_done_all_the_same(
    west: Cluster, east: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise RefusedError("others trim the log, too")

    fly(west, *range(6))
    part(west, east)
    monkeypatch.setattr(places, "offer", refuse)
    assert set(reuniting(west, east).values()) == {DONE}
    level(west, east)
    assert noted(east) == noted(west)


def test_a_site_that_was_told_to_stop_does_not_follow_because_it_did_before_it_served(
    west: Cluster, east: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command died once it had closed the branches; asked again it is quicker than the node that gives them away,
    and what it finds was told in another time."""
    fly(west, *range(6))
    west.see(east)
    switching(east).promote(NAMES)
    east.settle()
    wait_until(lambda: all((s := stands(west, n)) and s.site == "east" for n in NAMES), "west mirrors east")
    level(west, east)
    west.cut()
    east.cut()
    switching(west).promote(NAMES, may_fork=True)
    west.settle()
    for number in range(6):
        note(west, number, "west"), note(east, number, "east")
    mend(west, east)
    go_on, give_away = threading.Event(), MirrorLink._give_away

    def later(self: MirrorLink, *args: Any) -> None:
        if go_on.is_set():
            give_away(self, *args)

    monkeypatch.setattr(MirrorLink, "_give_away", later)
    switching(west).demote(NAMES, "east")
    threading.Timer(0.5, go_on.set).start()
    assert set(reuniting(west, east).values()) == {DONE}
    level(west, east)
    assert noted(west) == noted(east) == dict.fromkeys(range(6), "east")


@pytest.mark.parametrize("tries", [0, 3])
def test_what_was_asked_for_long_ago_is_not_done_whether_or_not_somebody_began(
    west: Cluster, east: Cluster, tries: int
) -> None:
    fly(west, *range(6))
    for name in NAMES:
        restores.ask(coordinator(west), name, RestoreRequest(site="", by="test", at_ms=1, undo="00", tries=tries))
    found = ended(west)
    assert {r.phase for r in found.values()} == {FAILED}
    assert all("too long ago" in r.why for r in found.values())


@pytest.mark.parametrize("paces", [Paces(merges=MergePaces(look_s=0.01))])
def test_what_cannot_be_read_for_a_while_is_told_once(
    west: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The coordinator is away: every look would say so, of every partition."""
    looks: list[str] = []
    away = [True]

    def read(coordinator: Coordinator, partition: str) -> RestoreRequest | None:
        looks.append(partition)
        if away[0]:
            raise CoordinatorError("it is away")
        return real(coordinator, partition)

    def told() -> list[str]:
        return sorted(r.getMessage() for r in caplog.records if "it is away" in r.getMessage())

    real = restores.restore_of
    monkeypatch.setattr(restores, "restore_of", read)
    caplog.set_level(logging.INFO, "halog.merge")
    for name in NAMES:
        restores.ask(coordinator(west), name, RestoreRequest(site="", by="test", at_ms=now_ms(), undo="00"))
    wait_until(lambda: min(looks.count(name) for name in NAMES) >= 5, "it is looked at")
    assert [text.split(":")[0] for text in told()] == [f"partition {name}" for name in NAMES]
    away[0] = False
    assert {r.phase for r in ended(west).values()} == {FAILED}
