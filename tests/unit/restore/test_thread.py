"""A log read backwards along the hashes: whatever lies between, and however it is cut (F4)."""

from __future__ import annotations

import msgspec
import pytest

from halog.core.ids import NO_TX, digest
from halog.core.log import records
from halog.core.log.records import EpochMerged
from halog.errors import LaterRecordError, LogError
from restore.branch import BranchReader, aborted, branch, read_on, side
from restore.divergence import Fork, Point
from restore.touched import TouchCounter
from restore.undoing import report_of
from tests.unit.core.sites.copy_model import TP, Copy
from tests.unit.core.sites.merge_kit import bring, land_all, merged
from tests.unit.core.sites.merge_model import World
from tests.unit.core.sites.site_model import Site
from tests.unit.restore.sides import piece as piece, side_of, thread_of

pytestmark = pytest.mark.feature("M2", "M3")


def busy() -> World:
    """West's log holds dead records of four epochs, and east's most records twice."""
    world = World(verdicts=-1)
    for n in range(4):
        world.commit("west", n)
        land_all(world, "west")
        world.mirror("east")
        world.look("east", -1, 99)
        world.mirror("east")
        world.look("east", -1, 99)
        world.commit("west", n)  # is on its way, and lands late
        world.elect("west", 1)
    land_all(world, "west")
    for session in [s for s in world.sites["east"].sessions for _ in range(2)]:
        world.sites["east"].land(session, 3)
    land_all(world, "east")
    return world


@pytest.mark.parametrize("at", ["west", "east"])
def test_only_what_counts_is_on_the_thread(at: str) -> None:
    world = busy()
    of = side_of(world, at)
    links = thread_of(of).back_to(lambda link: link.lsn == 1)
    assert [link.lsn for link in links] == [*range(1, of.state.lsn + 1)]
    assert links[-1].hash == of.state.hash
    copy, counted = Copy(Site.beginning(at)), []
    for offset, data in enumerate(world.sites[at].log.entries):
        before = copy.chain.state.lsn
        copy.read(offset, data)
        counted += [offset] if copy.chain.state.lsn > before else []
    if at == "west":
        assert [link.offset for link in links] == counted
    assert len(world.sites[at].log.entries) > len(links) + 4


LATER = bytes((records.VERSION + 1, 3)) + b"whatever it says"


@pytest.mark.feature("U1")
def test_a_record_of_a_later_version_on_the_thread_ends_the_reading_by_its_place() -> None:
    """It may be what the histories parted behind."""
    world = busy()
    of, entries = side_of(world, "west"), world.sites["west"].log.entries
    entries.append(LATER)
    behind = of._replace(state=msgspec.structs.replace(of.state, hash=digest(LATER)), end=len(entries))
    with pytest.raises(LaterRecordError, match=f"offset {len(entries) - 1}: a record of version 2 and kind 3"):
        thread_of(behind).back_to(lambda link: link.lsn == 1)
    with pytest.raises(LaterRecordError, match=f"offset {len(entries) - 1}: "):
        list(thread_of(behind).back())


@pytest.mark.feature("U1")
def test_a_record_of_a_later_version_ends_a_reading_forwards_by_its_place() -> None:
    world = busy()
    of, entries = side_of(world, "west"), world.sites["west"].log.entries
    entries.append(LATER)
    with pytest.raises(LaterRecordError, match=f"offset {len(entries) - 1}: a record of version 2 and kind 3"):
        read_on(of, len(entries))
    counter = TouchCounter(of.site, of.log, of.tp, of.state, of.end, (), 9)
    with pytest.raises(LaterRecordError, match=f"offset {len(entries) - 1}: "):
        list(counter.read_on(len(entries)))


def test_only_what_lies_behind_is_read(piece: int) -> None:
    world = busy()
    of, log = side_of(world, "west"), world.sites["west"].log
    last, log.read_so_far = of.state.lsn, 0
    assert [link.lsn for link in thread_of(of).back_to(lambda link: link.lsn == last)] == [last]
    assert log.read_so_far <= max(piece, 9)


