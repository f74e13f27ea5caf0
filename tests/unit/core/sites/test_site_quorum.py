"""Votes of sites, as whoever serves counts them: the law of `halog.core.sites.site_quorum`, rule by rule (Q1, M5)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from halog.core import effects as fx, events as ev, results as res
from halog.core.log import records
from halog.core.roles import Role
from halog.core.settings import Settings, Sites, SiteVotes
from halog.core.sites.site_quorum import FIRST_MS, QUORUM, RENEWALS, SiteQuorum, is_quorum, needed
from halog.core.sites.sync_sites import as_member
from halog.core.table.tell import Tell
from halog.events import SITE_QUORUM, SITE_QUORUM_LOST
from tests.unit.core.kit import Core, create, tx

pytestmark = pytest.mark.feature("Q1", "M5")

LEASE_MS = 5_000
MINE = LEASE_MS * 99 // 100 - 2
"""So long a vote counts, by a clock that may be wrong."""
THREE = (("here", 1), ("east", 1), ("north", 1))
TWO = (("here", 2), ("east", 3))


def policy(of: tuple[tuple[str, int], ...] = THREE, *, binding: bool = True, **more: Any) -> Settings:
    return Settings(votes=SiteVotes("here", of, binding, LEASE_MS), **more)


def young(settings: Settings | None = None, **changes: Any) -> Core:
    """Active since a moment, and no site has answered."""
    return Core(settings=settings or policy(), **{"sync": 0, **changes}).active()


def asked(core: Core) -> dict[str, int]:
    """The questions of the last step, by site."""
    return {e.site: e.round for e in core.of(fx.AskVote)}


def answer(core: Core, questions: dict[str, int], after_ms: int = 0, **owners: str) -> list[fx.Effect]:
    """What sites say whose their votes are."""
    found: list[fx.Effect] = []
    for site, owner in owners.items():
        found += core.step(ev.VoteAnswered(questions[site], site, owner), after_ms=after_ms)
        after_ms = 0
    core.effects = found
    return found


def with_votes(settings: Settings | None = None, **changes: Any) -> Core:
    """The same with all of them, asked for at the same moment."""
    core = young(settings, **changes)
    here: dict[str, Any] = dict.fromkeys(asked(core), "here")
    answer(core, asked(core), **here)
    return core


def quorum(core: Core) -> SiteQuorum:
    assert core.p.leading is not None
    return core.p.leading.sites.quorum


def commit(core: Core, number: int) -> list[res.Result]:
    """The log has it; what is said of it."""
    core.submit(number, create(b"%d" % number))
    found = core.replies()
    return found or (core.acknowledge(), core.replies())[1]


# --- arithmetic ---

SITES = ("a", "b", "c", "d", "e")
votes = st.dictionaries(st.sampled_from(SITES), st.integers(0, 5), min_size=1)


@given(votes, st.sets(st.sampled_from(SITES)), st.sets(st.sampled_from(SITES)))
def test_two_disjoint_sets_are_never_both_a_quorum(of: dict[str, int], some: set[str], overruled: set[str]) -> None:
    """As long as any votes count."""
    others = set(SITES) - some
    both = is_quorum(of, some, overruled) and is_quorum(of, others, overruled)
    assert not both or not sum(n for site, n in of.items() if site not in overruled)


@given(votes, st.sets(st.sampled_from(SITES)), st.sets(st.sampled_from(SITES)))
def test_a_quorum_is_more_than_half_of_the_ballots(of: dict[str, int], some: set[str], overruled: set[str]) -> None:
    """Against a twin that counts them one by one."""
    ballots = [site for site, n in of.items() for _ in range(n) if site not in overruled]
    mine = [site for site in ballots if site in some]
    assert is_quorum(of, some, overruled) is (len(mine) > len(ballots) - len(mine) or not ballots)
    assert is_quorum(of, some, overruled) is (len(mine) >= needed(of, overruled))


@given(votes, st.sets(st.sampled_from(SITES)), st.sampled_from(SITES))
def test_one_site_more_never_takes_it_away(of: dict[str, int], some: set[str], one: str) -> None:
    assert not is_quorum(of, some) or is_quorum(of, some | {one})


# --- a new epoch ---


def test_all_sites_are_asked_before_the_first_commit() -> None:
    assert asked(young()).keys() == {"here", "east", "north"}


def test_what_comes_before_the_first_votes_waits_for_them() -> None:
    core = young()
    questions = asked(core)
    assert commit(core, 1) == []
    answer(core, questions, here="here")
    assert not core.replies()
    answer(core, questions, east="here")
    assert core.replies() == [res.Success(2)]
    assert not core.of(Tell)  # nothing was lost


def test_commits_of_a_young_epoch_are_refused_once_votes_had_their_time() -> None:
    core = young()
    core.step(ev.Ticked(), after_ms=FIRST_MS - 1)
    assert commit(core, 1) == []
    core.step(ev.Ticked(), after_ms=1)
    assert [e.kind for e in core.of(Tell)] == [SITE_QUORUM_LOST]
    assert commit(core, 2) == [res.Shortage(0, 2, "votes", ("here", "east", "north"))]


def test_a_policy_without_votes_asks_nobody_and_waits_for_nobody() -> None:
    core = young(Settings())
    assert not asked(core)
    assert commit(core, 1) == [res.Success(2)]
    assert not quorum(core).is_lost
    assert not quorum(core).is_sure


def test_votes_that_do_not_bind_are_asked_for_and_not_waited_for() -> None:
    core = young(policy(binding=False))
    assert asked(core).keys() == {"here", "east", "north"}
    assert commit(core, 1) == [res.Success(2)]
    core.step(ev.Ticked(), after_ms=LEASE_MS)
    assert commit(core, 2) == [res.Success(3)]
    assert not quorum(core).is_lost
    assert not quorum(core).is_counted("east")


# --- how long one counts ---


def test_a_vote_counts_from_when_it_was_asked_for() -> None:
    """The answer took three seconds: so much less is left."""
    core = young(policy(TWO))
    questions = asked(core)
    answer(core, questions, after_ms=3_000, east="here")
    core.step(ev.PositionAsked("B", 1), after_ms=MINE - 3_000 - 1)
    assert quorum(core).held
    core.step(ev.PositionAsked("B", 2), after_ms=1)
    assert not quorum(core).held


def test_votes_are_counted_anew_when_one_ends_before_anything_else_is_done() -> None:
    """Not at the next tick: the log's word for a commit comes at that very moment, and answers nobody."""
    core = with_votes()
    core.submit(1)
    core.now += MINE
    core.acknowledge()
    assert not core.replies()
    assert quorum(core).is_lost
    assert not quorum(core).is_sure


