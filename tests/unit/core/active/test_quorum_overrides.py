"""The end of overrides that last a while (Q3): what one core does, whatever the znode says. Here the clock on the wall
is the driver's, unless a test says otherwise."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from halog.core import effects as fx, events as ev, results as res
from halog.core.active.quorum_overrides import CLOCKS_MS
from halog.core.log.chain import ChainState
from halog.core.log.outcomes import Outcomes
from halog.core.partition import Partition
from halog.core.roles import Role
from halog.core.state.copy_state import CopyState
from halog.core.table.group import as_of, ends, without
from halog.core.table.table import SYNC, Group, Replica
from halog.core.table.tell import Tell
from tests.unit.core.kit import LOG_ID, SETTINGS, SITE, A, B, C, Core, create, table

LASTS_MS = 500

pytestmark = pytest.mark.feature("Q3", "R7", "X8")


def seen(core: Core, group: Group, *, version: int = 1) -> None:
    """The znode holds this group."""
    core.step(ev.TableSeen(core.p.state.version + version, msgspec.structs.replace(core.p.state.table, group=group)))


def alone(**override: Any) -> Core:
    """A is active for A, B, C with a quorum of two, and by an override goes on without the others."""
    core = Core(quorum=2).with_sync_replica()
    core.alive()
    core.cas_ok()
    fire: dict[str, Any] = {"required": 1, "required_until_ms": core.now + LASTS_MS, "required_reason": "fire"}
    seen(core, Group(**fire | override))
    assert committed(core, 1)
    return core


def committed(core: Core, number: int) -> bool:
    """Is one that is asked for now acknowledged?"""
    core.submit(number, create(b"%d" % number))
    if not core.of(fx.Append):
        return False
    core.acknowledge()
    return [type(r) for r in core.replies()] == [res.Success]


def told(core: Core) -> list[tuple[str, str]]:
    return [(e.kind.name, e.cause) for e in core.of(Tell)]


# --- commits ---


def test_from_its_end_on_new_commits_are_refused_by_name_though_the_znode_has_it_still() -> None:
    core = alone()
    core.step(ev.Ticked(), after_ms=LASTS_MS - 1)
    assert committed(core, 2)
    core.step(ev.Ticked(), after_ms=1)
    assert told(core) == [("minimum size", "the override has ended: its time is over"), ("no quorum", "no new commits")]
    core.submit(3)
    assert core.replies() == [res.Shortage(1, 2)]
    assert not core.of(fx.Append)


def test_what_is_in_flight_at_its_end_is_not_acknowledged_until_the_quorum_has_it() -> None:
    core = alone()
    core.submit(2, create(b"2"))
    core.step(ev.Ticked(), after_ms=LASTS_MS)
    core.acknowledge()
    assert core.replies() == []
    core.alive(B)
    core.acked_by(B, core.p.state.chain.state.lsn)
    assert core.replies() == [res.Success(core.p.state.chain.state.lsn)]


def test_a_process_that_was_stopped_over_its_end_looks_at_the_clock_before_anything_else() -> None:
    """What it hears first is that the log has the commit it was stopped with."""
    core = alone()
    core.submit(2, create(b"2"))
    core.now += LASTS_MS
    core.acknowledge()
    assert core.replies() == []


def test_what_asked_for_more_nodes_than_the_quorum_waits_for_them_no_longer() -> None:
    core = Core(quorum=2).with_sync_replica()
    seen(core, Group(required=3, required_until_ms=core.now + LASTS_MS))
    core.submit(1)
    core.acknowledge()
    core.acked_by(B, 2)
    assert core.replies() == []
    core.step(ev.Ticked(), after_ms=LASTS_MS)
    assert core.replies() == [res.Success(2)]


def test_a_node_that_was_designated_needs_others_again() -> None:
    core = Core(quorum=2).with_sync_replica()
    core.alive()
    core.cas_ok()
    seen(core, Group(designated="A", designated_until_ms=core.now + LASTS_MS))
    assert committed(core, 1)
    core.step(ev.Ticked(), after_ms=LASTS_MS)
    assert ("designated primary", "A is designated no more: its time is over") in told(core)
    assert not committed(core, 2)


def test_each_of_two_ends_at_its_own_time() -> None:
    core = Core(quorum=2).with_sync_replica()
    group = Group(
        designated="A", designated_until_ms=core.now + 2 * LASTS_MS, required=2, required_until_ms=core.now + LASTS_MS
    )
    seen(core, group)
    core.step(ev.Ticked(), after_ms=LASTS_MS)
    assert core.p.state.table.group == without(group, [group.required_until_ms]) != group
    assert core.p.overrides.over == {group.required_until_ms}
    core.step(ev.Ticked(), after_ms=LASTS_MS)
    assert core.p.state.table.group == Group()
    assert core.p.overrides.over == set(ends(group))


def test_one_without_an_end_stays() -> None:
    core = alone(required_until_ms=0)
    core.step(ev.Ticked(1 << 40), after_ms=1 << 40)
    assert core.p.state.table.group.required == 1


# --- the znode ---


def test_whoever_sees_it_in_the_znode_again_does_not_go_by_it_and_tells_nobody() -> None:
    core = alone()
    given = core.p.state.table.group
    core.step(ev.Ticked(), after_ms=LASTS_MS)
    for version in (0, 1):
        seen(core, given, version=version)
        assert core.p.state.table.group == Group()
        assert told(core) == []
        assert core.p.overrides.over == {given.required_until_ms}
        assert not committed(core, 2 + version)
    seen(core, Group())
    assert told(core) == []
    assert not core.p.overrides.over, "it is to be taken out, and was"


def test_the_next_compare_and_set_takes_it_out() -> None:
    core = alone()
    core.step(ev.Ticked(), after_ms=LASTS_MS)
    core.alive(B)
    core.acked_by(B, core.p.state.chain.state.lsn)
    assert core.one(fx.SetTable).table.group == Group()
    core.cas_ok()
    assert core.p.state.table.replicas == (Replica("B", 2, SYNC),)
    assert not core.p.overrides.over


def test_a_compare_and_set_that_was_under_way_does_not_bring_it_back() -> None:
    core = alone()
    core.alive(B)
    core.acked_by(B, core.p.state.chain.state.lsn)
    asked = core.one(fx.SetTable)
    assert asked.table.group.required == 1
    core.step(ev.Ticked(), after_ms=LASTS_MS)
    core.step(ev.CasDone(asked.round, ev.Cas.OK, core.p.state.version + 1))
    assert core.p.state.table.group == Group()
    assert core.p.overrides.over == set(ends(asked.table.group))


def test_a_new_one_that_looks_alike_lasts_until_its_own_end() -> None:
    core = alone()
    core.step(ev.Ticked(), after_ms=LASTS_MS)
    seen(core, Group(required=1, required_until_ms=core.now + LASTS_MS, required_reason="fire"))
    assert ("minimum size", "fire") in told(core)
    assert committed(core, 2)
    core.step(ev.Ticked(), after_ms=LASTS_MS)
    assert not committed(core, 3)


# --- who tells it ---


def ids(core: Core) -> list[tuple[str, str]]:
    return [(e.cause, e.once) for e in core.of(Tell) if e.once]


def test_every_copy_tells_the_end_by_one_id() -> None:
    """Active or not, whoever takes it out of the znode, and whoever starts only later and finds it there still: none
    knows who has told it. So it is in the history for certain, and once."""
    until = 50_000
    group = Group(required=1, required_until_ms=until, designated="A", designated_until_ms=until)
    said = {
        ("the override has ended: its time is over", f"p/HALOG-1011/{until}"),
        ("A is designated no more: its time is over", f"p/HALOG-1013/{until}"),
    }
    active, other = Core(quorum=2).with_sync_replica(), Core(active=B, quorum=2, group=group).loaded()
    seen(active, group)
    late = Core(quorum=2, group=group)
    for core in (active, other, late):
        assert core.now < until
        core.step(ev.LogEnd() if core is late else ev.Ticked(), after_ms=until - core.now)
        assert set(ids(core)) == said
        core.step(ev.Ticked(), after_ms=LASTS_MS)
        assert ids(core) == []


def test_one_that_is_over_when_it_is_first_seen_is_told_to_have_ended() -> None:
    """It came and went while this node was stopped, and perhaps every other one was."""
    core = Core(active=B, quorum=2).loaded()
    seen(core, Group(required=1, required_until_ms=core.now - 1))
    assert [cause for cause, _ in ids(core)] == ["the override has ended: its time is over"]
    assert core.p.state.table.group == Group()


def test_one_that_is_gone_from_the_znode_before_its_end_was_taken_back_or_ended_by_others_who_tell_it() -> None:
    core = alone()
    seen(core, Group())
    assert [(e.cause, e.logged) for e in core.of(Tell)] == [
        ("the override has ended: its time is over", True),
        ("no new commits", False),
    ]
    core.step(ev.Ticked(), after_ms=2 * LASTS_MS)
    assert ids(core) == []


# --- who ended it ---


@pytest.mark.parametrize(("reason", "said"), [("", ""), ("the rack is back", ": the rack is back")])
def test_an_override_that_an_operator_takes_back_says_that_and_why(reason: str, said: str) -> None:
    core = alone(required_until_ms=99_999)
    seen(core, Group(required_reason=reason))
    assert ("minimum size", f"the override has ended: an operator took it back{said}") in told(core)
    seen(core, Group(required_reason=reason), version=2)
    assert told(core) == [], "the reason stays, and is told once"
    core = alone(required=0, required_until_ms=0, required_reason="", designated="A", designated_until_ms=99_999)
    seen(core, Group(designated_reason=reason))
    assert ("designated primary", f"A is designated no more: an operator took it back{said}") in told(core)


def test_a_reason_is_an_operators_however_near_the_end_was() -> None:
    core = alone()
    seen(core, Group(required_reason="the rack is back"))
    assert ("minimum size", "the override has ended: an operator took it back: the rack is back") in told(core)


@pytest.mark.parametrize(
    ("left_ms", "why"), [(CLOCKS_MS, "its time is over"), (CLOCKS_MS + 1, "an operator took it back")]
)
def test_one_that_another_node_takes_out_whose_clock_is_ahead_is_over(left_ms: int, why: str) -> None:
    """Nodes' clocks are some ms apart; the first one that finds it over takes it out of the znode."""
    core = alone(required_until_ms=10_000 + LASTS_MS + 5_000)
    core.step(ev.Ticked(), after_ms=10_000 + LASTS_MS + 5_000 - left_ms - core.now)
    seen(core, Group())
    assert ("minimum size", f"the override has ended: {why}") in told(core)


