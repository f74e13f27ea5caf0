"""A transaction that asks for more than its policy (R6): replicas' disks, as the active node and they see it."""

from __future__ import annotations

import msgspec
import pytest

from halog.core import effects as fx, events as ev, results as res
from halog.core.durability import Durability
from halog.core.ids import Member
from halog.core.roles import Role
from halog.core.settings import Sync
from halog.core.table.table import SYNC, Replica
from tests.unit.core.commit.durability_kit import WRITTEN, ask, flushed, flushed_by, held_by, leader
from tests.unit.core.kit import SETTINGS, A, B, C, Core, epoch, replica, tx

pytestmark = pytest.mark.feature("R6")

# --- more ---


def test_more_than_the_policy_gives_is_refused_and_nothing_is_done() -> None:
    core = leader(WRITTEN)
    for asked in (Durability(local="SYNC"), flushed(2)):
        ask(core, 1, asked)
        (refused,) = core.replies()
        assert isinstance(refused, res.Refusal)
        assert "p is of policy q" in refused.why
        assert not core.of(fx.Append)


def test_it_is_answered_once_a_replica_has_it_on_its_disk() -> None:
    core = leader()
    ask(core, 1, flushed())
    assert core.one(fx.AskFlush) == fx.AskFlush(("B",), core.p.state.chain.state.epoch, 2)
    core.acknowledge()
    held_by(core, B, 2)
    assert core.replies() == []
    core.acked_by(B, 2)
    assert core.replies() == []
    flushed_by(core, B, 1)
    assert core.replies() == []
    flushed_by(core, B, 2)
    assert core.replies() == [res.Success(2)]


def test_a_flush_alone_is_not_enough() -> None:
    """What the policy asks for is waited for as ever."""
    core = leader()
    ask(core, 1, flushed())
    flushed_by(core, B, 2)
    assert core.replies() == []
    core.acknowledge()
    assert core.replies() == [res.Success(2)]


def with_two() -> Core:
    core = Core(sync=2).active()
    core.acked_by(B, 1)
    core.cas_ok()
    core.acked_by(C, 1)
    core.cas_ok()
    assert core.p.state.table.sync_set == {B, C}
    return core


def test_it_waits_for_as_many_as_it_asked_for_though_one_of_them_goes() -> None:
    core = with_two()
    ask(core, 1, flushed(2))
    ask(core, 2, flushed(1))
    core.acknowledge(core.p.state.tag - 1)
    core.acknowledge()
    core.acked_by(C, 3)
    flushed_by(core, B, 3)
    assert core.replies() == [res.Success(3)]
    core.alive(B)
    core.cas_ok()
    assert core.p.state.table.sync_set == {B}
    assert core.replies() == []
    core.alive(B, C)
    flushed_by(core, C, 3)
    assert core.replies() == [res.Success(2)]


def test_too_few_replicas_are_there() -> None:
    core = with_two()
    core.alive(B)
    ask(core, 1, flushed(2))
    assert core.replies() == [res.Shortage(1, 2, "sync replicas")]
    assert not core.of(fx.Append)
    ask(core, 2, flushed(1))
    assert core.of(fx.Append)


def test_too_few_are_there_once_it_is_known_that_they_went() -> None:
    core = leader()
    ask(core, 1, flushed())
    core.alive(C)
    core.cas_ok()
    core.acknowledge()
    assert core.replies() == []
    ask(core, 1, flushed())
    assert core.replies() == [], "it is in the log: it waits, and is not said to have failed"
    core.step(ev.AppendFailed(-1, "session lost"))
    assert core.replies() == [res.Unknown("session lost")] * 2


def test_a_replica_is_asked_again_until_it_has_told() -> None:
    core = leader()
    ask(core, 1, flushed())
    core.step(ev.Ticked(), after_ms=10)
    assert not core.of(fx.AskFlush)
    core.step(ev.Ticked(), after_ms=SETTINGS.ack_every_ms)
    assert core.of(fx.AskFlush)
    core.acknowledge()
    flushed_by(core, B, 2)
    core.step(ev.Ticked(), after_ms=SETTINGS.ack_every_ms)
    assert not core.of(fx.AskFlush)


def test_a_repeated_one_keeps_the_stronger_demand() -> None:
    core = leader()
    ask(core, 1, None)
    ask(core, 1, flushed())
    ask(core, 1, None)
    assert not core.of(fx.Append)
    core.acknowledge()
    core.acked_by(B, 2)
    assert core.replies() == [res.Success(2)], "the first one asked for nothing"
    ask(core, 1, None)
    assert core.replies() == [], "it is in the log, and another attempt waits for more"
    flushed_by(core, B, 2)
    assert core.replies() == [res.Success(2)] * 3
    core.alive(C)
    core.cas_ok()
    ask(core, 1, flushed())
    assert core.replies() == [res.Success(2)], "it had what it asked for"


def test_a_repeated_one_of_a_former_epoch_waits_for_the_flush_it_asked_for() -> None:
    core = leader()
    core.p.state.outcomes.add(tx(7), 1)
    ask(core, 7, flushed())
    assert core.replies() == []
    assert core.one(fx.AskFlush).lsn == 1
    flushed_by(core, B, 1)
    assert core.replies() == [res.Success(1)]


def test_what_may_have_happened_and_was_forgotten_is_not_said_to_have_been_refused() -> None:
    """Seed 2602."""
    core = Core().active()
    core.p.state.outcomes.horizon = tx(9)[:8]
    for asked in (flushed(), flushed(2)):
        ask(core, 7, asked)
        assert core.replies() == [res.ExpiredId(tx(9)[:8])]


