"""Branches made of a log that is read backwards along the hashes: whatever lies between, and however it is cut (F4)."""

from __future__ import annotations

from typing import Any

import pytest

from halog.errors import DivergedError, LogError
from restore.branch import BranchReader, aborted, branch, read_on, side
from restore.branches import compared, completed, merged_at
from restore.divergence import Fork, compare, history_of
from restore.merge import Instance, Kind
from restore.thread import Thread
from tests.unit.core.sites.copy_model import TP, MemoryLog
from tests.unit.core.sites.merge_kit import bring, forked, land_all, merged, parted_again
from tests.unit.core.sites.merge_model import World
from tests.unit.core.sites.site_model import Site
from tests.unit.restore.sides import piece as piece, side_of

pytestmark = pytest.mark.feature("M2", "M3")


def read(world: World) -> Any:
    """What a merge of east into west would find."""
    west, east = side_of(world, "west"), side_of(world, "east")
    fork = compare(history_of(west.state), history_of(east.state))
    assert isinstance(fork, Fork)
    ours, theirs = branch(west, fork, aborted), branch(east, fork, aborted)
    return merged_at(fork, west, east, ours, theirs), ours, theirs


def test_a_branch_that_grows_is_read_on_and_not_anew(piece: int) -> None:
    world = forked()
    west, east = side_of(world, "west"), side_of(world, "east")
    fork = compare(history_of(west.state), history_of(east.state))
    assert isinstance(fork, Fork)
    since, log = BranchReader(fork), world.sites["west"].log
    assert since.read(west) == len(branch(west, fork, aborted).committed)
    for n in range(3):
        for more in range(piece if piece < 9 else 2):
            world.commit("west", more % 5)
            land_all(world, "west")
        world.elect("west", 1)
        land_all(world, "west")
        of = side_of(world, "west")
        log.read_so_far, before = 0, len(since.branch(west, aborted).committed)
        new = since.read(of)
        assert log.read_so_far <= new + 2 * piece
        assert since.read(of) == 0
        assert since.branch(of, aborted) == branch(of, fork, aborted), n
        assert len(since.branch(of, aborted).committed) == before + new


def test_what_was_prepared_before_anything_that_was_read_is_looked_for(piece: int) -> None:
    """Voted for before the fork, and decided only once the branch had been read."""
    world = World(verdicts=-1)
    world.prepare("west", 0, 1)
    land_all(world, "west")
    world.split("west")
    land_all(world, "west")
    land_all(world, "east")
    west, east = side_of(world, "west"), side_of(world, "east")
    fork = compare(history_of(west.state), history_of(east.state))
    assert isinstance(fork, Fork)
    since = BranchReader(fork)
    since.read(west)
    assert not since.branch(west._replace(in_doubt=()), aborted).decided
    world.decide("west")
    land_all(world, "west")
    of = side_of(world, "west")
    since.read(of)
    assert since.branch(of, aborted) == branch(of, fork, aborted)
    assert since.branch(of, aborted).decided


def test_histories_that_parted_behind_several_records_are_refused_by_name() -> None:
    fork = read(forked())[0].relation
    with pytest.raises(DivergedError, match=r"several records \(lsn \d of epoch 1 of west, \d"):
        BranchReader(Fork(fork.at * 2, ()))


def test_both_branches_are_what_is_behind_the_fork() -> None:
    found, ours, theirs = read(forked())
    assert {d.key: d.kind for d in found.keys} == {b"b": Kind.KEPT, b"c": Kind.INSTANCE_ADDED}
    assert [len(c.changes) for _, c in ours.committed] == [1]
    assert [len(c.changes) for _, c in theirs.committed] == [0, 1]
    assert ours.parted_at == theirs.parted_at
    assert [tx[7] for tx in (*ours.happened, *theirs.happened)] == [2, 3]


@pytest.mark.parametrize("decided_at", ["west", "east", "both"])
def test_a_vote_from_before_the_fork_counts_where_it_was_decided(decided_at: str) -> None:
    world = World(verdicts=-1)
    world.commit("west", 0)
    world.prepare("west", 1)
    for _ in range(4):
        world.commit("west", 2)
    land_all(world, "west")
    bring(world, "east")
    world.alone("east")
    for at in ("west", "east"):
        world.commit(at, 3 if at == "west" else 4)
        if decided_at in (at, "both"):
            world.decide(at)
        land_all(world, at)
    found, ours, theirs = read(world)
    tx = b"\0" * 7 + b"\2" + bytes(8)
    assert (ours.decided.get(tx), theirs.decided.get(tx)) == (decided_at != "east", decided_at != "west")
    kinds = {d.key: d.kind for d in found.keys}
    assert (
        kinds.get(b"b")
        is {
            "west": Kind.KEPT,
            "east": Kind.INSTANCE_ADDED,
            "both": Kind.SAME,
        }[decided_at]
    )


