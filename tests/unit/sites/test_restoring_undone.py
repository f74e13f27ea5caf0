"""A merge is undone once: whoever asks again, and whoever had begun before (M2)."""

from __future__ import annotations

import copy
import threading
import time
from typing import Any

import pytest

from halog.core.log.records import EpochMerged, decode
from halog.metadata import log_holds as retention, restore_requests as restores
from halog.metadata.restore_requests import DONE, FAILED, NOTHING, READING, SETTLING, RestoreRequest
from halog.ports import TopicPartition
from halog.runtime.merge import restore_driver as restoring
from halog.runtime.merge.epoch_reopening import EpochReopening
from halog.testing.cluster import Cluster, wait_until
from restore.undoing import Undoing
from restore.undoings import undoing
from tests.unit.sites.model import Flight
from tests.unit.sites.test_restoring import coordinator, mend, note, restore, split
from tests.unit.sites.test_restoring_reviewed import ended, epochs
from tests.unit.sites.test_switching import NAMES, owners, switching
from tests.unit.sites.two import east, fly, level, west

pytestmark = pytest.mark.feature("M2")
__all__ = ["east", "west"]


def taken(west: Cluster, east: Cluster) -> dict[str, str]:
    """Flights that only west has changed, merged into what east has."""
    fly(west, *range(6))
    split(west, east)
    for number in range(6):
        note(west, number, "west")
    fly(east, *range(40, 46))
    mend(west, east)
    merges = {name: r.merge for name, r in restore(west, east).items()}
    assert notes(east) == {*[(n, "west") for n in range(6)], *[(n, "") for n in range(40, 46)]}
    return merges


def notes(cluster: Cluster) -> set[tuple[int, str]]:
    """As its active nodes have them."""
    with cluster.client().transaction() as tx:
        return {(f.number, f.note) for f in tx.extent(Flight)}


def undo(cluster: Cluster, merges: dict[str, str], **more: Any) -> dict[str, RestoreRequest]:
    now_ms = time.time_ns() // 1_000_000
    for name, merge in merges.items():
        one = RestoreRequest(site="", by="test", at_ms=now_ms, undo=merge, **more)
        restores.ask(coordinator(cluster), name, one)
    return ended(cluster)


def undone(cluster: Cluster, merges: dict[str, str]) -> dict[str, int]:
    """How often each was, by the logs."""
    found = dict.fromkeys(merges, 0)
    log = cluster.node(cluster.names[0]).runtime.adapters.log
    for name, table in cluster.tables().items():
        tp = TopicPartition(table.topic, table.index)
        for entry in log.read(tp, 0, log.bounds(tp)[1]):
            record = decode(entry.value)
            if isinstance(record, EpochMerged) and record.merge == undoing(bytes.fromhex(merges[name])):
                found[name] += 1
    return found


def test_a_second_undo_finds_the_first_and_leaves_alone_what_was_done_since(west: Cluster, east: Cluster) -> None:
    merges = taken(west, east)
    assert {r.phase for r in undo(east, merges).values()} == {DONE}
    assert {text for _, text in notes(east)} == {""}
    note(east, 1, "west")
    now, begun = notes(east), epochs(east)
    found = undo(east, merges)
    assert {(r.phase, r.why) for r in found.values()} == {(NOTHING, "it was undone before")}
    assert epochs(east) == begun, "it is known before anything is ended for it"
    assert notes(east) == now
    assert undone(east, merges) == dict.fromkeys(NAMES, 1)


