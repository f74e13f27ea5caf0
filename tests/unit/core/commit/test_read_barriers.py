"""Linearizable reads (R5), as the active's core sees them: which record answers whom, and who is refused."""

from __future__ import annotations

import msgspec
import pytest

from halog.core import effects as fx, events as ev, results as res
from halog.core.ids import barrier_id
from halog.core.log import records
from halog.core.roles import Role
from halog.core.settings import Settings, Sync
from halog.core.table.tell import Tell
from halog.events import DISCARDED
from tests.unit.core.kit import SETTINGS, B, Core, create, epoch, replica

pytestmark = pytest.mark.feature("R5")


def ask(core: Core, token: int = 100) -> list[fx.Effect]:
    return core.step(ev.BarrierAsked(token))


def answers(core: Core) -> dict[int, res.Result]:
    return {r.token: r.result for r in core.of(fx.Reply) if r.token}


def appended(core: Core) -> records.Commit:
    record = records.decode(core.one(fx.Append).data)
    assert isinstance(record, records.Commit)
    return record


def test_a_record_is_appended_and_answers_when_the_log_has_it() -> None:
    core = Core().active()
    ask(core)
    assert answers(core) == {}
    record = appended(core)
    assert (record.header.lsn, record.header.tx, record.changes) == (2, barrier_id(2), ())
    core.acknowledge()
    assert answers(core) == {100: res.Success(2)}


def test_visible_before_answered() -> None:
    core = Core().active()
    core.submit(1)
    ask(core)
    core.step(ev.Appended(core.p.state.tag - 1, core.offset, 2))
    assert [type(e) for e in core.effects if not isinstance(e, fx.Reply) or e.token] == [fx.Apply, fx.Reply, fx.Reply]


def test_what_was_on_its_way_before_the_question_proves_nothing() -> None:
    """A commit that left before it may be acknowledged late, behind another epoch that opened meanwhile."""
    core = Core().active()
    core.submit(1)
    ask(core)
    core.acknowledge(core.p.state.tag - 1)
    assert answers(core) == {1: res.Success(2)}
    core.acknowledge()
    assert answers(core) == {100: res.Success(3)}


def test_a_commit_appended_after_the_question_answers_it() -> None:
    """Those who ask while our record is on its way share what comes next: here a commit, so nothing is appended."""
    core = Core().active()
    ask(core, 100)
    ask(core, 101)
    ask(core, 102)
    assert not core.of(fx.Append)
    core.submit(1)
    core.acknowledge(core.p.state.tag - 1)
    assert answers(core) == {100: res.Success(2)}
    assert not core.of(fx.Append)
    core.acknowledge()
    assert answers(core) == {101: res.Success(3), 102: res.Success(3), 1: res.Success(3)}


def test_those_who_ask_meanwhile_share_the_next_record() -> None:
    core = Core().active()
    ask(core, 100)
    ask(core, 101)
    ask(core, 102)
    core.acknowledge()
    assert answers(core) == {100: res.Success(2)}
    assert appended(core).header.lsn == 3
    core.acknowledge()
    assert answers(core) == {101: res.Success(3), 102: res.Success(3)}
    assert not core.of(fx.Append)


@pytest.mark.feature("R5", "P10")
def test_a_writer_that_was_replaced_answers_nobody() -> None:
    """Its record lands behind a higher `EpochStarted`: found in the gap, whoever waits is sent away."""
    core = Core().active()
    ask(core, 100)
    ask(core, 101)
    core.step(ev.Appended(core.p.state.tag, core.offset + 1))
    assert answers(core) == {}
    assert core.is_now(Role.VERIFYING)
    started = records.EpochStarted(records.Header(bytes(range(16)), epoch(9)), epoch(1), 1)
    core.step(ev.EntriesRead([(core.offset, records.encode(started))]))
    assert answers(core) == {100: res.InactiveCopy(None), 101: res.InactiveCopy(None)}


def test_behind_a_gap_of_dead_epochs_it_is_answered() -> None:
    core = Core().active()
    ask(core)
    data = core.one(fx.Append).data
    core.step(ev.Appended(core.p.state.tag, core.offset + 1))
    dead = records.Commit(records.Header(bytes(range(16)), epoch(0), 7), (create(),))
    core.step(ev.EntriesRead([(core.offset, records.encode(dead)), (core.offset + 1, data)]))
    assert answers(core) == {100: res.Success(2)}
    assert core.is_now(Role.ACTIVE)


