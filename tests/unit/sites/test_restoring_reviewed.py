"""Restores that cannot end well end all the same, and say so; those that nobody saw end are known (M2, M3)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import halog
from halog.errors import RefusedError
from halog.metadata import log_holds as retention, restore_requests as restores
from halog.metadata.restore_requests import DONE, FAILED, NOTHING, RestoreRequest, restore_of
from halog.runtime.merge import restore_driver as restoring
from halog.runtime.merge.epoch_reopening import EpochLost
from halog.runtime.merge.merge_paces import MergePaces
from halog.runtime.merge.restore_command import undo
from halog.runtime.node.paces import Paces
from halog.schema.registry import Registry
from halog.testing.cluster import Cluster, wait_until
from restore.compensation import Conflict, KeepInitiating, Verdict
from tests.unit.sites.model import Flight, registry
from tests.unit.sites.test_restoring import coordinator, mend, note, noted, restore, split
from tests.unit.sites.test_restoring_hindered import part, reuniting
from tests.unit.sites.test_switching import NAMES, switching
from tests.unit.sites.two import east, fly, level, stands, states, west

pytestmark = pytest.mark.feature("M2", "M3", "X3")
__all__ = ["east", "west"]


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    registry.triggers.clear()


def epochs(cluster: Cluster) -> int:
    return sum(table.epoch.number for table in cluster.tables().values())


def ended(cluster: Cluster, seconds: float = 20) -> dict[str, RestoreRequest]:
    def all_ended() -> dict[str, RestoreRequest] | None:
        found = {name: restore_of(coordinator(cluster), name) for name in NAMES}
        return {n: r for n, r in found.items() if r is not None} if all(r and r.ended for r in found.values()) else None

    found: dict[str, RestoreRequest] = wait_until(all_ended, "a restore goes on", seconds)
    return found


def test_large_objects_are_merged_and_what_is_not_kept_of_them_is_told_as_such(west: Cluster, east: Cluster) -> None:
    fly(west, *range(3))
    note(west, 1, "b" * 2_000_000)
    split(west, east)
    note(west, 1, "w" * 2_000_000)
    note(west, 2, "w" * 2_000_000), note(east, 2, "e" * 2_000_000)
    mend(west, east)
    before = epochs(east)
    assert {r.phase for r in restore(west, east).values()} <= {DONE, NOTHING}
    assert epochs(east) <= before + len(NAMES)
    level(west, east)
    assert {n: text[:1] for n, text in noted(east).items()} == {0: "", 1: "w", 2: "e"}
    assert noted(east) == noted(west)


def test_an_undo_of_what_was_never_merged_ends_nothing(west: Cluster, east: Cluster) -> None:
    fly(west, *range(6))
    part(west, east)
    reuniting(west, east)
    level(west, east)
    before = epochs(east)
    for name in NAMES:
        now_ms = time.time_ns() // 1_000_000
        restores.ask(coordinator(east), name, RestoreRequest(site="", by="test", at_ms=now_ms, undo="abcd"))
    assert {r.phase for r in ended(east).values()} == {FAILED}
    assert epochs(east) == before


def test_an_undo_is_refused_where_nobody_serves_and_what_was_asked_long_ago_is_not_done(
    west: Cluster, east: Cluster
) -> None:
    fly(west, *range(6))
    part(west, east)
    merges = {name: r.merge for name, r in restore(west, east).items()}
    level(west, east)
    with pytest.raises(RefusedError, match="served by site east"):
        undo(coordinator(west), merges, 1, lambda name, now: None)
    for name, merge in merges.items():
        restores.ask(coordinator(west), name, RestoreRequest(site="", by="test", at_ms=1, undo=merge))
    before = noted(east)
    wait_until(lambda: not any((s := stands(west, n)) and s.parted for n in NAMES), "west says that it follows")
    switching(west).promote(NAMES)
    west.settle()
    assert {r.phase for r in ended(west).values()} == {FAILED}
    assert noted(west) == before


@pytest.mark.parametrize("paces", [Paces(merges=MergePaces(slow_s=0.2))])
def test_triggers_that_are_too_slow_are_deferred(west: Cluster, east: Cluster) -> None:
    def trigger(conflict: Conflict) -> Verdict:
        time.sleep(0.25)
        return KeepInitiating()

    halog.on_conflict(Flight, registry=registry)(trigger)
    fly(west, *range(6))
    part(west, east)
    found = restore(west, east)
    assert {r.phase for r in found.values()} == {DONE}
    deferred = [r.result["deferred"] for r in found.values()]
    assert sum(deferred) == 6 - len(deferred)
    level(west, east)


@pytest.mark.parametrize("paces", [Paces(merges=MergePaces(hangs_s=1.0))])
def test_a_trigger_that_hangs_stops_its_conflict_only(west: Cluster, east: Cluster) -> None:
    """And those that it would be asked next; what it says when nobody waits for it any more is not heard."""
    goes_on, late = threading.Event(), list[Conflict]()

    def trigger(conflict: Conflict) -> Verdict:
        if conflict.key["number"] == 3:
            goes_on.wait(60)
            late.append(conflict)
        return KeepInitiating()

    halog.on_conflict(Flight, registry=registry)(trigger)
    fly(west, *range(6))
    part(west, east)
    try:
        found = restore(west, east)
        assert {r.phase for r in found.values()} == {DONE}, found
        assert not late
        level(west, east)
        now = noted(east)
        deferred = [r.result["deferred"] for r in found.values()]
        assert sorted(deferred)[:2] == [0, 0], "other partitions' are asked"
        assert list(now.values()).count("east") == sum(deferred)
        assert now[3] == "east"
    finally:
        goes_on.set()
    wait_until(lambda: bool(late), "it comes to an end")
    note(east, 3, "later")
    level(west, east)
    assert noted(east) == now | {3: "later"}


def test_objects_of_a_class_that_only_the_initiating_site_has(west: Cluster, east: Cluster) -> None:
    fly(west, *range(6))
    split(west, east)
    newer = Registry()

    class Later:
        number: int
        note: str = ""
        gate: str = ""

    Later.__name__ = Later.__qualname__ = "Flight"
    Later.__annotations__ = {"number": int, "note": str, "gate": str}
    later: Any = halog.managed(key="number", registry=newer)(Later)
    west.registry = newer
    for name in west.names:
        west.kill(name)
        west.restart(name)
    west.settle()
    with west.node(west.names[0]).transaction() as tx:
        tx.get(later, 1).gate = "B7"
        tx.create(later(77, "new", "A1"))
    mend(west, east)
    assert {r.phase for r in restore(west, east).values()} <= {DONE, NOTHING}
    level(west, east)
    assert noted(east)[77] == "new"


def test_a_merge_that_nobody_could_tell_of_is_known_all_the_same(
    west: Cluster, east: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node dies behind the epoch that merged, and the other site follows by itself."""
    fly(west, *range(6))
    part(west, east)
    died: list[str] = []

    def die(self: restoring._PartitionRestore, phase: str, *more: Any, **fields: Any) -> None:
        if phase == DONE and self._copy.name not in died:
            died.append(self._copy.name)
            wait_until(lambda: states(west)[self._copy.name].owner == "east", "west follows")
            raise EpochLost  # as if the process were no more
        say(self, phase, *more, **fields)

    say = restoring._PartitionRestore._say
    monkeypatch.setattr(restoring._PartitionRestore, "_say", die)
    found = restore(west, east)
    assert {r.phase for r in found.values()} == {DONE}
    assert sorted(died) == NAMES
    for name, r in found.items():
        assert r.merge
        assert r.result["objects"] >= 1
        assert any(held.startswith("restore-") for held in retention.holds(coordinator(east), name))
