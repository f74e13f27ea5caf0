"""Faults of one process that several kinds of histories make happen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halog.core import events as ev
from halog.core.log import records
from tests.sim.log import Entry

if TYPE_CHECKING:
    from tests.sim.node import Process
    from tests.sim.world import World


def victim(w: World) -> Process | None:
    """Mostly whoever leads, since that is where it hurts."""
    able = list(w.processes())
    leading = [p for p in able if p.partition.leading is not None]
    pool = leading if leading and w.engine.rng.random() < 0.7 else able
    return w.engine.rng.choice(pool) if pool else None


def span(w: World, low: float, high: float) -> float:
    return low + (high - low) * w.engine.rng.random()


def restart(w: World, name: str, wipe: bool) -> None:
    if w.nodes[name].process is None and name not in w.gone:
        w.cover.hit("restarts empty" if wipe else "restarts warm")
        w.start(name, wipe=wipe)


def renew_session(w: World, p: Process) -> None:
    if p.alive and not p.coordinator.up:
        w.coordinator.renew(p.coordinator)
        if w.leased:
            p.deliver(ev.SessionLost())
    w.members.everybody_trusts(p.name)


def dead_append(w: World) -> None:
    """Records of a dead epoch land again, now and in a while, wherever the active is in its own."""
    highest = max((records.decode(e.data).header.epoch.number for e in w.log.entries), default=0)
    dead = [e for e in w.log.entries if records.decode(e.data).header.epoch.number < highest]
    if dead:
        w.cover.hit("a dead epoch's record landed again")
        for _ in range(4):
            w.engine.at(span(w, 0.0, 100.0), land_again, w, w.engine.rng.choice(dead))


def land_again(w: World, entry: Entry) -> None:
    w.log.land(entry)
