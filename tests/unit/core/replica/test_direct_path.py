"""The direct path: a replica holds what the active pushes, says so at once, and believes nothing but the log."""

from __future__ import annotations

import msgspec
import pytest

from halog.core import effects as fx, events as ev, results as res
from halog.core.log.chain import ChainState
from halog.core.replica.follower import RECENTLY_MS
from halog.core.roles import Role
from halog.core.settings import Sync
from halog.core.state import held
from halog.core.state.held import HeldRun
from halog.core.table.table import ASYNC, SYNC, Replica
from halog.core.table.tell import Tell
from halog.events import REMOVED
from tests.unit.core.kit import LOG_ID, SETTINGS, SITE, A, B, C, Core, Script, create, epoch, replica, table, tx

TICK = 20


def push(core: Core, *data: bytes, of: int = 1) -> list[tuple[int, bool]]:
    """(lsn, applied) of the acknowledgements this led to."""
    core.step(ev.Pushed(A, epoch(of), data))
    return acks(core)


def acks(core: Core) -> list[tuple[int, bool]]:
    return [(e.lsn, e.applied) for e in core.of(fx.SendAck)]


@pytest.mark.feature("R1")
def test_a_pushed_record_is_acknowledged_as_held_and_applied_only_when_the_log_brings_it() -> None:
    core, script = replica()
    data = [script.commit(epoch(1), n) for n in (1, 2)]
    assert push(core, *data) == [(3, False)]
    assert not core.of(fx.Apply)
    assert core.p.state.chain.state.lsn == 1
    decoded = core.p.state.held.run[0].record
    core.land(data[0])
    assert core.one(fx.Apply).records[0] is decoded  # not once more
    assert core.p.state.chain.state.lsn == 2


@pytest.mark.feature("R1")
def test_what_was_acknowledged_as_held_is_acknowledged_as_applied_once_in_a_while() -> None:
    """Nobody waits for it: it spares a frame for each commit, and still shows that the log is read."""
    core, script = replica()
    data = [script.commit(epoch(1), n) for n in (1, 2)]
    push(core, *data)
    core.land(data[0])
    core.step(ev.Taken())
    assert not acks(core)
    core.step(ev.Ticked(), after_ms=SETTINGS.async_ack_ms)
    assert acks(core) == [(2, True)]
    core.land(data[1])
    core.land(script.commit(epoch(1), 3))
    core.step(ev.Taken())
    assert acks(core) == [(4, True)]  # lsn 4 was never pushed: the log's way, at once


@pytest.mark.feature("P1")
def test_a_push_behind_a_hole_is_told_when_the_log_has_filled_it() -> None:
    core, script = replica()
    data = [script.commit(epoch(1), n) for n in (1, 2, 3)]
    assert not push(core, data[1])
    assert not push(core, data[2])
    core.land(data[0])
    core.step(ev.Taken())
    assert acks(core) == [(4, False)]
    assert push(core, data[1]) == [(4, False)], "known already: who pushes it again has not heard of it"
    core.land(data[1])
    core.land(data[2])
    assert core.p.state.chain.state.lsn == 4


@pytest.mark.feature("P1")
def test_a_push_that_does_not_continue_is_refused_and_displaces_nothing_that_was_told() -> None:
    core, script = replica()
    held_ = script.commit(epoch(1), 1)
    assert push(core, held_) == [(2, False)]
    stranger = Script(1, bytes(16)).commit(epoch(1), 9)
    behind = Script(7, bytes(16)).commit(epoch(1), 9)
    assert not push(core, stranger, behind, b"no record")
    assert [r.data for r in core.p.state.held.run] == [held_]


@pytest.mark.feature("P1")
def test_only_the_active_of_the_epoch_a_copy_follows_is_listened_to() -> None:
    """Zombies push too; and an epoch the log has not shown may be anybody's."""
    core, script = replica()
    data = script.commit(epoch(1), 1)
    core.step(ev.Pushed(C, epoch(1), [data]))
    assert not core.p.state.held.run
    assert not push(core, data, of=2)
    core.step(ev.TableSeen(2, table(epoch=epoch(2), active=C)))
    assert not push(core, data)
    assert not core.p.state.held.run


@pytest.mark.feature("P1")
def test_a_copy_that_still_loads_holds_nothing() -> None:
    core, script = Core(B), Script()
    core.alive(A, C)
    core.step(ev.TableSeen(1, table(epoch=epoch(1), active=A)))
    core.land(script.started(epoch(1)))
    core.land(script.opened(epoch(1)))
    assert core.role is Role.LOADING
    assert not push(core, script.commit(epoch(1), 1))