def test_the_end_of_one_is_not_that_of_the_other() -> None:
    """The designation is taken back shortly before the required number ends."""
    core = Core(quorum=2).with_sync_replica()
    ends_soon = Group(required=3, required_until_ms=core.now + LASTS_MS)
    seen(core, msgspec.structs.replace(ends_soon, designated="A", designated_until_ms=core.now + 60_000))
    seen(core, ends_soon)
    assert told(core) == [("designated primary", "A is designated no more: an operator took it back")]
    core.step(ev.Ticked(), after_ms=LASTS_MS)
    assert told(core) == [("minimum size", "the override has ended: its time is over")]


# --- clocks ---


def test_the_end_is_told_on_the_wall() -> None:
    core = alone()
    core.step(ev.Ticked(5_000))
    assert core.p.state.table.group == Group(), "the clock there is five seconds ahead: it was over long ago"
    seen(core, Group(required=1, required_until_ms=core.now + 5_000 + LASTS_MS))
    core.step(ev.Ticked(5_000), after_ms=LASTS_MS - 1)
    assert core.p.state.table.group.required == 1
    core.step(ev.AliveChanged(frozenset({core.p.state.me})), after_ms=1)
    assert core.p.state.table.group == Group()


def test_a_clock_that_is_set_back_puts_no_end_off_and_brings_nothing_back() -> None:
    core = alone()
    given = core.p.state.table.group
    core.step(ev.Ticked(-60_000), after_ms=LASTS_MS - 1)
    assert core.p.state.table.group == given
    core.step(ev.Ticked(-60_000), after_ms=1)
    assert core.p.state.table.group == Group()
    seen(core, given)
    core.step(ev.Ticked(-60_000))
    assert core.p.state.table.group == Group()


