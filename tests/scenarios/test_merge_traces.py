"""Traces 20 to 26 of the protocol, where a merge is what they break; see `merging_world` for who does what,
and `test_mirror_traces` for the others."""

from __future__ import annotations

import pytest

from halog.core.ids import NO_HASH, EpochId, digest
from halog.core.log import records
from halog.core.log.records import Change, Commit, Header, Origin
from halog.core.sites.mirror import Checkpoint, Mirror
from halog.errors import DivergedError
from restore.branch import Side, aborted, branch
from restore.branches import compared, merged_at
from restore.divergence import Behind, Fork
from restore.merge import Kind
from restore.report import entry
from tests.unit.core.kit import LOG_ID
from tests.unit.core.sites.copy_model import TP, Copy, MemoryLog
from tests.unit.core.sites.merge_kit import bring, closed, forked, is_one, land_all, merged
from tests.unit.core.sites.merge_model import World
from tests.unit.core.sites.site_model import Site

pytestmark = pytest.mark.feature("M2", "X3")


def test_two_mirrors_bring_the_same_merge_in_turns() -> None:
    """Trace 20, of parts: each comes twice, and what makes them count does."""
    for order in ("0101", "0011", "0110", "1001"):
        world = merged()
        east = world.sites["east"]
        for _ in range(2):
            world.mirror("east")
            world.look("east", -1, 100)
        for which in order + "01" * 3:
            east.land(east.mirrors[int(which) - 2][1], 1)
        assert len(east.copy.merges) == 1
        is_one(world)


def test_without_all_of_its_parts_a_merge_counts_for_no_reader() -> None:
    """Trace 20 once more: of what two mirrors brought, the next record of the chain came between the parts; it is
    brought again. In the own log its writer has miscounted, and its epoch is void."""
    world = merged()
    west, east = world.sites["west"], world.sites["east"]
    parts = [data for data in west.log.entries if records.is_part(data)]
    session = east.session()
    for data in (parts[1], west.log.entries[-1]):
        session.put(data)
    east.land(session, 9)
    assert not east.copy.merges
    bring(world, "east")
    is_one(world)

    world = closed()
    begun = world.begun["west"].session
    assert begun is not None
    begun.todo.popleft()
    world.go_on("west", 9)
    assert world.sites["west"].state.void
    assert not world.sites["west"].copy.merges
    world.finish()
    assert len(world.merges) == 1


def test_a_mirror_that_dies_between_parts_is_followed_by_one_that_brings_all() -> None:
    """Trace 20 again: a checkpoint behind held parts would leave the merge without them."""
    world = merged()
    west, east = world.sites["west"], world.sites["east"]
    world.mirror("east")
    upto = next(i for i, data in enumerate(west.log.entries) if records.is_part(data)) + 1
    mirror, session = east.mirrors[-1]
    world.look("east", -1, upto - mirror.offset)
    assert mirror.checkpoint.offset < upto, "it would go on behind a part"
    world.stand("east", -1)
    assert not session.todo
    world.stop_mirror("east", -1)
    bring(world, "east")
    is_one(world)


def test_a_mirror_that_saw_them_part_at_a_merge_goes_on_before_its_parts() -> None:
    """The closed site went on alone for one record: there the other log has the merge. A later one is to follow it."""
    world = closed()
    world.go_on("west", 9)
    world.alone("east")
    west, east = world.sites["west"], world.sites["east"]
    assert east.state.lsn == west.state.lsn
    found = Mirror(Checkpoint(0, Site.beginning("west")), east.state)
    for offset, data in enumerate(west.log.entries):
        found.read(offset, data)
    assert found.parted is not None
    again = Mirror(found.checkpoint, east.state)
    world.commit("west", 3)
    land_all(world, "west")
    for offset in range(again.offset, len(west.log.entries)):
        again.read(offset, west.log.entries[offset])
    assert again.chain.state == west.state
    world.finish()


def test_a_held_start_and_held_parts_of_the_source_depose_nobody() -> None:
    """Trace 21, of a merge that came to nothing: it lands in the other log, behind and before the one that counts."""
    world = closed()
    dead = [data for data, _ in world.begun["west"].session.todo]  # type: ignore[union-attr]
    world.elect("west", 1)
    world.give_up("west")
    world.merge("west")
    for _ in range(3):
        world.go_on("west", 9)
    world.give("east", 1)
    east = world.sites["east"]
    late = east.session()
    for data in (*dead, west_start(world)):
        late.put(data)
    east.land(late, 1)
    bring(world, "east")
    east.land(late, 9)
    assert [m.merge for m in east.copy.merges] == [world.merges[0].name]
    is_one(world)
    world.commit("west", 0)
    land_all(world, "west")
    bring(world, "east")
    is_one(world)


