"""The fault of histories whose commits do not wait for the log: it takes nothing, and those who hold what was
acknowledged go one after the other. Drawn from the operators' chances, so that it changes no other history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halog.core.roles import Role
from tests.sim import process_faults

if TYPE_CHECKING:
    from tests.sim.node import Process
    from tests.sim.world import World


def span(w: World, low: float, high: float) -> float:
    return low + (high - low) * w.operator.random()


def log_away(w: World, rounds: int = 2) -> None:
    """What the active sends stays on its way; replicas answer, then some go, then the active, then its heir."""
    p = w.active()
    if p is None or p.session is None:
        return
    w.cover.hit("log away")
    w.engine.say(f"appends of {p.name} are held")
    p.session.freeze()
    w.engine.at(span(w, 100.0, 900.0), p.session.thaw)
    if w.operator.random() < 0.3:
        p.reader.stuck = True
        w.engine.at(span(w, 100.0, 600.0), p.reader.unstick)
    if w.operator.random() < 0.4:
        w.engine.at(span(w, 2.0, 40.0), replica_goes, w)
    at = span(w, 5.0, 160.0)
    if w.operator.random() < 0.5:
        w.engine.at(at, goes, w, p)
    else:
        w.engine.at(at, w.members.everybody_doubts, p.name)
        w.engine.at(at + span(w, 20.0, 300.0), w.members.everybody_trusts, p.name)
    w.engine.at(at, heir, w, p, 1_000, rounds)


def goes(w: World, p: Process) -> None:
    """Killed, and away for long enough that the others try without it."""
    if p.alive:
        w.crash(p.name)
        w.engine.at(span(w, 150.0, 900.0), process_faults.restart, w, p.name, w.operator.random() < 0.2)


def replica_goes(w: World) -> None:
    waited_for = [p for p in w.processes() if p.me in w.coordinator.table.sync_set]
    if waited_for:
        goes(w, w.operator.choice(waited_for))


def heir(w: World, before: Process, patience: int, rounds: int) -> None:
    """Whoever takes over goes before it has appended again what the log lacks, or finds the log away too."""
    on_the_way = [
        p for p in w.processes() if p is not before and p.partition.state.role in (Role.STARTING, Role.OPENING)
    ]
    active = w.active()
    if on_the_way and w.operator.random() < 0.5:
        w.cover.hit("heir killed")
        goes(w, on_the_way[0])
    elif active is not None and active is not before:
        if rounds:
            w.engine.at(span(w, 0.0, 60.0), log_away, w, rounds - 1)
    elif patience:
        w.engine.at(0.5, heir, w, before, patience - 1, rounds)