def test_an_undo_that_another_node_was_quicker_with_is_not_made_twice(
    west: Cluster, east: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read the log before either ended its epoch. In between somebody puts back what the merge had made,
    which the late one would take for the merge's doing."""
    merges = taken(west, east)
    before, first, one_by_one = notes(east), set[str](), threading.Lock()

    def say(self: restoring._PartitionRestore, phase: str, why: str = "", **more: Any) -> None:
        if phase == SETTLING and self._copy.name not in first:
            first.add(self._copy.name)
            with one_by_one:
                quicker = copy.copy(self)
                quicker._say = lambda *said, **more: None  # type: ignore[method-assign]
                quicker._reopening = EpochReopening(self._host, self._copy, self._reopening._due)
                quicker._undo(Undoing(bytes.fromhex(merges[self._copy.name])))
                wait_until(lambda: self._copy.serving, "it serves again")
                for number, text in before - notes(east):
                    note(east, number, text)
        real(self, phase, why, **more)

    real = restoring._PartitionRestore._say
    monkeypatch.setattr(restoring._PartitionRestore, "_say", say)
    found = undo(east, merges)
    assert first == set(NAMES)
    assert {(r.phase, r.why) for r in found.values()} == {(NOTHING, "it was undone before")}
    assert undone(east, merges) == dict.fromkeys(NAMES, 1)
    assert notes(east) == before


def test_a_node_that_died_before_it_could_say_so_has_undone_it(west: Cluster, east: Cluster) -> None:
    merges = taken(west, east)
    assert {r.phase for r in undo(east, merges).values()} == {DONE}
    found = undo(east, merges, tries=1, phase=READING, begun=True)
    assert {(r.phase, r.why) for r in found.values()} == {(DONE, "it was undone before")}
    assert sum(r.result["changed"] for r in found.values()) == 6
    assert undone(east, merges) == dict.fromkeys(NAMES, 1)


def test_a_node_that_died_before_it_had_read_the_log_has_undone_nothing(west: Cluster, east: Cluster) -> None:
    """It was undone before anybody asked for this one."""
    merges = taken(west, east)
    assert {r.phase for r in undo(east, merges).values()} == {DONE}
    found = undo(east, merges, tries=1, phase=READING)
    assert {(r.phase, r.why) for r in found.values()} == {(NOTHING, "it was undone before")}
    assert not any(r.result for r in found.values())


def test_what_is_undone_by_default_is_the_last_merge_whatever_was_refused_since(west: Cluster, east: Cluster) -> None:
    merges = taken(west, east)

    def last() -> dict[str, str]:
        return {name: restores.last_merge(restores.restore_of(coordinator(east), name)) for name in NAMES}

    assert {restores.last_merge(restores.restore_of(coordinator(west), name)) for name in NAMES} == {""}
    assert last() == merges
    assert {r.phase for r in undo(east, dict.fromkeys(merges, "abcd")).values()} == {FAILED}
    assert last() == merges
    for phase in (DONE, NOTHING):
        assert {r.phase for r in undo(east, last()).values()} == {phase}
        assert last() == merges


def test_a_merge_that_was_undone_on_the_other_branch_is_not_undone_again(west: Cluster, east: Cluster) -> None:
    """Undone at east while the line was down and west went on, too: that is in the log of east alone."""
    merges = taken(west, east)
    level(west, east)
    wait_until(lambda: owners(west) == {"east"}, "west mirrors east")
    split(east, west)
    note(west, 0, "west later")
    assert {r.phase for r in undo(east, merges).values()} == {DONE}
    mend(west, east)
    assert {r.phase for r in restore(west, east).values()} == {DONE}
    level(west, east)
    switching(west).promote(NAMES)
    west.settle()
    note(west, 1, "west")
    now, begun = notes(west), epochs(west)
    assert (1, "west") in now
    found = undo(west, merges)
    assert {(r.phase, r.why) for r in found.values()} == {(NOTHING, "it was undone before")}
    assert (notes(west), epochs(west)) == (now, begun)


def test_what_was_undone_is_done_again_by_undoing_that(west: Cluster, east: Cluster) -> None:
    merges = taken(west, east)
    before = notes(east)
    undo(east, merges)
    again = {name: undoing(bytes.fromhex(merge)).hex() for name, merge in merges.items()}
    assert {r.phase for r in undo(east, again).values()} == {DONE}
    assert notes(east) == before


def test_what_was_changed_since_and_is_again_as_the_merge_left_it_is_kept(west: Cluster, east: Cluster) -> None:
    """Of an undoing that is undone, too."""
    merges = taken(west, east)
    note(east, 1, "between"), note(east, 1, "west")
    found = undo(east, merges)
    assert sum(r.result["changed_since"] for r in found.values() if r.result) == 1
    assert {n for n, text in notes(east) if text == "west"} == {1}
    note(east, 2, "between"), note(east, 2, "")
    undo(east, {name: undoing(bytes.fromhex(merge)).hex() for name, merge in merges.items()})
    assert {n for n, text in notes(east) if text == "west"} == {0, 1, 3, 4, 5}


def test_a_merge_that_was_undone_is_held_as_long_as_one_that_was_not(west: Cluster, east: Cluster) -> None:
    """What it found and decided is looked at afterwards, too."""
    merges = taken(west, east)
    before = held(east)
    undo(east, merges)
    assert held(east) == before


def held(cluster: Cluster) -> dict[str, int]:
    """Behind merges, from where on."""
    found = {name: retention.holds(coordinator(cluster), name) for name in NAMES}
    return {n: min(h.offset for k, h in f.items() if k.startswith("restore-")) for n, f in found.items()}


def test_a_wrong_name_is_refused_and_nothing_is_ended_for_it(west: Cluster, east: Cluster) -> None:
    merges = taken(west, east)
    begun = epochs(east)
    found = undo(east, dict.fromkeys(merges, "abcd"))
    assert {r.phase for r in found.values()} == {FAILED}
    assert {r.why for r in found.values()} == {"there is no merge abcd in the history of site east"}
    assert epochs(east) == begun


def test_a_merge_whose_undoing_came_and_went_with_another_one_is_undone(west: Cluster, east: Cluster) -> None:
    """East undid it while west went on; west brought that in with a merge, and undid that one: so it stands again."""
    merges = taken(west, east)
    level(west, east)
    wait_until(lambda: owners(west) == {"east"}, "west mirrors east")
    split(east, west)
    note(west, 0, "west later")
    note(west, 5, "between"), note(west, 5, "west")
    assert {r.phase for r in undo(east, merges).values()} == {DONE}
    mend(west, east)
    second = {name: r.merge for name, r in restore(east, west).items()}
    assert (1, "") in notes(west)
    found = undo(west, merges)
    assert {(r.phase, r.why) for r in found.values()} == {(NOTHING, "it was undone before")}
    assert {r.phase for r in undo(west, second).values()} <= {DONE, NOTHING}
    assert (1, "west") in notes(west)
    found = undo(west, merges)
    assert DONE in {r.phase for r in found.values()}
    assert {text for n, text in notes(west) if n in range(1, 5)} == {""}
    assert (5, "west") in notes(west), "changed since, which the other merge's report tells"
    level(west, east)
    found = undo(west, merges)
    assert {r.phase for r in found.values()} == {NOTHING}
