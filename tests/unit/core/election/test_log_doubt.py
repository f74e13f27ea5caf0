"""A log that says nothing: the epoch is given up once, and the next claim follows its first answer (W1, W4)."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from halog.core import effects as fx, events as ev, results as res
from halog.core.roles import Role
from halog.core.table.tell import Tell
from halog.events import NOT_TAKEN
from tests.unit.core.kit import SETTINGS, A, B, Core, Script, epoch, replica, table

LONG_MS = 60_000


def doubting() -> tuple[Core, fx.AskLog]:
    """Active, and the log does not acknowledge a commit in time."""
    core = Core().active()
    core.answers = False
    core.submit(1)
    core.step(ev.Ticked(), after_ms=SETTINGS.commit_deadline_ms + 1)
    assert [type(r) for r in core.replies()] == [res.Unknown]
    return core, core.one(fx.AskLog)


def released(core: Core) -> None:
    """What was asked for when the epoch was given up goes through."""
    core.step(ev.CasDone(core.one(fx.SetTable).round, ev.Cas.OK, 2))
    given_up = msgspec.structs.replace(core.p.state.table, active=None)
    core.step(ev.TableSeen(2, given_up))


def wait(core: Core, ms: int) -> list[fx.Effect]:
    effects: list[fx.Effect] = []
    for _ in range(ms // 100):
        effects += core.step(ev.Ticked(), after_ms=100)
    return effects


@pytest.mark.feature("R4", "P10")
def test_an_epoch_given_up_for_want_of_the_log_is_followed_by_none_before_the_log_answers() -> None:
    core, asked = doubting()
    assert core.now - asked.since_ms == SETTINGS.commit_deadline_ms + 1
    released(core)
    assert not [e for e in wait(core, LONG_MS) if isinstance(e, fx.SetTable | fx.AskPositions | fx.AskLog)]
    core.step(ev.LogAnswered(asked.round))
    assert core.is_now(Role.ELECTING)


@pytest.mark.feature("R4")
def test_the_claim_follows_the_very_answer() -> None:
    """No pause, no timer: alone it claims in the step that hears it."""
    core, asked = doubting()
    released(core)
    core.alive()
    wait(core, LONG_MS)
    core.step(ev.LogAnswered(asked.round))
    assert core.one(fx.SetTable).table.active == A


@pytest.mark.feature("R4")
def test_an_answer_to_another_question_is_none() -> None:
    core, asked = doubting()
    released(core)
    wait(core, 1_000)
    core.step(ev.LogAnswered(asked.round - 1))
    assert core.role is Role.FOLLOWING


@pytest.mark.feature("R4", "P10")
def test_who_sees_that_another_gave_up_asks_the_log_first() -> None:
    """It has met nothing itself, and would open an epoch that nobody can."""
    core, _ = replica()
    core.answers = False
    core.alive(A)
    core.step(ev.TableSeen(2, msgspec.structs.replace(core.p.state.table, active=None)))
    asked = core.one(fx.AskLog)
    assert not [e for e in wait(core, LONG_MS) if isinstance(e, fx.SetTable | fx.AskPositions | fx.AskLog)]
    core.step(ev.LogAnswered(asked.round))
    assert core.is_now(Role.ELECTING)


@pytest.mark.feature("R4")
def test_nothing_is_asked_where_the_active_died() -> None:
    core, _ = replica()
    core.answers = False
    core.alive()
    assert not core.of(fx.AskLog)
    assert core.one(fx.SetTable).table.active == B


def test_who_doubts_the_log_is_no_candidate_for_others() -> None:
    core, asked = doubting()
    released(core)
    wait(core, 1_000)
    core.step(ev.PositionAsked("B", 7))
    assert not core.one(fx.TellPosition).eligible
    core.step(ev.LogAnswered(asked.round))
    core.step(ev.PositionAsked("B", 8))
    assert core.one(fx.TellPosition).eligible


@pytest.mark.feature("R4")
def test_an_epoch_that_does_not_open_is_waited_for_twice_as_long_as_the_one_before() -> None:
    """A log that can be read and takes nothing: its answer proves less."""
    core, waits = Core(configured=("A",)), []
    core.loaded()
    for _ in range(5):
        while core.role is not Role.CLAIMING:
            core.step(ev.Ticked(), after_ms=10)
        core.cas_ok()
        began = core.now
        while core.is_now(Role.STARTING):
            core.step(ev.Ticked(), after_ms=10)
        waits.append(core.now - began)
    assert waits == [SETTINGS.start_deadline_ms * n for n in (1, 2, 4, 8, 8)]
    while core.role is not Role.CLAIMING:
        core.step(ev.Ticked(), after_ms=10)
    core.cas_ok()
    core.land()
    core.land()
    assert core.is_now(Role.ACTIVE)
    assert core.p.campaign.log.open_within_ms == SETTINGS.start_deadline_ms


def test_a_site_that_gives_its_log_away_is_not_asked_for() -> None:
    """Its copies stand for no election."""
    core, _ = replica()
    core.answers = False
    gone = msgspec.structs.replace(core.p.state.table, active=None, owner="there")
    core.step(ev.TableSeen(2, gone))
    assert not core.of(fx.AskLog)


@pytest.mark.feature("R4", "P10")
def test_who_was_handed_the_role_while_it_doubted_the_log_doubts_it_no_more() -> None:
    """It had asked, and its epoch was open before the answer came; else it would never stand again."""
    core, script = replica()
    core.answers = False
    core.step(ev.TableSeen(2, msgspec.structs.replace(core.p.state.table, active=None)))
    asked = core.one(fx.AskLog)
    core.land(script.handed_over(epoch(1), "B"))
    core.cas_ok()
    core.land()
    core.land()
    assert core.is_now(Role.ACTIVE)
    core.step(ev.LogAnswered(asked.round))
    core.step(ev.TableSeen(9, table(epoch=epoch(9), active=A)))
    assert core.is_now(Role.FOLLOWING)
    core.alive()
    (claim,) = [e for e in wait(core, SETTINGS.retry_ms) if isinstance(e, fx.SetTable)]
    assert claim.table.active == B


def claiming_in_doubt() -> tuple[Core, fx.SetTable]:
    """Its claim follows the log's answer, and ZooKeeper says nothing of it."""
    core, asked = doubting()
    released(core)
    core.alive()
    core.answers = False
    wait(core, SETTINGS.retry_ms)
    core.step(ev.LogAnswered(asked.round))
    (claim,) = [*core.of(fx.SetTable), *[e for e in wait(core, 200) if isinstance(e, fx.SetTable)]]
    assert core.is_now(Role.CLAIMING)
    return core, claim


