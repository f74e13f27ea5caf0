"""A hand-over to a node that has just come up waits until that is in the node list, and says why it ends otherwise."""

from __future__ import annotations

import msgspec
import pytest

from halog.core import effects as fx, events as ev, results as res
from halog.core.ids import Member
from halog.core.roles import Role
from halog.core.table.table import ASYNC, Replica
from tests.unit.core.kit import SETTINGS, B, C, Core, epoch

ABSENT = res.Refusal("C is not an available replica of p")


def asked() -> Core:
    """A is active, with B; C is up and not in the node list yet. C is to be active."""
    core = Core().with_sync_replica()
    core.step(ev.HandOverAsked(7, "C"))
    assert core.role is Role.ACTIVE
    assert not core.replies()
    return core


def listed(core: Core) -> Core:
    """C has what the log has, and is in the node list."""
    core.acked_by(C, 1)
    core.cas_ok()
    assert core.p.state.table.replicas[-1] == Replica("C", 3, ASYNC)
    return core


@pytest.mark.feature("Q5", "R5")
def test_it_begins_as_soon_as_the_node_is_in_the_node_list() -> None:
    """Commits are taken meanwhile."""
    core = asked()
    core.submit(1)
    assert core.of(fx.Append)
    core.acknowledge()
    core.acked_by(B, 2)
    listed(core)
    core.step(ev.Ticked(), after_ms=SETTINGS.drain_ms - 100)
    assert core.role is Role.DRAINING
    core.acked_by(C, 2)
    assert core.is_now(Role.HANDING)
    core.acknowledge()
    assert core.replies() == [res.Success(3)]


@pytest.mark.feature("Q5")
def test_a_node_that_does_not_come_is_waited_for_as_long_as_a_drain_lasts() -> None:
    core = asked()
    core.step(ev.Ticked(), after_ms=SETTINGS.drain_ms - 1)
    assert not core.replies()
    core.step(ev.Ticked(), after_ms=1)
    assert core.replies() == [ABSENT]
    listed(core)
    core.step(ev.Ticked(), after_ms=100)
    assert core.role is Role.ACTIVE


@pytest.mark.feature("Q5")
def test_a_node_that_goes_meanwhile_is_refused_at_once() -> None:
    core = asked()
    core.alive(B)
    core.step(ev.Ticked(), after_ms=10)
    assert core.replies() == [ABSENT]


@pytest.mark.feature("Q5")
@pytest.mark.parametrize(("node", "why"), [("C", "is down"), ("D", "has no copy"), ("A", "is this node")])
def test_a_node_that_is_not_about_to_come_is_refused_at_once(node: str, why: str) -> None:
    core = Core().with_sync_replica()
    core.alive(B, Member("D", 4))
    core.step(ev.HandOverAsked(7, node))
    assert core.replies() == [res.Refusal(f"{node} is not an available replica of p")], why


@pytest.mark.feature("Q5")
def test_several_are_answered_when_one_of_them_ends_the_epoch() -> None:
    """Who wanted what has come about has it."""
    core = asked()
    core.step(ev.HandOverAsked(8, "C"))
    core.step(ev.HandOverAsked(9, "B"))
    assert core.role is Role.HANDING
    core.acknowledge()
    answers = {r.token: r.result for r in core.of(fx.Reply)}
    assert answers == {7: ABSENT, 8: ABSENT, 9: res.Success(2)}


@pytest.mark.feature("Q5")
@pytest.mark.parametrize("active", [B, C])
def test_an_epoch_that_another_one_replaces_answers_as_it_came_about(active: Member) -> None:
    core = asked()
    table = core.p.state.table
    core.step(ev.TableSeen(9, msgspec.structs.replace(table, active=active, epoch=epoch(9))))
    (answer,) = [r.result for r in core.of(fx.Reply) if r.token == 7]
    assert isinstance(answer, res.Success if active == C else res.Refusal)