def test_an_append_that_failed_sends_everybody_away() -> None:
    core = Core().active()
    ask(core, 100)
    ask(core, 101)
    core.step(ev.AppendFailed(core.p.state.tag, "timed out"))
    assert answers(core) == {100: res.InactiveCopy(None), 101: res.InactiveCopy(None)}


def test_a_replica_is_not_asked() -> None:
    core, _ = replica()
    core.step(ev.BarrierAsked(100))
    assert core.effects == [fx.Reply(100, res.InactiveCopy("A", elected=core.p.state.table.epoch.number))]


def test_while_the_role_is_handed_over_nobody_is_answered_but_by_what_was_appended() -> None:
    core = Core().with_sync_replica()
    ask(core, 100)
    ask(core, 101)
    core.step(ev.HandOverAsked(77, "B"))
    assert core.is_now(Role.DRAINING)
    ask(core, 102)
    assert answers(core) == {102: res.InactiveCopy(None)}
    core.acknowledge()
    assert answers(core) == {100: res.Success(2), 101: res.InactiveCopy(None)}
    core.acked_by(B, 2)
    assert core.is_now(Role.HANDING)


@pytest.mark.feature("R5", "R7")
def test_below_the_quorum_it_is_refused_by_name() -> None:
    core = Core(quorum=2).active()
    core.step(ev.Ticked(), after_ms=SETTINGS.silent_ms + 1)
    core.alive()
    ask(core)
    assert answers(core) == {100: res.Shortage(1, 2)}


def test_the_log_alone_is_waited_for() -> None:
    """A sync replica that is slow delays commits, not barriers: its acknowledgement says nothing of who may write."""
    core = Core().with_sync_replica()
    ask(core)
    core.acknowledge()
    assert answers(core) == {100: res.Success(2)}


@pytest.mark.feature("R5", "R6")
def test_where_commits_do_not_wait_for_the_log_a_barrier_does() -> None:
    core = Core(settings=msgspec.structs.replace(SETTINGS, local_sync=Sync.NO_SYNC)).with_sync_replica()
    ask(core)
    core.step(ev.ReplicaAck(B, core.p.state.chain.state.epoch, 2, applied=False))
    assert answers(core) == {}
    core.acknowledge()
    assert answers(core) == {100: res.Success(2)}


def test_it_is_pushed_like_a_commit() -> None:
    """Else a replica would refuse to hold the commits behind it."""
    core = Core().with_sync_replica()
    ask(core)
    assert core.one(fx.Push).data == core.one(fx.Append).data


def test_too_many_are_refused_as_busy() -> None:
    core = Core(settings=Settings(max_in_flight=2)).active()
    ask(core, 100)
    ask(core, 101)
    ask(core, 102)
    assert answers(core) == {102: res.Busy(2)}
    core = Core(settings=Settings(max_in_flight=2)).active()
    core.submit(1, create(b"a"))
    core.submit(2, create(b"b"))
    ask(core)
    assert answers(core) == {100: res.Busy(2)}


def test_one_that_an_epoch_left_behind_is_no_discarded_transaction() -> None:
    core = Core().active()
    ask(core)
    core.submit(1)
    core.step(ev.AppendFailed(core.p.state.tag - 1, "timed out"))
    core.p.state.chain.state = msgspec.structs.replace(core.p.state.chain.state, led=99)
    core.step(ev.Ticked(), after_ms=SETTINGS.discarded_ms)
    (told,) = [e for e in core.of(Tell) if e.kind is DISCARDED]
    assert told.more["count"] == 1


def test_no_horizon_moves_for_a_barrier() -> None:
    """What is forgotten of it expires no transaction (W6)."""
    core = Core().active()
    core.p.state.outcomes.keep = 1
    ask(core)
    core.acknowledge()
    ask(core)
    core.acknowledge()
    assert core.p.state.outcomes.horizon == bytes(8)
    assert not core.p.state.outcomes.expired((1).to_bytes(8, "big") + bytes(8))