# --- those that are not active ---


def test_who_starts_with_one_that_is_over_knows_that_before_anything_else() -> None:
    core = Core(quorum=2, group=Group(required=1, required_until_ms=9_999))
    core.step(ev.LogEnd())
    assert core.p.state.table.group == Group()
    core.step(ev.Ticked(), after_ms=core.p.state.settings.start_grace_ms)
    assert core.role is Role.FOLLOWING, "one of three elects nobody"


def test_who_starts_is_told_how_far_the_wall_is_ahead() -> None:
    t = table(quorum=2, group=Group(required=1, required_until_ms=20_000))
    for ahead, required in ((9_999, 1), (10_000, 0)):
        state = CopyState(A, 0, t, ChainState(LOG_ID, SITE), 0, Outcomes(), SETTINGS, 10_000)
        p = Partition(state, wall_ahead_ms=ahead)
        p.step(ev.LogEnd(), 10_000)
        assert p.state.table.group.required == required


def test_a_candidate_is_elected_by_a_quorum_again() -> None:
    group = Group(required=1, required_until_ms=10_000 + LASTS_MS)
    core = Core(quorum=2, group=group).electing(B, C)
    core.step(ev.AliveChanged(frozenset({core.p.state.me})), after_ms=LASTS_MS)
    assert core.role is Role.FOLLOWING
    assert not core.of(fx.SetTable)
    other = Core(quorum=2, group=group).electing(B, C)
    other.step(ev.AliveChanged(frozenset({other.p.state.me})))
    assert other.role is Role.CLAIMING, "as long as it lasts one is enough"


# --- arithmetic ---


def test_what_is_left_at_a_time() -> None:
    group = Group(priorities={"B": 3}, required=1, required_until_ms=200, designated="A", designated_until_ms=100)
    t = table(group=group)
    assert ends(group) == (200, 100)
    assert as_of(t, 99) is t
    assert as_of(t, 100).group == Group(priorities={"B": 3}, required=1, required_until_ms=200)
    assert as_of(t, 200).group == Group(priorities={"B": 3})
    assert without(Group(required=1, designated="A"), [0]) == Group(required=1, designated="A"), "they have no end"