@pytest.mark.feature("P1", "P10")
def test_a_copy_that_told_its_position_holds_nothing_more_of_that_epoch() -> None:
    """E1, trace 4: what it told must stay the whole truth. The log's way is open to it as ever."""
    core, script = replica()
    first, second = (script.commit(epoch(1), n) for n in (1, 2))
    assert push(core, first) == [(2, False)]
    core.step(ev.PositionAsked("C", 1))
    assert not push(core, second)
    assert len(core.p.state.held.run) == 1
    core.land(first)
    core.land(second)
    core.step(ev.Taken())
    assert acks(core) == [(3, True)]
    core.step(ev.TableSeen(2, table(epoch=epoch(2), active=A, replicas=(Replica("B", 2, SYNC),))))
    core.land(script.started(epoch(2)))
    core.land(script.opened(epoch(2)))
    assert push(core, script.commit(epoch(2), 3), of=2) == [(5, False)]


@pytest.mark.feature("P1", "P10")
def test_what_waited_behind_a_hole_when_the_position_was_told_is_not_told_later() -> None:
    """Seed 867."""
    core, script = replica()
    first, second = (script.commit(epoch(1), n) for n in (1, 2))
    assert not push(core, second)
    core.step(ev.PositionAsked("C", 1))
    core.land(first)
    core.step(ev.Taken())
    assert acks(core) == [(2, True)]


@pytest.mark.feature("P1", "P10")
def test_what_is_held_is_forgotten_when_the_log_starts_another_epoch() -> None:
    core, script = replica()
    assert push(core, script.commit(epoch(1), 1)) == [(2, False)]
    core.land(Script().started(epoch(2)))
    assert not core.p.state.held.run
    assert core.p.state.held.told == 0


@pytest.mark.feature("P1")
def test_what_the_log_contradicts_is_forgotten() -> None:
    core, script = replica()
    other = Script(script.lsn, script.prev).commit(epoch(1), 8)
    push(core, script.commit(epoch(1), 1), script.commit(epoch(1), 2))
    core.land(other)
    assert core.p.state.chain.state.lsn == 2
    assert not core.p.state.held.run


