"""Who keeps commits that the log may lack, and who may be elected without them (R6: local NO_SYNC; E2, E3, E6)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from halog.core import effects as fx, events as ev
from halog.core.ids import Member, Position
from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.core.roles import Role
from halog.core.settings import Sync
from halog.core.state.tail import Tail
from halog.core.table.preference import NEVER
from halog.core.table.table import ASYNC, SYNC, Group, Replica
from halog.core.table.tell import Tell
from halog.events import UNLOGGED_AWAY, UNLOGGED_LOST
from tests.unit.core.kit import LOG_ID, SETTINGS, SITE, A, B, C, Core, Script, epoch, table, tx

pytestmark = pytest.mark.feature("R6", "P1")

NO_SYNC = msgspec.structs.replace(SETTINGS, local_sync=Sync.NO_SYNC)


def follower(me: Member = B, *, sync: Member = B, settings: Any = NO_SYNC, **t: Any) -> tuple[Core, Script]:
    """`me` follows A, which leads epoch 1 and waits for `sync`; lsn 1 opened it."""
    core, script = Core(me, settings=settings), Script()
    core.loaded()
    core.alive(*({A, B, C} - {me}))
    replicas = tuple(Replica(m.node, m.incarnation, SYNC if m == sync else ASYNC) for m in (B, C))
    core.step(ev.TableSeen(1, table(epoch=epoch(1), active=A, replicas=replicas, **t)))
    core.land(script.started(epoch(1)))
    core.land(script.opened(epoch(1)))
    core.step(ev.Taken())
    return core, script


def test_a_replica_keeps_what_it_holds_through_an_epoch_that_does_not_open() -> None:
    core, script = follower()
    core.step(ev.Pushed(A, epoch(1), (script.commit(epoch(1), 1), script.commit(epoch(1), 2))))
    core.land(Script().started(epoch(2)))
    assert not core.p.state.held.run
    assert core.p.state.position == Position(1, 3)
    core.step(ev.PositionAsked("C", 1))
    assert len(core.one(fx.TellPosition).tail or ()) == 2
    core.land(Script().started(epoch(3)))
    assert [r.header.lsn for r in core.p.state.tail.run] == [2, 3]


def test_it_forgets_what_an_epoch_opened_without() -> None:
    core, script = follower()
    opens = Script(script.lsn, script.prev)
    core.step(ev.Pushed(A, epoch(1), (script.commit(epoch(1), 1),)))
    core.land(Script().started(epoch(2)))
    core.land(opens.opened(epoch(2)))
    assert not core.p.state.tail.run


def test_where_commits_wait_for_the_log_nothing_is_kept_and_an_empty_tail_is_told() -> None:
    core, script = follower(settings=SETTINGS)
    core.step(ev.Pushed(A, epoch(1), (script.commit(epoch(1), 1),)))
    core.step(ev.PositionAsked("C", 1))
    assert core.one(fx.TellPosition).tail == ()
    core.land(Script().started(epoch(2)))
    assert not core.p.state.tail.run


def test_a_tail_that_no_frame_takes_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    core, script = follower()
    core.step(ev.Pushed(A, epoch(1), (script.commit(epoch(1), 1),)))
    monkeypatch.setattr("halog.core.election.positions.MAX_BYTES", 10)
    core.step(ev.PositionAsked("C", 1))
    assert core.one(fx.TellPosition).tail is None


def alone() -> Core:
    """C, which holds nothing, is the only one up; A and B may have something."""
    core, _ = follower(C)
    core.step(ev.AliveChanged(frozenset({C}), "A and B were killed"))
    return core


def test_a_candidate_without_a_holder_stands_back_and_says_so_once() -> None:
    core = alone()
    assert core.role is Role.FOLLOWING
    assert [(t.kind, t.cause) for t in core.of(Tell)] == [
        (UNLOGGED_AWAY, "A, B may have it in memory, and do not answer")
    ]
    assert not core.of(fx.SetTable)
    for _ in range(3):
        core.step(ev.Ticked(), after_ms=NO_SYNC.stand_back_ms)
        assert core.is_now(Role.FOLLOWING)
        assert not core.of(Tell)


def asks(core: Core, *up: Member) -> None:
    """It stands, and asks those who are up."""
    core.step(ev.AliveChanged(frozenset({core.p.state.me, *up}), "started"))
    core.step(ev.Ticked(), after_ms=NO_SYNC.stand_back_ms)
    assert core.is_now(Role.ELECTING)


def test_a_holder_that_answers_is_enough_and_leads_itself_if_it_may() -> None:
    core = alone()
    asks(core, B)
    core.step(ev.PositionTold("B", core.p.campaign.round, Position(1, 1), True, 2, ()))
    assert core.role is Role.FOLLOWING, "the holder goes first, even where it has nothing more"


def tail_of(script: Script, *numbers: int) -> tuple[bytes, ...]:
    return tuple(script.commit(epoch(1), n) for n in numbers)


def test_the_tail_of_a_node_that_never_leads_is_used() -> None:
    core, script = follower(C, group=Group(priorities={"B": NEVER}))
    core.step(ev.AliveChanged(frozenset({B, C}), "A was killed"))
    tail = tail_of(script, 1, 2)
    core.step(ev.PositionTold("B", core.p.campaign.round, Position(1, 3), False, 2, tail))
    assert core.role is Role.CLAIMING
    claim = core.one(fx.SetTable).table
    assert claim.sync_set == {A, B}, "the dead too: if this claimant dies, one of them is needed"
    core.cas_ok()
    core.land()
    assert [records.decode(e.data).header.tx for e in core.of(fx.Append)] == [tx(1), tx(2)]


@pytest.mark.parametrize(("incarnation", "tail"), [(9, ()), (2, None)], ids=["restarted", "leads, or too long"])
def test_who_answers_without_memory_or_still_leads_is_no_holder(incarnation: int, tail: tuple[bytes, ...]) -> None:
    core, _ = follower(C, group=Group(priorities={"B": NEVER}))
    core.step(ev.AliveChanged(frozenset({Member("B", incarnation), C}), "A was killed"))
    core.step(ev.PositionTold("B", core.p.campaign.round, Position(1, 1), False, incarnation, tail))
    assert core.role is Role.FOLLOWING
    assert core.one(Tell).kind is UNLOGGED_AWAY


def test_when_every_holder_was_started_anew_it_goes_on_and_says_what_that_means() -> None:
    core = alone()
    asks(core, Member("B", 9))
    core.step(ev.PositionTold("B", core.p.campaign.round, Position(1, 1), False, 9, ()))
    assert core.role is Role.FOLLOWING, "A may come back"
    asks(core, Member("A", 8), Member("B", 9))
    for m in (Member("A", 8), Member("B", 9)):
        core.step(ev.PositionTold(m.node, core.p.campaign.round, Position(1, 1), False, m.incarnation, ()))
    assert core.is_now(Role.CLAIMING)
    lost = core.one(Tell)
    assert (lost.kind, lost.cause) == (UNLOGGED_LOST, "A, B had it in memory, and were started anew")
    assert core.one(fx.SetTable).table.sync_set == frozenset()


def test_what_a_copy_left_on_its_disk_is_used_when_every_holder_was_started_anew() -> None:
    """They had stopped, since the log had lost its end; it was put back, and they were opened again. That nobody else
    held more nobody can say: it is told."""
    core, script = follower(C)
    core.step(ev.AliveChanged(frozenset({C}), "A and B were stopped"))
    asks(core, Member("A", 8), Member("B", 9))
    core.step(ev.PositionTold("A", core.p.campaign.round, Position(1, 1), False, 8, ()))
    core.step(ev.PositionTold("B", core.p.campaign.round, Position(1, 3), False, 9, tail_of(script, 1, 2)))
    assert core.role is Role.CLAIMING
    assert core.one(Tell).cause.endswith("started anew; lsn 2 to 3 a copy that stopped had left on its disk")
    core.cas_ok()
    core.land()
    assert [records.decode(e.data).header.tx for e in core.of(fx.Append)] == [tx(1), tx(2)]


def test_a_replica_that_stops_leaves_what_it_holds_on_its_disk() -> None:
    core, script = follower()
    pushed = tail_of(script, 1, 2)
    core.step(ev.Pushed(A, epoch(1), pushed))
    core.step(ev.LogLost("the log ends before what was read here"))
    assert core.one(fx.KeepTail).records == pushed


def test_where_commits_wait_for_the_log_one_that_stops_leaves_nothing() -> None:
    core, script = follower(settings=SETTINGS)
    core.step(ev.Pushed(A, epoch(1), tail_of(script, 1)))
    core.step(ev.LogLost("gone"))
    assert not core.of(fx.KeepTail)


@pytest.mark.parametrize("led", [1, 2])
def test_a_tail_of_an_epoch_that_is_over_is_not_taken_over(led: int) -> None:
    """From a copy that has yet to read what opened without it. Its callers were told that it did not happen (R4)."""
    _, script = follower()
    state, tail = ChainState(LOG_ID, SITE, epoch(led), opened=True, led=led, lsn=2), Tail()
    tail.adopt(tail_of(script, 1, 2, 3), state)
    assert [r.header.lsn for r in tail.run] == ([3, 4] if led == 1 else [])


def test_who_woke_up_behind_a_later_epoch_does_not_bring_its_tail_into_the_next_one() -> None:
    """It holds lsn 2 to 4 of epoch 1, and answers before it has read that epoch 2 opened without them, at lsn 2. Of
    that lsn 4 would be appended, though its caller was told that it did not happen (R4)."""
    core, script = follower(C, sync=C)
    opens = Script(script.lsn, script.prev)
    stale = tail_of(script, 1, 2, 3)
    core.step(ev.TableSeen(2, msgspec.structs.replace(core.p.state.table, epoch=epoch(2))))
    core.land(opens.started(epoch(2)))
    core.land(opens.opened(epoch(2)))
    core.land(opens.commit(epoch(2), 9))
    core.step(ev.AliveChanged(frozenset({B, C}), "A was killed"))
    core.step(ev.PositionTold("B", core.p.campaign.round, Position(1, 4), True, 2, stale))
    core.cas_ok()
    core.land()
    assert core.role is Role.OPENING
    assert [type(records.decode(e.data)) for e in core.of(fx.Append)] == [records.EpochOpened]


def test_an_epoch_that_was_handed_over_left_nothing_behind() -> None:
    """`HandedOver` is the proof that the log has all before it (H5)."""
    core, script = follower(C)
    core.land(script.handed_over(epoch(1), "C"))
    assert core.role is Role.CLAIMING
    assert core.one(fx.SetTable).table.sync_set == {A}, "as many as the policy asks for, no holders"


# --- a znode from a backup ---


def put_back(*, settings: Any = NO_SYNC) -> Core:
    """The log has been in epoch 2 and 3, the znode says again that A leads epoch 1; A lives, and thinks so too."""
    core, _ = follower(settings=settings)
    core.land(Script().started(epoch(2)))
    core.land(Script().started(epoch(3)))
    core.step(ev.TableSeen(2, table(epoch=epoch(1), active=A)))
    return core


@pytest.mark.feature("R7")
@pytest.mark.parametrize("settings", [SETTINGS, NO_SYNC], ids=["waits for the log", "does not"])
def test_a_znode_older_than_the_log_for_long_is_replaced_though_its_active_lives(settings: Any) -> None:
    """Seed 25226: with a quorum that active may refuse commits for ever, and nothing it appends would tell it."""
    core = put_back(settings=settings)
    core.step(ev.Ticked(), after_ms=10)
    assert core.role is Role.FOLLOWING, "for a moment that is a watch that is late"
    core.step(ev.Ticked(), after_ms=settings.silent_ms)
    assert core.is_now(Role.ELECTING)


def test_a_znode_that_catches_up_in_time_is_no_reason_to_stand() -> None:
    core = put_back()
    core.step(ev.Ticked(), after_ms=10)
    core.step(ev.TableSeen(3, table(epoch=epoch(3), active=A)))
    core.step(ev.Ticked(), after_ms=10)
    core.step(ev.TableSeen(4, table(epoch=epoch(1), active=A)))
    core.step(ev.Ticked(), after_ms=NO_SYNC.silent_ms - 1)
    assert core.role is Role.FOLLOWING


def test_the_claim_that_replaces_it_says_what_may_be_lost() -> None:
    """Seed 13389: the table from the backup named nobody, so nobody was missed, and nobody heard of it."""
    core = put_back()
    core.step(ev.Ticked(), after_ms=10)
    core.step(ev.Ticked(), after_ms=NO_SYNC.silent_ms)
    core.step(ev.Ticked(), after_ms=core.p.campaign.patience)
    assert core.role is Role.CLAIMING
    assert not core.of(Tell)
    core.cas_ok()
    lost = core.one(Tell)
    assert (lost.kind, lost.cause) == (UNLOGGED_LOST, "the znode was put back to epoch 1, the log has been in 3")


# --- what copies that were opened again bring along ---


def started_anew(*members: Member, **t: Any) -> tuple[Core, Script]:
    """C, which holds nothing, sees A and B in another run, and stands."""
    core, script = follower(C, **t)
    core.step(ev.AliveChanged(frozenset({C}), "A and B were stopped"))
    asks(core, *members)
    return core, script


def opened_again(records_: tuple[bytes, ...], *, me: Member = B) -> Core:
    """B, in another run, with what its last one left on the disk, has yet to read the rest of the log."""
    core, script = Core(me, settings=NO_SYNC), Script()
    core.p.state.tail.adopt(records_, core.p.state.chain.state)
    core.alive(A, C)
    core.land(script.started(epoch(1)))
    core.land(script.opened(epoch(1)))
    return core


def left_behind(*numbers: int) -> tuple[bytes, ...]:
    _, script = follower()
    return tail_of(script, *numbers)


def test_one_that_still_reads_the_log_tells_what_it_brought_along() -> None:
    """Nobody else has it, and whoever stands now goes on without it for good."""
    pushed = left_behind(1, 2)
    core = opened_again(pushed)
    assert core.role is Role.LOADING
    core.step(ev.PositionAsked("C", 1))
    told = core.one(fx.TellPosition)
    assert told.tail == pushed
    assert not told.eligible


def test_one_that_still_reads_the_log_and_brought_nothing_tells_none() -> None:
    core = opened_again(())
    core.step(ev.PositionAsked("C", 1))
    assert core.one(fx.TellPosition).tail is None


def test_a_node_that_was_started_anew_may_have_something_on_its_disk_until_it_answers() -> None:
    """It is up before its copies are opened."""
    core, _ = started_anew(Member("A", 8), Member("B", 9))
    core.step(ev.PositionTold("A", core.p.campaign.round, Position(1, 1), False, 8, ()))
    core.step(ev.Ticked(), after_ms=core.p.campaign.patience)
    assert core.role is Role.FOLLOWING
    assert not core.of(Tell)
    asks(core, Member("A", 8), Member("B", 9))
    core.step(ev.PositionTold("A", core.p.campaign.round, Position(1, 1), False, 8, ()))
    core.step(ev.PositionTold("B", core.p.campaign.round, Position(1, 3), False, 9, left_behind(1, 2)))
    assert core.is_now(Role.CLAIMING)
    assert [r.header.lsn for r in core.p.state.tail.run] == [2, 3]


def test_it_is_not_waited_for_for_ever() -> None:
    """A node may host the partition no more."""
    core, _ = started_anew(Member("A", 8), Member("B", 9))
    core.step(ev.Ticked(), after_ms=core.p.campaign.patience)
    assert core.role is Role.FOLLOWING
    asks_after = core.p.state.settings.start_grace_ms
    core.step(ev.Ticked(), after_ms=asks_after)
    core.step(ev.Ticked(), after_ms=core.p.campaign.patience)
    assert core.is_now(Role.CLAIMING)
    assert core.one(Tell).kind is UNLOGGED_LOST


def test_a_claimant_that_dies_with_it_leaves_it_to_the_next() -> None:
    """The claim that gave up the holders dropped them; whoever brought it along has it still, and may not lead."""
    core, script = follower(C, group=Group(priorities={"B": NEVER}))
    nobody = table(epoch=epoch(2), active=Member("A", 8), group=Group(priorities={"B": NEVER}))
    core.step(ev.TableSeen(2, nobody))
    core.step(ev.AliveChanged(frozenset({Member("B", 9), C}), "A was killed"))
    core.step(ev.PositionTold("B", core.p.campaign.round, Position(1, 3), False, 9, tail_of(script, 1, 2)))
    assert core.role is Role.CLAIMING
    core.cas_ok()
    core.land()
    assert [records.decode(e.data).header.tx for e in core.of(fx.Append)] == [tx(1), tx(2)]


def test_a_copy_that_stops_gives_its_epoch_up_before_its_disk_is_waited_for() -> None:
    """The disk may be why it stops, and take its time."""
    core = Core(settings=NO_SYNC).with_sync_replica()
    core.submit(1)
    core.step(ev.LogLost("the disk"))
    kinds = [type(e) for e in core.effects]
    assert kinds.index(fx.SetTable) < kinds.index(fx.KeepTail)


def test_an_active_that_stops_stays_named_for_what_it_left_on_its_disk() -> None:
    """Else its replica's claim, the only holder's, names nobody but who holds nothing: if that claimant dies, another
    one goes on and nobody hears of it."""
    core = Core(settings=NO_SYNC).with_sync_replica()
    core.submit(1)
    core.step(ev.LogLost("its disk"))
    assert core.one(fx.KeepTail).records
    released = core.one(fx.SetTable).table
    assert released.active is None
    assert released.sync_set == {A, B}


def test_one_that_stops_with_nothing_beyond_the_log_is_not_waited_for() -> None:
    core = Core(settings=NO_SYNC).with_sync_replica()
    core.step(ev.LogLost("its disk"))
    assert core.one(fx.SetTable).table.sync_set == {B}
