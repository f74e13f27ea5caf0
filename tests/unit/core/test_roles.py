"""One test per edge of the role table, taken by the core itself, and one for every pair that is no edge."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from halog.core import effects as fx, events as ev, results as res
from halog.core.ids import Position
from halog.core.log.records import encode
from halog.core.roles import TRANSITIONS, Role, next_role
from halog.core.table.table import SYNC, Replica
from tests.unit.core.kit import SETTINGS, A, B, C, Core, Script, epoch, table

EDGES = [(role, happening) for role, ways in TRANSITIONS.items() for happening in ways]
HAPPENINGS = sorted({h for _, h in EDGES})


def foreign_table() -> ev.TableSeen:
    """Another node took the partition (not the one it is handed to)."""
    return ev.TableSeen(50, table(epoch=epoch(9), active=C))


def loading_loaded() -> Core:
    return Core().loaded()


def following_active_gone() -> Core:
    return Core().electing()


def following_handed_over_to_me() -> Core:
    core, s = Core(B), Script()
    core.loaded()
    core.alive(A, C)
    core.step(ev.TableSeen(1, table(epoch=epoch(1), active=A, replicas=(Replica("B", 2, SYNC),))))
    for data in (s.started(epoch(1)), s.opened(epoch(1)), s.handed_over(epoch(1), "B")):
        core.land(data)
    assert core.one(fx.SetTable).table.active == B
    return core


def electing_handed_over_to_me() -> Core:
    core, s = Core(B), Script()
    core.loaded()
    core.alive(A, C)
    core.step(ev.TableSeen(1, table(epoch=epoch(1), active=A, replicas=(Replica("B", 2, SYNC),))))
    core.land(s.started(epoch(1)))
    core.land(s.opened(epoch(1)))
    core.alive(C)
    assert core.role is Role.ELECTING
    core.land(s.handed_over(epoch(1), "B"))
    return core


def electing_won() -> Core:
    return Core().claiming()


def electing_stand_back() -> Core:
    core = Core().electing()
    ask = core.one(fx.AskPositions)
    for node in ask.nodes:
        core.step(ev.PositionTold(node, ask.round, Position(3, 9), True))
    return core


def electing_deposed() -> Core:
    core = Core().electing()
    core.step(foreign_table())
    return core


def claiming_claimed() -> Core:
    return Core().starting()


def claiming_deposed() -> Core:
    core = Core().claiming()
    core.step(ev.CasDone(core.one(fx.SetTable).round, ev.Cas.CONFLICT))
    return core


def starting_started() -> Core:
    return Core().opening()


def starting_deposed() -> Core:
    core = Core().starting()
    core.land(Script().started(epoch(7)))
    return core


def starting_epoch_ended() -> Core:
    core = Core().starting()
    core.step(ev.Ticked(), after_ms=SETTINGS.start_deadline_ms)
    return core


def opening_opened() -> Core:
    return Core().active()


def opening_deposed() -> Core:
    core = Core().opening()
    core.step(foreign_table())
    return core


def opening_epoch_ended() -> Core:
    core = Core().opening()
    core.step(ev.AppendFailed(core.p.state.tag, "gone"))
    return core


def active_gap() -> Core:
    return Core().verifying()


def active_hand_over() -> Core:
    return Core().draining()


def active_deposed() -> Core:
    core = Core().active()
    core.step(foreign_table())
    return core


def active_epoch_ended() -> Core:
    core = Core().active()
    core.submit(1)
    core.step(ev.AppendFailed(core.p.state.tag, "timed out"))
    return core


def verifying_gap_is_dead() -> Core:
    core = Core().verifying()
    mine = core.p.leading.writer.queue[0].record  # type: ignore[union-attr]
    core.land(Script().commit(epoch(0, 5), 5))
    core.land(encode(mine))
    return core


def verifying_deposed() -> Core:
    core = Core().verifying()
    core.land(Script().started(epoch(7)))
    return core


def verifying_epoch_ended() -> Core:
    core = Core().verifying()
    core.step(ev.Ticked(), after_ms=SETTINGS.commit_deadline_ms + 1)
    return core


def draining_call_off() -> Core:
    core = Core().draining()
    core.step(ev.Ticked(), after_ms=SETTINGS.drain_ms)
    assert core.replies() == [res.Refusal("B did not catch up in time")]
    return core


def draining_drained() -> Core:
    core = Core().draining()
    core.acknowledge()
    core.acked_by(B, 2)
    return core


def draining_deposed() -> Core:
    core = Core().draining()
    core.step(foreign_table())
    return core


def draining_epoch_ended() -> Core:
    core = Core().draining()
    core.step(ev.AppendFailed(core.p.state.tag, "timed out"))
    return core


def handing_handed_over() -> Core:
    core = Core().handing()
    core.acknowledge()
    assert core.replies() == [res.Success(2)]
    return core


def handing_deposed() -> Core:
    core = Core().handing()
    core.step(foreign_table())
    assert isinstance(core.replies()[0], res.Unknown)
    return core


def handing_epoch_ended() -> Core:
    core = Core().handing()
    core.step(ev.AppendFailed(core.p.state.tag, "timed out"))
    return core


def offline_restored() -> Core:
    core = goes_offline(Core().active())
    core.alive()
    core.step(ev.Restored())
    assert core.of(fx.Read)
    return core


def goes_offline(core: Core) -> Core:
    """Its node has no quorum in one of its zones."""
    core.step(ev.AliveChanged(frozenset({B}), "zone main: 1 votes, 2 needed"))
    return core


def in_role(role: Role) -> Core:
    """A core in `role`."""
    core = Core()
    if role is Role.OFFLINE:
        return goes_offline(core.loaded())
    make = getattr(core, role.value, None)
    if make is None:
        return core if role is Role.LOADING else core.loaded()
    return make()  # type: ignore[no-any-return]


def take(role: Role, happening: str) -> Core:
    if happening == "lost":
        core = in_role(role)
        core.step(ev.LogLost("trimmed away"))
        return core
    if happening == "offline":
        return goes_offline(in_role(role))
    return globals()[f"{role.value}_{happening.replace(' ', '_')}"]()  # type: ignore[no-any-return]


@pytest.mark.parametrize(("role", "happening"), EDGES, ids=lambda v: getattr(v, "value", v))
@pytest.mark.feature("P10")
def test_the_core_takes_this_edge(role: Role, happening: str) -> None:
    assert take(role, happening).role is TRANSITIONS[role][happening]


@pytest.mark.parametrize("role", Role, ids=lambda r: r.value)
def test_every_other_pair_is_an_error_naming_both(role: Role) -> None:
    for happening in HAPPENINGS:
        if happening not in TRANSITIONS[role]:
            with pytest.raises(AssertionError, match=f"'{role.value}' on '{happening}'"):
                next_role(role, happening)


def test_a_hand_over_happened_if_the_successor_is_quicker_than_our_acknowledgement() -> None:
    core = Core().handing()
    core.step(ev.TableSeen(50, table(epoch=epoch(9), active=B)))
    assert core.replies() == [res.Success(2)]


@pytest.mark.feature("R1")
@pytest.mark.parametrize("how", [Core.draining, Core.handing])
def test_another_ones_record_during_a_hand_over_ends_that_epoch_and_no_other_of_its_node(
    how: Callable[[Core], Core],
) -> None:
    """The session has told where this one's records are: those of its other partitions go on."""
    core = how(Core())
    core.step(ev.Appended(core.p.state.tag, core.offset + 1))
    assert core.is_now(Role.FOLLOWING)
    assert core.of(fx.Read)
    assert not core.of(fx.EndSession)


@pytest.mark.parametrize("role", [r for r in Role if r not in (Role.FAILED,)], ids=lambda r: r.value)
def test_a_copy_that_failed_answers_nothing_but_not_serving(role: Role) -> None:
    core = in_role(role)
    core.step(ev.LogLost("trimmed away"))
    assert core.of(fx.StopReading)
    core.submit(5)
    assert isinstance(core.replies()[0], res.InactiveCopy)