@pytest.mark.feature("R4")
def test_a_claim_that_came_to_nothing_is_made_again_behind_an_answer_of_its_own() -> None:
    """The coordinator was away, and by the time that it is back the log may be away again."""
    core, claim = claiming_in_doubt()
    core.step(ev.CasDone(claim.round, ev.Cas.UNKNOWN))
    core.step(ev.TableSeen(core.p.state.version, core.p.state.table))
    assert not core.of(fx.SetTable)
    asked = core.one(fx.AskLog)
    core.step(ev.TableSeen(core.p.state.version, core.p.state.table))
    assert not core.of(fx.SetTable), "it waits"
    core.step(ev.LogAnswered(asked.round), after_ms=9_000)
    again = core.one(fx.SetTable)
    assert (again.table, again.version) == (claim.table, claim.version)
    core.cas_ok()
    assert core.is_now(Role.STARTING)


@pytest.mark.feature("R4")
def test_a_claim_that_went_through_unheard_needs_no_other_answer() -> None:
    core, claim = claiming_in_doubt()
    core.step(ev.CasDone(claim.round, ev.Cas.UNKNOWN))
    core.step(ev.TableSeen(claim.version + 1, claim.table))
    assert core.is_now(Role.STARTING)


@pytest.mark.feature("R4")
def test_a_lower_epoch_that_lands_late_in_front_of_this_one_ends_nothing() -> None:
    """An epoch that was given up, and landed when the log was back: it ends where the next one starts."""
    core = Core(epoch=epoch(2)).starting()
    own = core.one(fx.Append).data
    core.land(Script().started(epoch(1)))
    assert core.is_now(Role.STARTING)
    core.land(own)
    core.land()
    assert core.is_now(Role.ACTIVE)


@pytest.mark.feature("R4")
def test_a_higher_epoch_in_front_of_this_one_ends_it() -> None:
    core = Core(epoch=epoch(2)).starting()
    core.land(Script().started(epoch(3, nonce=7)))
    assert core.is_now(Role.FOLLOWING)