def test_two_votes_in_doubt_are_two_though_one_of_them_is_on_both_branches() -> None:
    """They stand nowhere but in their votes; where their branch ends is no place of theirs."""
    world = World(verdicts=-1)
    world.prepare("west", 0)
    land_all(world, "west")
    world.prepare("west", 1)
    land_all(world, "west")
    bring(world, "east")
    world.alone("east")
    world.commit("east", 4)
    land_all(world, "east")
    world.decide("west")
    land_all(world, "west")
    west, east = side_of(world, "west"), side_of(world, "east")
    found = compared(west, east, decide=lambda of, u: True)
    assert {d.key: d.kind for d in found.keys} == {
        b"a": Kind.SAME,
        b"b": Kind.INSTANCE_ADDED,
        b"e": Kind.INSTANCE_ADDED,
    }


def test_a_merge_that_was_undone_is_a_part_of_its_branch() -> None:
    world = merged()
    bring(world, "east")
    world.split("west")
    world.undo("west")
    for _ in range(3):
        world.go_on("west", 9)
    assert len(world.merges) == 2
    world.close("east")
    found, ours, _ = read(world)
    assert {d.key: d.kind for d in found.keys}[b"c"] is Kind.KEPT
    undo = next(c for _, c in ours.committed if c.changes and not any(c.tx))
    assert [c.key for c in undo.changes] == [b"c"]


def test_what_a_merge_left_as_it_was_is_settled_by_the_next_one_too() -> None:
    """The closed site went on alone, and never saw the first one: its objects are equal, and of other versions."""
    world = parted_again()
    found, ours, _ = read(world)
    assert {d.key for d in found.keys} == {b"b", b"c", b"d"}
    assert next(d for d in found.keys if d.key == b"c").kind is Kind.SAME
    assert len(ours.brought) == 2
    world.finish()


def test_what_a_merge_decided_and_the_closed_site_decided_again_is_one() -> None:
    """A vote was in doubt where east's branch was closed: west's merge commits it. East, told to go on alone from
    there, is in doubt still, and commits it, too."""
    world = forked()
    world.commit("east", 3)
    world.prepare("east", 4)
    land_all(world, "east")
    world.close("east", 0)
    assert [tx[7] for tx in world.sites["east"].copy.ledger.undecided] == [5]
    world.merge("west")
    for _ in range(3):
        world.go_on("west", 9)
    assert b"e" in world.sites["west"].copy.objects
    world.alone("east")
    world.decide("east")
    world.commit("east", 4)
    land_all(world, "east")
    found, _, theirs = read(world)
    told = next(d for d in found.keys if d.key == b"e")
    assert (told.kind, len(told.initiating_by)) == (Kind.TAKEN, 1)
    assert theirs.committed[1][0].origin is not None
    world.finish()
    world.accounted()


def test_a_side_that_was_read_before_is_read_on() -> None:
    world = forked()
    world.prepare("east", 3)
    land_all(world, "east")
    begin = side("east", world.sites["east"].log, TP, Site.beginning("east"))  # type: ignore[arg-type]
    assert begin == side_of(world, "east")
    world.decide("east")
    land_all(world, "east")
    now = read_on(begin, len(world.sites["east"].log.entries))
    assert now == side_of(world, "east")
    assert begin.in_doubt
    assert not now.in_doubt


def test_a_vote_that_is_gone_is_told() -> None:
    world = forked()
    of = side_of(world, "east")._replace(in_doubt=(1,))
    with pytest.raises(LogError, match="no vote at offset 1"):
        read_on(of, of.end)


# --- without before-images ---


def without_images() -> World:
    """Both sites have key 0, which east has changed since; west has key 1 alone."""
    world = World(verdicts=-1, keeps_before=False)
    world.commit("west", 0)
    land_all(world, "west")
    bring(world, "east")
    world.alone("east")
    world.commit("east", 0)
    world.commit("west", 1)
    land_all(world, "west"), land_all(world, "east")
    return world


def test_what_the_source_has_is_looked_up_where_no_before_image_tells() -> None:
    """Undone, or compared without a base, a merge would else put nothing in its place."""
    world = without_images()
    found, _, _ = read(world)
    objects = world.sites["west"].copy.objects
    (before,) = (d for d in found.keys if d.key == b"a")
    assert before.source == Instance(objects[b"a"].ref, None)
    (after,) = (d for d in completed(found, objects.get).keys if d.key == b"a")
    assert after.source == after.base == Instance(objects[b"a"].ref, b"v1")
    with pytest.raises(DivergedError, match="another object"):
        completed(found, lambda key: None)
    world.close("east")
    world.merge("west")
    for _ in range(3):
        world.go_on("west", 9)
    assert world.sites["west"].copy.objects[b"a"].value == b"v2"
    world.undo("west")
    for _ in range(3):
        world.go_on("west", 9)
    assert world.sites["west"].copy.objects[b"a"].value == b"v1"


def test_a_two_way_merge_that_keeps_the_source_deletes_nothing() -> None:
    world = without_images()
    world.close("east")
    world.merge("west", 0)
    for _ in range(3):
        world.go_on("west", 9)
    assert world.sites["west"].copy.objects[b"a"].value == b"v1"
    world.give("east", 1)
    bring(world, "east")
    world.level()


def test_an_empty_log_has_nothing_to_follow() -> None:
    with pytest.raises(LogError, match="trimmed"):
        Thread(MemoryLog(), TP, 0, b"x", "west").back_to(lambda link: True)  # type: ignore[arg-type]