def test_as_many_wait_for_a_flush_as_may_be_in_flight() -> None:
    core = leader(msgspec.structs.replace(SETTINGS, max_in_flight=2))
    for n in (1, 2):
        ask(core, n, flushed())
        core.acknowledge()
        core.acked_by(B, 1 + n)
    ask(core, 3, flushed())
    assert core.replies() == [res.Busy(2)]
    ask(core, 4, None)
    assert core.of(fx.Append), "others go on"


def test_a_hand_over_does_not_wait_for_a_flush() -> None:
    core = leader()
    ask(core, 1, flushed())
    core.acknowledge()
    core.acked_by(B, 2)
    core.step(ev.HandOverAsked(77, "B"))
    assert core.role is Role.HANDING
    core.acknowledge()
    assert core.replies() == [res.Success(3), res.Unknown("handed over before all that it waits for had it")]


def test_of_the_log_and_the_disk_the_disk_is_waited_for() -> None:
    """A replica stores what it has read from the log: less of that cannot be had."""
    core = leader()
    ask(core, 1, Durability(local="NO_SYNC", remote="SYNC"))
    held_by(core, B, 2)
    assert core.replies() == []
    core.acknowledge()
    flushed_by(core, B, 2)
    assert core.replies() == [res.Success(2)]


# --- the replica ---


def saves(core: Core) -> list[tuple[str, int]]:
    """What was stored and told, in order."""
    found: list[tuple[str, int]] = []
    for e in core.effects:
        if isinstance(e, fx.Save):
            found.append(("save and flush" if e.flush else "save", 0))
        elif isinstance(e, fx.Flush):
            found.append(("flush", e.lsn))
        elif isinstance(e, fx.SendAck):
            found.append((f"{e.lsn} applied" if e.applied else f"{e.lsn} held", e.flushed))
    return found


def test_it_flushes_what_it_is_asked_to_once_the_log_brings_it() -> None:
    core, script = replica()
    data = script.commit(epoch(1), 1)
    core.step(ev.Pushed(A, epoch(1), [data]))
    assert saves(core) == [("2 held", 0)]
    core.step(ev.FlushAsked(A, epoch(1), 2))
    assert saves(core) == []
    core.land(data)
    core.step(ev.Taken())
    assert saves(core) == [("flush", 2)], "what was held is not acknowledged once more"
    core.step(ev.Flushed(2))
    assert saves(core) == [("2 applied", 2)]
    core.land(script.commit(epoch(1), 2))
    core.step(ev.Taken())
    assert saves(core) == [("3 applied", 2)], "nobody asked for that one"


def test_what_is_here_already_is_flushed_at_once_and_told_again_when_asked_again() -> None:
    core, script = replica()
    core.land(script.commit(epoch(1), 1))
    core.step(ev.Taken())
    core.step(ev.FlushAsked(A, epoch(1), 2))
    assert saves(core) == [("flush", 2)]
    core.step(ev.FlushAsked(A, epoch(1), 2))
    assert saves(core) == [], "under way"
    core.step(ev.Flushed(2))
    assert saves(core) == [("2 applied", 2)]
    core.step(ev.FlushAsked(A, epoch(1), 2))
    assert saves(core) == [("2 applied", 2)]


def test_what_comes_during_a_flush_waits_for_the_next() -> None:
    core, script = replica()
    core.step(ev.FlushAsked(A, epoch(1), 2))
    core.land(script.commit(epoch(1), 1))
    core.step(ev.Taken())
    assert saves(core) == [("flush", 2), ("2 applied", 0)]
    core.step(ev.FlushAsked(A, epoch(1), 4))
    for n in (2, 3):
        core.land(script.commit(epoch(1), n))
        core.step(ev.Taken())
        assert saves(core) == [(f"{n + 1} applied", 0)]
    core.step(ev.Flushed(2))
    assert saves(core) == [("4 applied", 2), ("flush", 4)]
    core.step(ev.Flushed(4))
    assert saves(core) == [("4 applied", 4)]


def test_a_replica_that_lags_flushes_what_it_has_read_meanwhile() -> None:
    """Else those before the last one would wait for that."""
    core, script = replica()
    core.step(ev.FlushAsked(A, epoch(1), 2))
    core.step(ev.FlushAsked(A, epoch(1), 3))
    core.land(script.commit(epoch(1), 1))
    core.step(ev.Taken())
    assert ("flush", 2) in saves(core)


def test_a_copy_that_leads_by_then_tells_nobody() -> None:
    core = leader()
    core.step(ev.Flushed(1))
    assert saves(core) == []


@pytest.mark.parametrize(("member", "of"), [(C, 1), (A, 2)])
def test_only_the_active_of_its_epoch_may_ask(member: Member, of: int) -> None:
    core, script = replica()
    core.land(script.commit(epoch(1), 1))
    core.step(ev.FlushAsked(member, epoch(of), 2))
    core.step(ev.Taken())
    assert saves(core) == [("2 applied", 0)]


def test_where_the_policy_flushes_everything_it_says_so() -> None:
    core, script = replica()
    core.p.state.settings = msgspec.structs.replace(SETTINGS, remote_sync=Sync.SYNC)
    core.land(script.commit(epoch(1), 1))
    core.step(ev.Taken())
    assert saves(core) == [("save and flush", 0), ("2 applied", 2)]


def test_a_sync_set_with_a_dead_member_is_not_counted() -> None:
    core = leader()
    assert core.p.state.table.replicas == (Replica("B", 2, SYNC),)
    core.alive()
    ask(core, 1, flushed())
    assert core.replies() == [res.Shortage(0, 1, "sync replicas")]