@pytest.mark.feature("R4")
def test_who_stood_back_asks_the_log_again_before_it_stands_again() -> None:
    """By then it may be away again."""
    core, asked = doubting()
    released(core)
    core.alive(B)
    wait(core, SETTINGS.retry_ms)
    core.step(ev.LogAnswered(asked.round))
    assert core.is_now(Role.ELECTING)
    better = core.p.state.position._replace(lsn=99)
    core.step(ev.PositionTold("B", core.p.campaign.round, better, True))
    assert core.is_now(Role.FOLLOWING)
    effects = wait(core, 4 * SETTINGS.stand_back_ms)
    assert not [e for e in effects if isinstance(e, fx.AskPositions)]
    (again,) = [e for e in effects if isinstance(e, fx.AskLog)]
    core.step(ev.LogAnswered(again.round))
    assert core.is_now(Role.ELECTING)


@pytest.mark.feature("R4")
@pytest.mark.parametrize("here", [True, False])
def test_an_answer_from_before_an_epoch_opened_is_good_for_no_claim_behind_it(here: bool) -> None:
    core, _ = replica()
    doubt = core.p.campaign.log
    doubt.begin(core.now)
    doubt.answered(ev.LogAnswered(doubt._asked))
    doubt.opened(here=here)
    doubt.begin(core.now)
    assert not doubt.take()


@pytest.mark.feature("R4", "P10")
def test_an_epoch_that_only_the_log_shows_may_be_given_up_unseen() -> None:
    """The coordinator is away and shows an epoch of before: that the active node answers no more has any reason."""
    core, script = replica()
    core.answers = False
    core.alive(A)
    core.step(ev.TableSeen(2, msgspec.structs.replace(core.p.state.table, active=None)))
    core.step(ev.LogAnswered(core.one(fx.AskLog).round))
    core.step(ev.PositionTold("A", core.p.campaign.round, core.p.state.position._replace(lsn=99), True))
    core.land(script.started(epoch(2)))
    core.land(script.opened(epoch(2)))
    core.alive()
    effects = wait(core, LONG_MS)
    assert not [e for e in effects if isinstance(e, fx.AskPositions | fx.SetTable)]
    (asked,) = [e for e in effects if isinstance(e, fx.AskLog)]
    core.step(ev.LogAnswered(asked.round))
    assert core.one(fx.SetTable).table.active == B


def alone_starting() -> Core:
    """Nobody else is there; an epoch is claimed, and not read back."""
    core = Core(configured=("A",))
    core.loaded()
    claim_again(core)
    return core


def claim_again(core: Core, within_ms: int = LONG_MS) -> int:
    """After how many ms the next epoch is claimed."""
    began = core.now
    while core.role is not Role.CLAIMING:
        core.step(ev.Ticked(), after_ms=10)
        assert core.now - began <= within_ms
    took = core.now - began
    core.cas_ok()
    assert core.is_now(Role.STARTING)
    return took


def not_in_time(core: Core) -> list[fx.Effect]:
    """The epoch that was claimed does not open."""
    return core.step(ev.Ticked(), after_ms=core.p.campaign.log.open_within_ms)


@pytest.mark.feature("R4", "P10")
def test_an_epoch_that_does_not_open_in_time_is_given_up_by_its_copy_alone() -> None:
    """All others of the node are bound to the same session."""
    core = alone_starting()
    effects = not_in_time(core)
    assert core.is_now(Role.FOLLOWING)
    assert not [e for e in effects if isinstance(e, fx.EndSession)]


@pytest.mark.feature("R4")
def test_what_was_sent_for_it_may_land_and_be_acknowledged_in_the_next_one() -> None:
    """The same session, in the same order: it is nobody's."""
    core = alone_starting()
    first, tag = core.one(fx.Append), core.p.state.tag
    not_in_time(core)
    claim_again(core)
    second = core.one(fx.Append)
    core.land(first.data)
    assert core.is_now(Role.STARTING), "a lower epoch"
    core.land(second.data)
    core.land()
    assert core.is_now(Role.ACTIVE)
    core.submit(1)
    mine = core.one(fx.Append)
    for late in (ev.Appended(tag, 0), ev.Appended(second.tag, 1, 2), ev.AppendFailed(tag, "late")):
        assert not core.step(late)
    assert core.p.leading is not None
    assert core.p.leading.writer.unanswered_since(0) == core.now
    core.step(ev.Appended(mine.tag, core.offset))
    assert [type(r) for r in core.replies()] == [res.Success]