def west_start(world: World) -> bytes:
    epoch = EpochId(99, "west", 99)
    return records.encode(records.EpochStarted(Header(LOG_ID, epoch), world.sites["west"].state.epoch, 0))


def test_what_the_overruled_site_still_sends_behind_its_turn_counts_nowhere() -> None:
    """Trace 22: a held append of the closed branch lands behind the comparison, and behind the merge."""
    world = forked()
    world.commit("east", 4)
    world.close("east", 0)
    late = world.sites["east"].writer
    assert late is not None
    assert late.session.todo
    world.merge("west")
    for _ in range(3):
        world.go_on("west", 9)
    world.give("east", 1)
    world.mirror("east")
    world.look("east", -1, 100)
    world.sites["east"].land(late.session, 9)
    bring(world, "east")
    assert not set(world.sites["east"].copy.objects) & {b"e"}
    is_one(world)


@pytest.mark.parametrize("landed", range(3))
@pytest.mark.parametrize("late", [False, True])
def test_the_active_node_dies_in_the_middle_of_writing_a_merge(landed: int, late: bool) -> None:
    """Trace 23: parts of an epoch that is over count never, wherever they land; the merge is made anew."""
    world = closed()
    west = world.sites["west"]
    session = world.begun["west"].session
    assert session is not None
    assert len(session.todo) == 3
    before = dict(west.copy.objects)
    west.land(session, landed)
    assert west.copy.objects == before, "a merge is partly visible"
    world.elect("west", 0)
    if late:  # before the next epoch opens
        west.land(session, 9)
    land_all(world, "west")
    assert west.copy.objects == before
    assert not west.copy.merges
    world.go_on("west", 9)
    world.merge("west")
    for _ in range(3):
        world.go_on("west", 9)
    world.give("east", 1)
    bring(world, "east")
    is_one(world)


def test_what_the_overruled_site_does_during_the_merge_is_acknowledged_to_nobody() -> None:
    """Trace 24: its active node was cut off, and goes on behind the record that its branch was closed with."""
    world = closed()
    east = world.sites["east"]
    known = set(east.acknowledged)
    assert east.writer is not None
    east.writer.done = False
    world.commit("east", 4)
    land_all(world, "east")
    assert east.acknowledged == known
    world.go_on("west", 9)
    world.give("east", 1)
    bring(world, "east")
    is_one(world)


def test_a_branch_that_is_not_closed_is_not_merged() -> None:
    """Trace 24 again: nothing may be read of it before, and nothing of one that was begun anew behind its end."""
    world = forked()
    world.merge("west")
    assert not world.begun
    world.close("east")
    world.sites["east"].owner = ""
    world.elect("east", 0)  # it may open yet
    world.merge("west")
    assert not world.begun


def test_a_vote_that_both_branches_committed_is_not_merged_with_itself() -> None:
    """Trace 25: cast before they parted, decided on each by itself. Nobody is asked, a counter counts it once; and both
    sites have one version of it afterwards."""
    world = World(verdicts=-1)
    world.commit("west", 0)
    world.prepare("west", 0)
    assert world.is_committed("west", b"\0" * 7 + b"\2" + bytes(8))
    land_all(world, "west")
    bring(world, "east")
    world.alone("east")
    world.commit("east", 3)
    for at in ("west", "east"):
        world.decide(at)
        land_all(world, at)
    world.close("east")
    world.merge("west")
    for _ in range(3):
        world.go_on("west", 9)
    (told,) = (m for m in map(entry, world.sites["west"].copy.merges[0].merged) if m.found.key == b"a")
    assert told.found.kind is Kind.SAME
    assert not told.found.source_by
    world.give("east", 1)
    bring(world, "east")
    world.level()


