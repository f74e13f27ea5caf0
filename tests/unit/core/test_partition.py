"""What the simulation found in the core, each as the shortest history that shows it; and who may say what happened."""

from __future__ import annotations

import pytest

from halog.core import effects as fx, events as ev, results as res
from halog.core.ids import Position
from halog.core.log.chain import ChainState
from halog.core.log.outcomes import Outcomes
from halog.core.partition import Partition
from halog.core.roles import Role
from halog.core.state.copy_state import CopyState
from tests.unit.core.kit import LOG_ID, SETTINGS, SITE, A, B, Core, Script, create, epoch, replica, table, tx


@pytest.mark.feature("R1")
def test_a_batch_is_acknowledged_once_and_again_when_repeated() -> None:
    """Not record by record; and again every while, in case the frame was lost."""
    core, script = replica()
    core.land(script.commit(epoch(1), 1))
    core.land(script.commit(epoch(1), 2))
    assert not core.of(fx.SendAck)
    core.step(ev.Taken())
    assert core.one(fx.SendAck).lsn == 3
    core.step(ev.Ticked(), after_ms=SETTINGS.ack_every_ms)
    assert core.one(fx.SendAck).lsn == 3


@pytest.mark.feature("P10")
def test_a_node_that_gives_up_its_epoch_says_so_in_the_znode() -> None:
    """Seed 8: to the others it is up and active, so nobody but itself would ever stand."""
    core = Core().active()
    core.submit(1)
    core.step(ev.AppendFailed(core.p.state.tag, "timed out"))
    assert core.one(fx.SetTable).table.active is None


def test_a_node_that_has_just_given_up_is_no_candidate_for_others() -> None:
    core = Core().active()
    core.submit(1)
    core.step(ev.AppendFailed(core.p.state.tag, "timed out"))
    core.step(ev.PositionAsked("B", 7))
    assert not core.one(fx.TellPosition).eligible
    core.step(ev.PositionAsked("B", 8), after_ms=SETTINGS.retry_ms)
    assert core.one(fx.TellPosition).eligible


def test_a_single_node_stands_again_by_itself() -> None:
    core = Core(configured=("A",))
    core.loaded()
    core.step(ev.CasDone(core.one(fx.SetTable).round, ev.Cas.OK, 1))
    core.land()
    core.land()
    core.submit(1)
    core.step(ev.AppendFailed(core.p.state.tag, "timed out"))
    assert not core.of(fx.SetTable)
    core.step(ev.Ticked(), after_ms=SETTINGS.retry_ms)
    assert core.role is Role.CLAIMING


def test_two_nodes_started_in_one_millisecond_claim_different_epochs() -> None:
    """Seed 33: both took the one claim that went through for their own."""
    claims = []
    for me in (A, B._replace(incarnation=A.incarnation)):
        core = Core(me, configured=(me.node,))
        core.loaded()
        claims.append(core.one(fx.SetTable).table.epoch)
    assert claims[0] != claims[1]


def test_another_nodes_claim_is_never_taken_for_ones_own() -> None:
    core = Core().claiming()
    claim = core.one(fx.SetTable)
    core.step(ev.CasDone(claim.round, ev.Cas.UNKNOWN))
    core.step(ev.TableSeen(1, table(epoch=claim.table.epoch, active=B)))
    assert core.role is Role.FOLLOWING


def test_an_unanswered_claim_that_went_through_is_recognised() -> None:
    core = Core().claiming()
    claim = core.one(fx.SetTable)
    core.step(ev.CasDone(claim.round, ev.Cas.UNKNOWN))
    assert core.of(fx.Refresh)
    core.step(ev.TableSeen(1, claim.table))
    assert core.role is Role.STARTING


def test_entries_fetched_before_stop_reading_are_not_taken_twice() -> None:
    """Seeds 753, 798: the rest of a batch arrived after the gap was found dead."""
    core = Core().verifying()
    dead = Script().commit(epoch(0, 5), 5)
    mine = _in_flight(core)[0]
    core.land(dead)
    core.land(mine)
    assert core.role is Role.ACTIVE
    core.submit(2, create(b"second"))
    second = _in_flight(core)[0]
    core.step(ev.EntriesRead([(core.offset, second)]))
    assert core.effects == []
    core.acknowledge()
    assert core.replies() == [res.Success(3)]