@pytest.mark.feature("R4")
def test_an_epoch_that_opens_after_it_was_given_up_leaves_the_next_one_more_time() -> None:
    """A log that is slow: with no more time than that one had, each would open too late."""
    core = alone_starting()
    core.land()
    opened = core.one(fx.Append).data
    not_in_time(core)
    core.land(opened)
    assert core.p.state.chain.state.opened
    claim_again(core)
    assert core.p.campaign.log.open_within_ms == 2 * SETTINGS.start_deadline_ms


@pytest.mark.feature("R4")
def test_once_somebody_leads_an_open_epoch_the_next_one_has_the_usual_time() -> None:
    core, script = replica()
    core.p.campaign.log.refused("the log refuses it")
    core.p.campaign.log.not_opened()
    core.alive(A)
    core.land(script.commit(epoch(1), 1))
    core.step(ev.Ticked())
    assert core.p.campaign.log.open_within_ms == SETTINGS.start_deadline_ms
    assert core.p.campaign.log.claims_from == core.now


@pytest.mark.feature("R4", "Q4")
def test_a_partition_of_which_the_log_takes_nothing_is_told_once() -> None:
    """Not the first time: a log may be slow for a moment."""
    core, told = alone_starting(), []
    for _ in range(4):
        told.append([e.cause for e in not_in_time(core) if isinstance(e, Tell) and e.kind is NOT_TAKEN])
        claim_again(core)
    assert told == [[], ["the log did not answer in time"], [], []]


@pytest.mark.feature("R4", "P10")
def test_an_epoch_whose_appends_are_refused_ends_the_session_ever_more_rarely() -> None:
    """Each may end all others of the node: the third comes within a second, the later ones within a minute."""
    core, ends = alone_starting(), []
    for _ in range(14):
        effects = core.step(ev.AppendFailed(core.p.state.tag, "the topic takes nothing from this user"))
        assert [e.why for e in effects if isinstance(e, fx.EndSession)] == ["the topic takes nothing from this user"]
        ends.append(core.now)
        claim_again(core, 64_010)
    pauses = [later - sooner for sooner, later in pairwise(ends)]
    assert pauses[0] <= SETTINGS.retry_ms + 10
    assert all(pause <= (1_000 << i) + 10 for i, pause in enumerate(pauses[1:8]))
    assert all(63_900 <= pause <= 64_100 for pause in pauses[8:]), pauses


def test_partitions_that_share_a_session_end_it_at_the_same_moments() -> None:
    """However many they are, and whenever each of them was refused."""
    moments = set()
    for start in (3, 1_777, 40_321):
        core = alone_starting()
        core.now += start
        for _ in range(9):
            core.step(ev.AppendFailed(core.p.state.tag, "refused"))
            claim_again(core, 64_010)
        moments.add(core.now // 64_000 * 64_000)
        assert core.now % 64_000 <= 10
    assert len(moments) <= 2


@pytest.mark.feature("R4")
def test_who_pauses_after_refusals_is_no_candidate_for_others() -> None:
    """It may be its own session that is refused: others need not wait for it."""
    core = alone_starting()
    for _ in range(2):
        core.step(ev.AppendFailed(core.p.state.tag, "refused"))
        claim_again(core)
    core.step(ev.AppendFailed(core.p.state.tag, "refused"))
    until = core.p.campaign.not_before
    assert until > core.now + 5 * SETTINGS.retry_ms
    core.step(ev.PositionAsked("B", 7), after_ms=5 * SETTINGS.retry_ms)
    assert not core.one(fx.TellPosition).eligible
    core.step(ev.PositionAsked("B", 8), after_ms=until - core.now)
    assert core.one(fx.TellPosition).eligible


@pytest.mark.feature("R4", "P10")
def test_the_end_of_the_session_by_another_partition_holds_up_nobody() -> None:
    core = alone_starting()
    for _ in range(5):
        core.step(ev.AppendFailed(-1, "another one's was refused"))
        assert claim_again(core) <= SETTINGS.retry_ms + 10