def history(epoch: EpochId, *commits: Commit) -> tuple[MemoryLog, Copy]:
    """A log of one site: epoch 1 of west, and behind that this one with these commits."""
    log, copy = MemoryLog(), Copy(Site.beginning("west"))
    one, prev, lsn = EpochId(1, "west", 1), NO_HASH, 0

    def add(record: records.Record) -> None:
        nonlocal prev, lsn
        data = records.encode(record)
        copy.read(log.append(data), data)
        if record.header.lsn:
            prev, lsn = digest(data), record.header.lsn

    add(records.EpochStarted(Header(LOG_ID, one), one, 0))
    add(records.EpochOpened(Header(LOG_ID, one, 1, prev), ()))
    add(records.EpochStarted(Header(LOG_ID, epoch), one, 1))
    recovered = [c for c in commits if c.origin is not None]
    for c in recovered:
        add(Commit(Header(LOG_ID, epoch, lsn + 1, prev, c.header.tx), c.changes, c.origin))
    add(records.EpochOpened(Header(LOG_ID, epoch, lsn + 1, prev), copy.chain.state.lineage))
    for c in commits:
        if c.origin is None:
            add(Commit(Header(LOG_ID, epoch, lsn + 1, prev, c.header.tx), c.changes))
    return log, copy


def commit(tx: bytes, key: bytes, origin: Origin | None = None) -> Commit:
    create = Change(records.CREATE, key * 24, key, b"v", -1)
    return Commit(Header(LOG_ID, EpochId(1, "west", 1), 0, NO_HASH, tx * 16), (create,), origin)


def test_two_branches_that_both_recovered_a_commit_are_not_merged_by_guess() -> None:
    """Trace 25, of commits: another site's nodes hold nothing but what is in the log, so that no two branches recover
    the same one. Did they all the same, the lineages would not tell where they parted: refused, never merged twice."""
    origin = Origin(EpochId(1, "west", 1), 2)
    sides = []
    for number, own in ((2, b"x"), (3, b"y")):
        log, copy = history(EpochId(number, "west", number), commit(b"s", b"s", origin), commit(own, own))
        sides.append(Side("west", log, TP, copy.chain.state, len(log.entries)))  # type: ignore[arg-type]
    with pytest.raises(DivergedError, match="other records"):
        compared(*sides)


def test_one_branch_recovered_what_the_epoch_before_had_sent() -> None:
    """Its records come before the one that opens its epoch; they are its own all the same."""
    log, copy = history(EpochId(2, "west", 2), commit(b"s", b"s", Origin(EpochId(1, "west", 1), 2)), commit(b"x", b"x"))
    other, there = history(EpochId(3, "west", 3), commit(b"y", b"y"))
    found = compared(
        *(
            Side("west", one, TP, c.chain.state, len(one.entries))  # type: ignore[arg-type]
            for one, c in ((log, copy), (other, there))
        )
    )
    assert isinstance(found.relation, Fork)
    assert found.fork_lsn == 1
    assert {d.key: d.kind for d in found.keys} == {
        b"s": Kind.KEPT,
        b"x": Kind.KEPT,
        b"y": Kind.INSTANCE_ADDED,
    }


def test_both_sites_are_asked_to_merge_at_once() -> None:
    """Trace 26: a closed site writes no merge, and one that merges is not closed, also while its epoch changes."""
    world = forked()
    for at in ("west", "east"):  # both were closed before, and went on
        world.close(at)
        world.alone(at)
        world.commit(at, 3 if at == "west" else 4)
        land_all(world, at)
    world.close("east")
    world.merge("west")
    world.go_on("west", 0)
    assert not world.sites["west"].state.opened, "west's merge is being made"
    world.alone("east")
    world.merge("east")
    assert "east" not in world.begun
    world.go_on("west", 0)
    world.go_on("west", 9)
    land_all(world, "east")
    world.finish()
    world.accounted()


def test_a_side_that_has_done_nothing_is_no_branch() -> None:
    """What a merge begins with where the source only stood still: the other one's whole branch is new."""
    world = World(verdicts=-1)
    world.commit("west", 0)
    land_all(world, "west")
    bring(world, "east")
    world.alone("east")
    world.commit("east", 2)
    land_all(world, "east")
    west, east = (
        Side(s.name, s.log, TP, s.state, len(s.log.entries))  # type: ignore[arg-type]
        for s in (world.sites["west"], world.sites["east"])
    )
    found = compared(west, east)
    assert isinstance(found.relation, Behind)
    fork = Fork((found.relation.at,), ())
    read = branch(east, fork, lambda side, u: False)
    world.elect("west", 1)
    now = west._replace(state=world.sites["west"].state, end=len(west.log.entries))  # type: ignore[attr-defined]
    assert [d.key for d in merged_at(fork, now, east, branch(now, fork, aborted), read).keys] == [b"c"]