def test_a_commit_in_flight_is_answered_if_the_votes_come_back() -> None:
    core = with_votes()
    core.submit(1)
    core.step(ev.Ticked(), after_ms=MINE)
    questions = asked(core)
    core.acknowledge()
    assert not core.replies()
    answer(core, questions, east="here", here="here")
    assert core.replies() == [res.Success(2)]
    assert [e.kind for e in core.of(Tell)] == [SITE_QUORUM]


def test_it_is_unknown_if_the_epoch_ends() -> None:
    core = with_votes()
    core.submit(1)
    core.now += MINE
    core.acknowledge()
    core.step(ev.AppendFailed(-1, "the session is over"))
    assert [type(r) for r in core.replies()] == [res.Unknown]


def test_new_commits_are_refused_by_name_while_votes_are_missing() -> None:
    core = with_votes()
    core.step(ev.Ticked(), after_ms=MINE)
    (told,) = core.of(Tell)
    assert told.kind is SITE_QUORUM_LOST
    assert told.more == {"have": 0, "needed": 2, "missing": "here, east, north"}
    questions = asked(core)
    answer(core, questions, here="here")
    assert commit(core, 1) == [res.Shortage(1, 2, "votes", ("east", "north"))]


def test_without_more_than_half_nothing_is_answered() -> None:
    """Two of four are not enough."""
    core = young(policy((("here", 2), ("east", 2))))
    questions = asked(core)
    answer(core, questions, here="here", east="east")
    assert commit(core, 1) == []
    assert quorum(core).holders == ["east"]
    assert quorum(core).is_lost


