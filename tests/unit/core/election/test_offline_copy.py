"""A copy whose node has no quorum in one of its zones: takes part in nothing, and comes back by restoring (Q1, P11)."""

from __future__ import annotations

import pytest

from halog.core import effects as fx, events as ev, results as res
from halog.core.roles import Role
from halog.core.table.table import SYNC, Replica
from tests.unit.core.kit import SETTINGS, A, B, C, Core, Script, epoch, replica, table

WHY = "zone main: 1 votes, 2 needed"


def offline(core: Core, *others: object) -> list[fx.Effect]:
    return core.step(ev.AliveChanged(frozenset(others), WHY))  # type: ignore[arg-type]


@pytest.mark.feature("Q1")
def test_an_active_copy_ends_its_epoch_and_whoever_waits_hears_unknown() -> None:
    """The record may land all the same: nobody is told that it did not happen."""
    core = Core().active()
    core.submit(1)
    offline(core)
    assert core.replies() == [res.Unknown(WHY)]
    assert core.role is Role.OFFLINE
    assert core.of(fx.RoleChanged)[-1] == fx.RoleChanged("offline", WHY)
    assert isinstance(core.effects[-1], fx.StopReading)
    assert not core.p.state.serving


@pytest.mark.feature("Q1")
def test_it_takes_no_commit_no_question_and_no_push() -> None:
    core, script = replica()
    offline(core, A, C)
    core.submit(2)
    assert core.replies() == [res.InactiveCopy("A", elected=1)]
    core.step(ev.BarrierAsked(9))
    assert core.replies() == [res.InactiveCopy("A", elected=1)]
    core.step(ev.Pushed(A, epoch(1), (script.commit(epoch(1), 1),)))
    assert not core.effects
    core.step(ev.Ticked(), after_ms=SETTINGS.ack_every_ms * 2)
    assert not core.of(fx.SendAck)


@pytest.mark.feature("Q1", "Q2")
def test_it_never_stands_for_election_and_tells_others_that_it_does_not() -> None:
    """Though everybody else is gone, and nobody is active."""
    core = Core().loaded()
    offline(core)
    for _ in range(5):
        core.step(ev.Ticked(), after_ms=SETTINGS.start_grace_ms)
        assert core.role is Role.OFFLINE
        assert not core.effects
    core.step(ev.PositionAsked("B", 1))
    told = core.one(fx.TellPosition)
    assert (told.eligible, told.tail) == (False, None)


@pytest.mark.feature("Q1")
def test_a_claim_that_lands_late_makes_nobody_active() -> None:
    core = Core().claiming()
    claim = core.one(fx.SetTable)
    offline(core)
    core.step(ev.CasDone(claim.round, ev.Cas.OK, 1))
    assert core.role is Role.OFFLINE
    assert not core.of(fx.Append)
    core.step(ev.TableSeen(1, claim.table))
    assert core.role is Role.OFFLINE


@pytest.mark.feature("Q1", "P11")
def test_back_again_it_reads_the_log_to_its_end_before_it_takes_part() -> None:
    """What was committed elsewhere meanwhile is there before anything else happens."""
    core, script = replica()
    offline(core, A, C)
    core.land(script.commit(epoch(1), 1))  # of a batch that was fetched before
    assert core.p.state.chain.state.lsn == 1
    core.alive(A, C)
    assert core.role is Role.OFFLINE
    core.step(ev.Restored())
    assert core.is_now(Role.LOADING)
    assert core.one(fx.Read).offset == 2
    core.step(ev.Ticked(), after_ms=SETTINGS.ack_every_ms * 2)
    assert not core.of(fx.SendAck)


@pytest.mark.feature("Q1", "P11")
def test_nothing_is_missing_behind_what_was_passed_over_while_offline() -> None:
    """Entries of an old batch that come late do not make a hole: the read from its own position brings them again."""
    core, script = replica()
    first, second = script.commit(epoch(1), 1), script.commit(epoch(1), 2)
    offline(core, A, C)
    core.step(ev.EntriesRead([(2, first)]))
    core.alive(A, C)
    core.step(ev.Restored())
    core.step(ev.EntriesRead([(3, second)]))
    assert core.p.state.chain.state.lsn == 1
    core.step(ev.EntriesRead([(2, first), (3, second)]))
    assert core.p.state.chain.state.lsn == 3
    core.step(ev.LogEnd())
    assert core.is_now(Role.FOLLOWING)
    assert core.one(fx.SendAck).lsn == 3


@pytest.mark.feature("Q1", "P11")
def test_it_is_not_restored_while_its_node_is_offline_again() -> None:
    core = Core().active()
    offline(core)
    core.step(ev.Restored())
    assert core.role is Role.OFFLINE


@pytest.mark.feature("Q1", "P11")
def test_one_that_was_active_and_is_still_named_so_opens_a_new_epoch() -> None:
    """Nobody else took over: it goes on, but never in the epoch it left."""
    core = Core().active()
    before = core.p.state.table.epoch
    offline(core)
    core.alive()
    core.step(ev.Restored())
    core.step(ev.LogEnd())
    core.step(ev.Ticked(), after_ms=SETTINGS.start_grace_ms)
    claim = core.one(fx.SetTable).table
    assert claim.epoch.number > before.number


@pytest.mark.feature("Q1", "P10")
def test_one_that_was_replaced_follows_the_new_epoch() -> None:
    core, script = Core().active(), Script()
    offline(core, B)
    core.step(ev.TableSeen(50, table(epoch=epoch(9), active=B, replicas=(Replica("C", 3, SYNC),))))
    core.alive(B, C)
    core.step(ev.Restored())
    core.step(ev.EntriesRead([(core.p.state.next_offset, script.started(epoch(9)))]))
    core.step(ev.LogEnd())
    assert core.is_now(Role.FOLLOWING)
    core.step(ev.Ticked(), after_ms=SETTINGS.start_grace_ms)
    assert not core.of(fx.SetTable)


def test_a_copy_that_failed_stays_failed() -> None:
    core = Core().loaded()
    core.step(ev.LogLost("trimmed away"))
    offline(core)
    assert core.role is Role.FAILED
