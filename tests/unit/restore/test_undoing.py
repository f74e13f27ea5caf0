"""Undoing a merge: where nobody has changed since what it made, the source's state stands again (M2)."""

from __future__ import annotations

import pytest

from halog.core.ids import ABSENT
from halog.core.log import records
from halog.core.log.records import CREATE, Change, Merged
from halog.errors import RefusedError
from restore import thread as thread_module
from restore.merge import Difference, Instance, Kind, State
from restore.plan import Choice
from restore.report import entry, merged as told_of
from restore.thread import Thread
from restore.undoing import UNDONE, Undoing, report_of, undone
from tests.unit.core.sites.copy_model import Held, MemoryLog
from tests.unit.core.sites.merge_kit import bring, forked, land_all
from tests.unit.core.sites.merge_model import World
from tests.unit.restore.sides import side_of

pytestmark = pytest.mark.feature("M2")

A, B, C = (Instance(r * 24, b"1") for r in (b"a", b"b", b"c"))
LSN = 7
CASES: dict[str, tuple[State, State, State, State | str]] = {
    # name: the source's state, the merge's, what is there now, and what undoing puts there ("": nothing is done)
    "taken over": (A, Instance(A.ref, b"2"), Instance(A.ref, b"2"), A),
    "added": (None, B, B, None),
    "deleted": (A, None, None, A),
    "replaced": (A, B, B, A),
    "kept": (A, A, A, ""),
    "changed since": (A, B, C, "changed"),
    "deleted since": (A, B, None, "changed"),
    "put back by hand": (A, B, A, ""),
    "of a source that is not known": (Instance(A.ref, None), B, B, "changed"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_undoing_puts_there(case: str) -> None:
    source, then, now, expected = CASES[case]
    told = entry(told_of(Choice(Difference(b"k", Kind.STATE_CONFLICT, A, source, B, (), ()), None, then), ""))
    found = undone([told], lambda key: LSN, lambda key: None if now is None else Held(now.ref, now.value or b"", LSN))
    if isinstance(expected, str):
        assert found.merged == []
        assert found.numbers["changed_since"] == (expected == "changed")
        return
    (made,) = found.merged
    assert made == Merged(
        b"k", b"" if expected is None else expected.ref, None if expected is None else expected.value, made.evidence
    )
    again = entry(made)
    assert (again.then, again.found.source, again.verdict) == (source, now, UNDONE)
    assert found.numbers == {"objects": 1, "changed": 1, "changed_since": 0}


def test_what_was_changed_since_and_is_as_it_was_is_left_as_it_is() -> None:
    told = entry(told_of(Choice(Difference(b"k", Kind.STATE_CONFLICT, A, A, B, (), ()), None, B), ""))
    found = undone([told], lambda key: LSN, lambda key: Held(B.ref, B.value or b"", LSN + 2))
    assert found.merged == []
    assert found.numbers == {"objects": 1, "changed": 0, "changed_since": 1}


def test_a_merge_that_is_undone_and_done_again() -> None:
    """Undoing is itself a merge that can be undone."""
    world = forked()
    world.restore("west", 3, 9, 4)
    west = world.sites["west"]
    made = dict(west.copy.objects)
    for expected in ({b"a", b"b"}, {b"a", b"b", b"c"}):
        name = world.merges[-1].name if len(world.merges) == 1 else b"undo" + world.merges[0].name
        read = Undoing(name)
        read.read(side_of(world, "west"))
        found = undone(read.report, read.left, west.copy.objects.get)
        assert [m.key for m in found.merged] == [b"c"]
        world.merges.append(world.merges[-1].__class__("west", name, 0))
        world.undo("west")
        for _ in range(3):
            world.go_on("west", 9)
        bring(world, "east")
        world.level()
        assert set(west.copy.objects) == expected
    assert west.copy.objects[b"c"].value == made[b"c"].value


def united() -> World:
    """West has merged what east had, and both go on."""
    world = forked()
    world.restore("west", 3, 9, 4)
    assert len(world.merges) == 1
    return world


def undo(world: World, steps: int = 3) -> None:
    """At west."""
    world.undo("west")
    for _ in range(steps):
        world.go_on("west", 9)


def test_a_merge_is_undone_once_though_what_it_made_was_put_back_since() -> None:
    """The second undo would take what somebody has done since for the merge's doing."""
    world = united()
    west = world.sites["west"]
    merged_c = west.copy.objects[b"c"]
    undo(world)
    assert b"c" not in west.copy.objects
    undo(world)
    world.elect("west", 1)
    assert west.writer is not None
    west.writer.commit(b"\xff" * 16, (Change(CREATE, merged_c.ref, b"c", merged_c.value, ABSENT),))
    land_all(world, "west")
    undo(world)
    assert west.copy.objects[b"c"].value == merged_c.value
    assert [m.merge for m in west.copy.merges].count(b"undo" + world.merges[0].name) == 1


def taken_away() -> World:
    """The west has merged what the east had done: it had deleted a."""
    world = forked()
    world.commit("east", 0, gone=0)
    land_all(world, "east")
    world.restore("west", 3, 9, 4)
    assert set(world.sites["west"].copy.objects) == {b"b", b"c"}
    return world


def come_and_gone(world: World, *, voted: bool = False) -> None:
    """Somebody creates a at the west, and deletes it again: alone, or with other partitions."""
    writer = world.sites["west"].writer
    assert writer is not None
    world.commit("west", 0)
    while b"a" in writer.objects:
        if voted:
            world.prepare("west", 0, gone=0)
            world.decide("west")
        else:
            world.commit("west", 0, gone=0)
    land_all(world, "west")
    assert b"a" not in world.sites["west"].copy.objects


@pytest.mark.parametrize("voted", [False, True])
def test_what_was_created_and_deleted_since_is_left_as_it_is(voted: bool) -> None:
    """Where the merge left nothing: who deleted it once more means it to be gone."""
    world = taken_away()
    come_and_gone(world, voted=voted)
    undo(world)
    assert set(world.sites["west"].copy.objects) == {b"b"}


def test_where_the_merge_left_nothing_and_nobody_was_since_the_source_s_object_stands_again() -> None:
    world = taken_away()
    world.commit("west", 1), world.commit("west", 1, gone=0)
    land_all(world, "west")
    undo(world)
    assert set(world.sites["west"].copy.objects) == {b"a"}


def test_what_was_deleted_while_the_undo_was_begun_is_left_as_it_is_too() -> None:
    """It is read on, and only what is new of it."""
    world = taken_away()
    found = Undoing(world.merges[0].name)
    found.read(side_of(world, "west"))
    assert found.left(b"a") != ABSENT
    come_and_gone(world)
    found.read(side_of(world, "west"))
    assert found.left(b"a") == ABSENT
    made = undone(found.report, found.left, world.sites["west"].copy.objects.get)
    assert [m.key for m in made.merged] == [b"c"]
    assert made.numbers == {"objects": 2, "changed": 1, "changed_since": 1}


def test_what_came_and_went_on_a_branch_that_was_merged_in_since_is_left_as_it_is() -> None:
    """Its commits are in no log but that branch's; the later merge's report tells of them."""
    world = taken_away()
    bring(world, "east")
    world.alone("east")
    for gone in (1, 0):
        world.commit("east", 0, gone=gone)
    world.commit("west", 1)
    land_all(world, "east"), land_all(world, "west")
    world.restore("west", 3, 9, 4)
    found = Undoing(world.merges[0].name)
    found.read(side_of(world, "west"))
    made = undone(found.report, found.left, world.sites["west"].copy.objects.get)
    assert [m.key for m in made.merged] == [b"c"]


def test_an_undo_that_was_begun_before_another_one_finds_it() -> None:
    """Both were asked for at once: the second one has read the history while nothing was undone in it."""
    world = united()
    name = world.merges[0].name
    late = Undoing(name)
    late.read(side_of(world, "west"))
    assert late.put_back is None
    undo(world)
    late.read(side_of(world, "west"))
    assert late.put_back == 1
    assert late.report == report_of(side_of(world, "west"), name)


@pytest.mark.parametrize("source", ["west", "east"])
def test_an_undo_on_a_branch_that_was_merged_in_is_known_at_both_sites(source: str) -> None:
    """Its record is in the log of one site; the other one has what the merge of both branches made of it."""
    world = united()
    bring(world, "east")
    merge = world.merges[0].name
    world.alone("east")
    undo(world)
    world.commit("west", 0), world.commit("east", 1)
    land_all(world, "west"), land_all(world, "east")
    assert Undoing(merge).undoes not in side_of(world, "east").state.undoings
    world.restore(source, 3, 9, 9)
    world.level(), world.readers()
    for site in ("west", "east"):
        found = Undoing(merge)
        found.read(side_of(world, site))
        assert found.put_back == (1 if site == "west" else 0)
        log = world.sites[site].log
        log.begins = len(log.entries)
        found = Undoing(merge)
        found.read(side_of(world, site))
        assert found.put_back == 0, "known, though what it did is trimmed"


@pytest.mark.parametrize("piece", [3, 2_000])
def test_a_history_that_grows_is_read_on_and_not_back_to_the_merge_again(
    piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the partition takes no commits nothing is read that could have been read before."""
    monkeypatch.setattr(thread_module, "PIECE", piece)
    world = united()
    log, found = world.sites["west"].log, Undoing(world.merges[0].name)
    for n in range(20):
        world.commit("west", n % 5)
        land_all(world, "west")
    assert found.read(side_of(world, "west")) >= 20
    assert found.read(side_of(world, "west")) == 0
    for n in range(2):
        world.commit("west", n)
    land_all(world, "west")
    log.read_so_far = 0
    assert found.read(side_of(world, "west")) == 2
    assert log.read_so_far <= 2 + piece
    assert found.put_back is None


def test_a_wrong_name_is_looked_for_without_keeping_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_module, "PIECE", 3)
    world = united()
    for n in range(40):
        world.commit("west", n % 5)
        land_all(world, "west")
        if n % 4 == 0:
            world.elect("west", 0)
    land_all(world, "west")
    kept = []

    def read(self: Thread) -> None:
        real(self)
        kept.append(len(self._known) + len(self._back) + sum(map(len, self._parts.values())))

    real = Thread._read
    monkeypatch.setattr(Thread, "_read", read)
    with pytest.raises(RefusedError, match="there is no merge 6e6f"):
        report_of(side_of(world, "west"), b"no")
    assert len(kept) > 10
    assert max(kept) <= 3 * 3


def test_behind_the_oldest_merge_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_module, "PIECE", 1)
    world = World(verdicts=-1)
    for n in range(30):
        world.commit("west", n % 5)
    land_all(world, "west")
    log: MemoryLog = world.sites["west"].log
    log.read_so_far = 0
    with pytest.raises(RefusedError, match="no merge"):
        report_of(side_of(world, "west"), b"nothing was ever merged")
    assert log.read_so_far == 0
    world.split("west")
    world.restore("west", 3, 9, 4)
    merge = next(i for i, data in enumerate(log.entries) if records.is_part(data))
    log.begins = merge
    with pytest.raises(RefusedError, match="in the history of site west"):
        report_of(side_of(world, "west"), b"nothing")


def test_a_merge_that_was_trimmed_is_refused_by_name() -> None:
    world = united()
    log = world.sites["west"].log
    world.commit("west", 0)
    land_all(world, "west")
    log.begins = len(log.entries) - 1
    with pytest.raises(RefusedError, match=rf"what was before offset {log.begins} is trimmed"):
        report_of(side_of(world, "west"), world.merges[0].name)


def test_what_is_no_merge_of_this_history_is_refused() -> None:
    world = forked()
    land_all(world, "west")
    with pytest.raises(RefusedError, match="no merge"):
        report_of(side_of(world, "west"), b"nothing")