def test_what_is_held_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica whose log is stuck goes on acknowledging only what fits."""
    script, run = Script(), HeldRun()
    state = ChainState(LOG_ID, SITE, epoch(1), opened=True, led=1)
    monkeypatch.setattr(held, "MAX_RECORDS", 2)
    for n in range(3):
        run.offer(script.commit(epoch(1), n), state)
    assert run.tip(state) == 2
    run.clear()
    monkeypatch.setattr(held, "MAX_BYTES", 100)
    run.offer(Script().commit(epoch(1), 1, create(value=bytes(200))), state)
    assert not run.run


@pytest.mark.feature("D4", "R1")
def test_a_pushed_vote_is_held_and_locks_nothing_before_the_log_brings_it() -> None:
    """As a commit: memory proves memory, the log says what happened."""
    core, script = replica()
    data = [script.vote(epoch(1), 1), script.commit(epoch(1), 2, create(b"other")), script.outcome(epoch(1), 1)]
    assert push(core, *data) == [(4, False)]
    assert not core.p.state.ledger.locks
    core.land(data[0])
    assert list(core.p.state.ledger.locks) == [b"k"]
    core.land(data[1])
    core.land(data[2])
    assert not core.p.state.ledger.locks
    assert core.p.state.chain.state.lsn == 4
    assert not core.p.state.held.run


@pytest.mark.feature("D4")
def test_the_first_and_the_last_record_of_an_epoch_are_never_held() -> None:
    core, script = replica()
    assert not push(core, script.handed_over(epoch(1), "B"))
    assert not core.p.state.held.run


@pytest.mark.feature("D4", "R1")
def test_nobody_waits_for_the_votes_a_replica_reads_while_they_are_pushed_to_it() -> None:
    core, script = replica()
    data = script.vote(epoch(1), 1)
    push(core, data)
    core.land(data)
    core.step(ev.Taken())
    assert core.p.following.is_patient
    core.step(ev.Ticked(), after_ms=RECENTLY_MS)
    assert not core.p.following.is_patient, "it is in doubt, and nothing was pushed since"


@pytest.mark.feature("R6")
def test_what_is_pushed_again_is_acknowledged_again() -> None:
    """The acknowledgement may have been lost."""
    core, script = replica()
    data = script.commit(epoch(1), 1)
    push(core, data)
    first = core.one(fx.SendAck)
    push(core, data)
    assert core.of(fx.SendAck) == [first]


# --- the active ---


def is_pushed_and_answered(core: Core) -> None:
    """What was just appended goes to B, and is answered when log and replica have it."""
    append, sent = core.effects
    assert isinstance(append, fx.Append)
    assert sent == fx.Push(("B",), core.p.state.chain.state.epoch, append.data)
    core.step(ev.ReplicaAck(B, sent.epoch, 2, applied=False))
    assert not core.replies()
    core.acknowledge()
    assert core.replies() == [res.Success(2)]


@pytest.mark.feature("R1")
def test_a_commit_is_pushed_behind_its_append_and_answered_when_log_and_replica_have_it() -> None:
    core = Core().with_sync_replica()
    core.submit(1)
    is_pushed_and_answered(core)


@pytest.mark.feature("R1")
def test_nothing_is_pushed_to_async_replicas_or_to_those_not_heard_of_in_this_epoch() -> None:
    core = Core(sync=0).active()
    core.acked_by(B, 1)
    core.step(ev.CasDone(core.one(fx.SetTable).round, ev.Cas.OK, 2))
    assert core.p.state.table.replicas == (Replica("B", 2, ASYNC),)
    core.submit(1)
    assert not core.of(fx.Push)
    core = Core().with_sync_replica()
    core.alive(C)
    core.alive(B, C)  # its connection broke: what it acknowledged is void (S5)
    core.submit(1)
    assert not core.of(fx.Push)


@pytest.mark.feature("R4")
def test_a_replica_that_holds_but_reads_no_log_leaves_the_node_list() -> None:
    core = Core().with_sync_replica()
    now = core.p.state.chain.state.epoch
    effects: list[fx.Effect] = []
    for n in range(SETTINGS.silent_ms // TICK + 2):
        core.submit(n)
        core.step(ev.ReplicaAck(B, now, n + 2, applied=False))
        core.acknowledge()
        assert core.replies()
        effects += core.step(ev.Ticked(), after_ms=TICK)
    (shrink,) = [e for e in effects if isinstance(e, fx.SetTable)]
    assert shrink.table.replicas == ()
    core.step(ev.CasDone(shrink.round, ev.Cas.OK, 3))
    assert [(e.kind, e.node) for e in core.of(Tell)] == [(REMOVED, "B")]


@pytest.mark.feature("P10")
def test_a_hand_over_waits_until_the_successor_has_read_the_log() -> None:
    """H1: what it merely holds it could not serve."""
    core = Core().draining()
    now = core.p.state.chain.state.epoch
    core.step(ev.ReplicaAck(B, now, 2, applied=False))
    core.acknowledge()
    assert core.is_now(Role.DRAINING)
    core.step(ev.ReplicaAck(B, now, 2))
    assert core.role is Role.HANDING


@pytest.mark.feature("R1")
def test_nobody_waits_for_what_a_replica_reads_while_it_is_pushed_to() -> None:
    core, script = replica()
    following = core.p.following
    assert not following.is_patient
    push(core, script.commit(epoch(1), 1))
    assert following.is_patient
    core.step(ev.Ticked(), after_ms=RECENTLY_MS - 1)
    assert following.is_patient
    core.step(ev.Ticked(), after_ms=1)
    assert not following.is_patient, "the partition rests, or it is pushed to no more"


@pytest.mark.feature("R1", "R6")
def test_a_replica_whose_disk_is_asked_for_is_waited_for() -> None:
    core, script = replica()
    push(core, script.commit(epoch(1), 1))
    core.step(ev.FlushAsked(A, epoch(1), 2))
    assert not core.p.following.is_patient


@pytest.mark.feature("R1")
def test_a_replica_that_told_its_position_is_waited_for_as_it_holds_nothing_more() -> None:
    core, script = replica()
    push(core, script.commit(epoch(1), 1))
    core.step(ev.PositionAsked("C", 1))
    assert not core.p.following.is_patient


@pytest.mark.feature("R1", "P2")
def test_nobody_waits_for_an_async_replica() -> None:
    core, _ = replica()
    assert not core.p.following.is_patient
    core.step(ev.TableSeen(9, table(epoch=epoch(1), active=A, replicas=(Replica("B", 2, ASYNC),))))
    assert core.p.following.is_patient


def vote(core: Core, mapping: int = 0) -> None:
    core.step(ev.PrepareAsked(50, tx(5), "p", ("p", "q"), b"d" * 16, (), (create(),), {}, mapping=mapping))


@pytest.mark.feature("D4", "R1")
def test_votes_and_decisions_are_pushed_and_answered_when_log_and_replica_have_them() -> None:
    core = Core().with_sync_replica()
    vote(core)
    is_pushed_and_answered(core)
    core.step(ev.DecideAsked(51, tx(5), commit=True, decides=True, participants=("p", "q")))
    assert core.one(fx.Push).data == core.one(fx.Append).data
    core.acknowledge()
    assert not core.replies()
    core.step(ev.ReplicaAck(B, core.p.state.chain.state.epoch, 3, applied=False))
    assert core.replies() == [res.Success(3)]


@pytest.mark.feature("D4", "P6")
def test_what_goes_before_a_vote_is_pushed_before_it() -> None:
    """A vote of a newer mapping: without the record that says so it could not be held."""
    core = Core().with_sync_replica()
    vote(core, mapping=1)
    assert [type(e) for e in core.effects] == [fx.Append, fx.Push, fx.Append, fx.Push]
    assert [e.data for e in core.of(fx.Push)] == [e.data for e in core.of(fx.Append)]


@pytest.mark.feature("D4", "R6")
def test_votes_are_not_pushed_where_a_successor_appends_again_what_it_held() -> None:
    """It would have to leave out the commits behind a vote that the log does not have."""
    core = Core(settings=msgspec.structs.replace(SETTINGS, local_sync=Sync.NO_SYNC)).with_sync_replica()
    vote(core)
    assert core.of(fx.Append)
    assert not core.of(fx.Push)
    core.submit(1, create(b"other"))
    assert core.of(fx.Push)