# --- asking ---


def test_a_vote_is_asked_for_again_long_before_it_ends() -> None:
    core = with_votes()
    core.step(ev.Ticked(), after_ms=LEASE_MS // RENEWALS - 1)
    assert not asked(core)
    core.step(ev.Ticked(), after_ms=1)
    assert asked(core).keys() == {"here", "east", "north"}
    core.step(ev.Ticked(), after_ms=LEASE_MS // RENEWALS)
    assert not asked(core)  # each question is under way


def test_a_question_that_nobody_answers_is_asked_anew() -> None:
    core = young()
    first = asked(core)
    core.step(ev.Ticked(), after_ms=LEASE_MS)
    assert asked(core).keys() == first.keys()
    answer(core, first, east="here", here="here")
    assert not quorum(core).held  # nobody waits for these answers any more


def test_one_that_was_refused_is_asked_for_soon() -> None:
    core = young()
    questions = asked(core)
    answer(core, questions, north="")
    core.step(ev.Ticked(), after_ms=LEASE_MS // RENEWALS // 2)
    assert asked(core).keys() == {"north"}


def test_whoever_has_a_vote_is_known_until_it_is_had() -> None:
    core = young()
    questions = asked(core)
    answer(core, questions, east="north", north="north")
    assert quorum(core).holders == ["north"]
    core.step(ev.Ticked(), after_ms=LEASE_MS // RENEWALS // 2)
    answer(core, asked(core), east="here", north="here")
    assert quorum(core).holders == []


# --- operators ---


def test_the_votes_of_an_overruled_site_do_not_count_until_they_are_had() -> None:
    """East has three of five; an operator says that it does not count."""
    core = young(policy(TWO), overruled=("east",))
    questions = asked(core)
    answer(core, questions, here="here")
    assert commit(core, 1) == [res.Success(2)]
    assert core.p.state.table.overruled == ("east",)
    answer(core, questions, east="here")
    core.step(ev.Ticked(), after_ms=100)
    sets = core.of(fx.SetTable)
    assert sets
    assert sets[0].table.overruled == ()


def test_a_site_without_votes_serves_where_all_others_are_overruled() -> None:
    """It only follows unless an operator says otherwise: then there is no vote left that it could want."""
    core = young(policy((("here", 0), ("east", 1))), overruled=("east",))
    assert commit(core, 1) == [res.Success(2)]


def test_overruling_begins_while_it_serves() -> None:
    core = with_votes(policy(TWO))
    core.step(ev.Ticked(), after_ms=MINE)
    answer(core, asked(core), here="here")
    assert commit(core, 1) == [res.Shortage(2, 3, "votes", ("east",))]
    now = msgspec.structs.replace(core.p.state.table, overruled=("east",))
    core.step(ev.TableSeen(core.p.state.version + 1, now))
    core.step(ev.Ticked(), after_ms=100)
    assert commit(core, 2) == [res.Success(2)]


# --- what rests on it ---


def test_sites_and_votes_are_both_waited_for() -> None:
    core = young(policy(sites=Sites(("east",))))
    questions = asked(core)
    core.step(ev.SiteAck("east", core.p.state.chain.state.epoch, 1))
    core.submit(1)
    core.acknowledge()
    core.step(ev.SiteAck("east", core.p.state.chain.state.epoch, 2))
    assert not core.replies()
    leading = core.p.leading
    assert leading is not None
    assert leading.writer.wait_set >= {QUORUM, as_member("east")}
    answer(core, questions, here="here", east="here")
    assert core.replies() == [res.Success(2)]
    assert QUORUM not in leading.writer.wait_set


def test_a_barrier_is_answered_with_the_votes_only() -> None:
    """Another site may be about to serve."""
    core = with_votes()
    core.step(ev.BarrierAsked(5))
    core.now += MINE
    core.acknowledge()
    assert not core.replies()
    core.step(ev.Ticked())
    questions = asked(core)
    answer(core, questions, here="here", north="here")
    assert [r.result for r in core.of(fx.Reply) if r.token == 5] == [res.Success(2)]


def test_a_barrier_is_refused_while_they_are_missing() -> None:
    core = with_votes()
    core.step(ev.Ticked(), after_ms=MINE)
    core.step(ev.BarrierAsked(5))
    assert core.replies() == [res.Shortage(0, 2, "votes", ("here", "east", "north"))]


def test_what_became_of_a_commit_is_unknown_without_the_votes() -> None:
    """It is in this site's log, and may not be in the history that goes on."""
    core = with_votes()
    core.submit(1)
    core.now += MINE
    core.acknowledge()
    core.step(ev.Asked(9, tx(1), 0))
    assert [type(r) for r in core.replies()] == [res.Unknown]
    core.step(ev.Ticked())
    questions = asked(core)
    answer(core, questions, here="here", east="here")
    core.step(ev.Asked(10, tx(1), 0))
    assert core.replies() == [res.Success(2)]


def test_a_copy_that_is_not_active_says_nothing_of_it() -> None:
    core = with_votes()
    commit(core, 1)
    core.step(ev.AppendFailed(-1, "the session is over"))
    core.step(ev.Asked(9, tx(1), 0))
    assert [type(r) for r in core.replies()] == [res.Unknown]


def given_to(core: Core, site: str) -> list[fx.Effect]:
    """The table says that another site is to serve it."""
    now = msgspec.structs.replace(core.p.state.table, owner=site)
    core.step(ev.TableSeen(core.p.state.version + 1, now))
    return core.step(ev.Ticked())


def handed_over(core: Core) -> list[records.Record]:
    found = [records.decode(e.data) for e in core.of(fx.Append)]
    return [r for r in found if isinstance(r, records.HandedOver)]


def test_with_the_votes_it_is_handed_over_to_another_site() -> None:
    core = with_votes()
    given_to(core, "east")
    assert core.role is Role.HANDING
    assert handed_over(core)


def test_without_them_the_epoch_ends_as_it_is() -> None:
    """East has taken it over by votes: a record more would part the histories."""
    core = with_votes()
    core.submit(1)
    core.step(ev.Ticked(), after_ms=MINE)
    given_to(core, "east")
    assert not core.of(fx.Append)
    assert core.p.leading is None
    assert [type(r) for r in core.replies()] == [res.Unknown]


def test_votes_that_end_while_it_hands_over_to_a_site_end_the_epoch_as_it_is_too() -> None:
    core = with_votes(policy(drain_ms=2 * LEASE_MS))
    core.submit(1)
    given_to(core, "east")
    assert core.role is Role.DRAINING
    core.now += MINE
    core.acknowledge()
    assert not core.of(fx.Append)
    core.step(ev.Ticked())
    assert not core.of(fx.Append)
    assert core.p.leading is None
    assert [type(r.result) for r in core.of(fx.Reply) if r.token == core.token] == [res.Unknown]


def test_inside_its_site_it_is_handed_over_once_what_waits_for_votes_is_answered() -> None:
    core = Core(settings=policy()).with_sync_replica()
    core.submit(1)
    core.acknowledge()
    core.acked_by(core.p.state.table.replicas[0].member, 2)
    core.step(ev.HandOverAsked(77, "B"))
    assert core.role is Role.DRAINING
    assert not handed_over(core)