def test_a_branch_is_read_and_hardly_anything_before_it() -> None:
    """What the fork says of how much lies behind it is believed first: before it may lie a bulk load, of megabytes."""
    world = World(verdicts=-1)
    for n in range(300):
        world.commit("west", n % 5)
        land_all(world, "west")
    of, log = side_of(world, "west"), world.sites["west"].log
    fork = Fork((Point(of.state.head[0], of.state.lsn - 5, None),), ())
    log.read_so_far = 0
    since = BranchReader(fork, beside=2)
    assert since.read(of) == 5
    assert log.read_so_far <= 5 + 4  # a piece of three more
    for n in range(3):
        world.commit("west", n)
        land_all(world, "west")
    log.read_so_far = 0
    assert since.read(side_of(world, "west")) == 3
    assert log.read_so_far <= 3 + 4


def test_a_log_that_begins_behind_what_is_asked_for_says_so() -> None:
    world = busy()
    of, log = side_of(world, "west"), world.sites["west"].log
    links = thread_of(of).back_to(lambda link: link.lsn == 3)
    log.begins = links[0].offset
    assert thread_of(of).back_to(lambda link: link.lsn == 3) == links
    with pytest.raises(LogError, match="trimmed"):
        thread_of(of).back_to(lambda link: link.lsn == 2)
    with pytest.raises(LogError, match="trimmed"):
        side("west", of.log, TP, Site.beginning("west"))


def test_a_merge_comes_with_its_parts_wherever_a_piece_begins() -> None:
    world = merged()
    bring(world, "east")
    for at in ("west", "east"):
        for more in range(4):
            of = side_of(world, at)
            *_, last = thread_of(of).back_to(lambda link: isinstance(link.record, EpochMerged))[:1]
            assert [part.index for part in last.parts] == [0, 1]
            assert digest(b"".join(digest(records.encode(p)) for p in last.parts)) == last.record.parts_hash  # type: ignore[union-attr]
            world.commit("west", more % 5)
            land_all(world, "west")
            bring(world, "east")


def test_a_merge_whose_parts_were_trimmed_says_so() -> None:
    world = merged()
    of, log = side_of(world, "west"), world.sites["west"].log
    log.begins = next(i for i, data in enumerate(log.entries) if records.is_part(data)) + 1
    with pytest.raises(LogError, match="trimmed"):
        thread_of(of).back_to(lambda link: isinstance(link.record, EpochMerged))


@pytest.mark.parametrize("at", ["west", "east"])
def test_an_older_merge_is_told_at_both_sites_behind_a_newer_one(at: str) -> None:
    """Behind a merge the overruled site's log goes on with that site's own branch; the hash names the other one."""
    world = merged()
    bring(world, "east")
    first = world.merges[0].name
    world.split("west")
    world.restore("west", 3, 9, 4)
    assert len(world.merges) == 2
    bring(world, "east")
    world.level()
    told = report_of(side_of(world, at), first)
    assert {e.found.key for e in told} == {b"a", b"b", b"c"} - {b"a"}


@pytest.mark.parametrize("at", ["west", "east"])
def test_a_third_site_has_the_branch_that_it_mirrored(at: str) -> None:
    """Its log is what the other one's is, and no branch of a merge ends with an epoch of its own."""
    world = merged()
    bring(world, "east")
    world.split("west")
    world.restore("west", 3, 9, 4)
    bring(world, "east")
    world.level()
    of = side_of(world, at)
    first = [thread_of(of._replace(site=site)).back_to(lambda link: link.lsn <= 1) for site in (at, "dr")]
    assert first[0] == first[1]
    assert sum(isinstance(link.record, EpochMerged) for link in first[0]) == 2


@pytest.mark.parametrize("at", ["west", "east"])
def test_a_third_site_s_branch_is_what_it_is_at_the_site_that_it_mirrored(at: str) -> None:
    """Behind a merge, too, which says what it changed on either of its branches."""
    world = World(verdicts=-1)
    for key in (0, 1, 2):
        world.commit("west", key)
    land_all(world, "west")
    bring(world, "east")
    place = Point(*world.sites["west"].state.head, None)
    world.alone("east")
    world.commit("west", 0), world.commit("east", 0), world.commit("east", 1), world.commit("west", 2)
    land_all(world, "west"), land_all(world, "east")
    world.close("east")
    world.merge("west")
    for _ in range(3):
        world.go_on("west", 9)
    world.give("east", 1)
    bring(world, "east")
    world.level()
    world.commit("west", 3)
    land_all(world, "west")
    bring(world, "east")
    of, fork = side_of(world, at), Fork((place,), ())
    found = branch(of, fork, aborted)
    third = branch(of._replace(site="dr"), fork, aborted)
    assert third == found
    assert any(len(committed.changes) for _, committed in third.committed if committed.tx == NO_TX)