def test_dropped_entries_leave_no_hole() -> None:
    """What was dropped while leading must be read again before anything behind it counts."""
    core = Core().active()
    first = core.offset
    dead = [Script().commit(epoch(0, 5), n) for n in range(3)]
    core.step(ev.EntriesRead([(first, dead[0])]))
    core.step(ev.TableSeen(50, table(epoch=epoch(9), active=B)))
    assert core.one(fx.Read).offset == first
    core.step(ev.EntriesRead([(first + 1, dead[1])]))
    assert core.p.state.next_offset == first
    for n in range(3):
        core.step(ev.EntriesRead([(first + n, dead[n])]))
    assert core.p.state.next_offset == first + 3


def _in_flight(core: Core) -> list[bytes]:
    from halog.core.log.records import encode

    assert core.p.leading is not None
    return [encode(item.record) for item in core.p.leading.writer.queue]


# --- what became of a transaction (R4) ---


def asked(core: Core, number: int, attempt: int) -> res.Result:
    core.step(ev.Asked(1, tx(number), attempt))
    return core.replies()[0]


@pytest.mark.feature("R5")
def test_happened_may_be_said_by_whoever_sees_it_accepted() -> None:
    core, script = replica()
    core.land(script.commit(epoch(1), 1))
    assert asked(core, 1, 1) == res.Success(2)


def test_not_happened_needs_a_higher_epoch_that_opened() -> None:
    core, script = replica()
    assert isinstance(asked(core, 9, 1), res.Unknown)
    core.land(script.started(epoch(2)))
    assert isinstance(asked(core, 9, 1), res.Unknown)
    core.land(script.opened(epoch(2)))
    assert asked(core, 9, 1) == res.Abort()
    assert isinstance(asked(core, 9, 2), res.Unknown)


def test_what_is_in_flight_is_unknown_whatever_was_attempted_before() -> None:
    core = Core().active()
    core.submit(9)
    assert isinstance(asked(core, 9, 0), res.Unknown)


def test_what_may_be_forgotten_is_expired() -> None:
    outcomes = Outcomes([], horizon=tx(5)[:8])
    p = Partition(CopyState(A, 0, table(), ChainState(LOG_ID, SITE), 0, outcomes, SETTINGS, 0))
    (reply,) = p.step(ev.Asked(1, tx(5), 0), 0)
    assert reply == fx.Reply(1, res.ExpiredId(tx(5)[:8]))


# --- elections ---


def test_the_most_recent_answer_wins_and_the_loser_stands_back() -> None:
    core = Core().electing()
    ask = core.one(fx.AskPositions)
    core.step(ev.PositionTold("B", ask.round, Position(1, 3), True))
    core.step(ev.PositionTold("C", ask.round, Position(0, 0), True))
    assert core.role is Role.FOLLOWING
    core.step(ev.Ticked(), after_ms=SETTINGS.stand_back_ms - 1)
    assert core.role is Role.FOLLOWING
    core.step(ev.Ticked(), after_ms=1)
    assert core.is_now(Role.ELECTING)


def test_answers_of_another_round_are_not_counted() -> None:
    core = Core().electing()
    core.step(ev.PositionTold("B", 999, Position(9, 9), True))
    assert core.role is Role.ELECTING


def test_a_candidate_behind_in_the_log_raises_above_what_it_finds() -> None:
    """E4: the znode was restored from an old backup; the log holds a higher epoch."""
    core, script = Core().starting(), Script()
    mine = core.one(fx.Append).data
    core.land(script.started(epoch(40)))
    assert core.role is Role.FOLLOWING
    core.land(mine)
    core.step(ev.Ticked(), after_ms=SETTINGS.stand_back_ms)
    core.step(ev.Ticked(), after_ms=core.p.campaign.patience)
    assert core.one(fx.SetTable).table.epoch.number == 41


@pytest.mark.feature("Q2")
def test_who_has_seen_nobody_active_waits_longer_for_the_others_positions() -> None:
    """A better placed node that has just started, too, may be busy; it would take the role back only after its stay."""
    core = Core().electing()
    core.step(ev.Ticked(), after_ms=SETTINGS.first_election_ms - 1)
    assert core.role is Role.ELECTING
    core.step(ev.Ticked(), after_ms=1)
    assert core.role is Role.CLAIMING


@pytest.mark.feature("Q2")
def test_who_has_seen_somebody_active_decides_soon() -> None:
    core = Core().active()
    core.step(ev.AppendFailed(-1, "its session ended"))
    core.step(ev.Ticked(), after_ms=SETTINGS.retry_ms + SETTINGS.start_grace_ms)
    assert core.role is Role.ELECTING
    core.step(ev.Ticked(), after_ms=SETTINGS.election_ms)
    assert core.role is Role.CLAIMING
