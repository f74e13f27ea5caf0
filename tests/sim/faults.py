"""What goes wrong in a run: each fault is a function of the world, drawn from the seed, that heals itself after a while
or at the latest when the world is healed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from halog.core import events as ev
from halog.core.log.records import Commit, Header, encode
from halog.core.roles import Role
from halog.core.table.group import why_not_designated
from tests.sim import leases
from tests.sim.members import SILENCE_MS
from tests.sim.process_faults import dead_append, renew_session, restart, span, victim

if TYPE_CHECKING:
    from tests.sim.node import Process
    from tests.sim.world import World


def crash(w: World) -> None:
    """kill -9, later restarted; sometimes with an empty disk."""
    p = victim(w)
    if p is None:
        return
    w.crash(p.name)
    wipe = w.engine.rng.random() < 0.25
    w.engine.at(span(w, 5.0, 500.0), restart, w, p.name, wipe)


def crash_all(w: World) -> None:
    for p in list(w.processes()):
        w.crash(p.name)
        w.engine.at(span(w, 5.0, 200.0), restart, w, p.name, w.engine.rng.random() < 0.2)


def die(w: World) -> None:
    """kill -9, never restarted; at least one node is left."""
    p = victim(w)
    if p is not None and len(w.gone) + 1 < len(w.nodes):
        w.cover.hit("died for good")
        w.gone.add(p.name)
        w.crash(p.name)


def pause(w: World) -> None:
    """SIGSTOP; beyond the keep-alive the others notice."""
    p = victim(w)
    if p is None or p.paused:
        return
    p.pause()
    w.engine.say(f"{p.name} is stopped")
    length = span(w, 5.0, 500.0)
    if length > SILENCE_MS:
        w.engine.at(SILENCE_MS, w.members.everybody_doubts, p.name)
    w.engine.at(length, resume, w, p)


def resume(w: World, p: Process) -> None:
    w.engine.say(f"{p.name} goes on")
    w.members.everybody_trusts(p.name)
    p.wake()


def hold(w: World) -> None:
    """What a producer sends is held on its way; half the time the others meanwhile take its node for dead."""
    p = victim(w)
    if p is None or p.session is None:
        return
    w.cover.hit("appends held")
    p.session.freeze()
    w.engine.say(f"appends of {p.name} are held")
    length = span(w, 5.0, 900.0)
    w.engine.at(length, p.session.thaw)
    if w.engine.rng.random() < 0.6:
        w.engine.at(span(w, 0.0, 60.0), w.members.everybody_doubts, p.name)
        w.engine.at(length + 50.0, w.members.everybody_trusts, p.name)
    if w.engine.rng.random() < 0.3:
        w.engine.at(span(w, 0.0, 60.0), crash_this, w, p)


def crash_this(w: World, p: Process) -> None:
    if p.alive:
        w.crash(p.name)
        w.engine.at(span(w, 5.0, 500.0), restart, w, p.name, w.engine.rng.random() < 0.2)


def lose_session(w: World) -> None:
    """The coordinator's session ends under a living node."""
    p = victim(w)
    if p is None or not p.coordinator.up:
        return
    w.cover.hit("coordinator session lost")
    w.coordinator.lose(p.coordinator)
    w.members.everybody_doubts(p.name)
    length = span(w, 5.0, 400.0)
    w.engine.at(length, renew_session, w, p)


def lose_producer(w: World) -> None:
    """The producer's session ends: all in flight is unknown."""
    p = victim(w)
    if p is None or p.session is None:
        return
    w.cover.hit("producer session lost")
    p.session.fail("the producer failed")


def suspect(w: World) -> None:
    """Somebody wrongly takes somebody for dead."""
    names = list(w.nodes)
    if len(names) < 2:
        return
    who, whom = w.engine.rng.sample(names, 2)
    w.members.doubt(who, whom)
    w.engine.at(span(w, 5.0, 400.0), w.members.trust, who, whom)


def suspect_active(w: World) -> None:
    p = victim(w)
    if p is not None:
        w.members.everybody_doubts(p.name)
        w.engine.at(span(w, 5.0, 400.0), w.members.everybody_trusts, p.name)


def cut(w: World) -> None:
    """No frames from one node to another, one way or both; the keep-alive notices on the deaf side."""
    names = list(w.nodes)
    if len(names) < 2:
        return
    a, b = w.engine.rng.sample(names, 2)
    pairs = [(a, b)] if w.engine.rng.random() < 0.5 else [(a, b), (b, a)]
    length = span(w, 5.0, 500.0)
    for src, dst in pairs:
        w.cuts.add((src, dst))
        w.engine.at(SILENCE_MS, notice_cut, w, src, dst)
        w.engine.at(length, heal_cut, w, src, dst)


def notice_cut(w: World, src: str, dst: str) -> None:
    if (src, dst) in w.cuts:
        w.members.doubt(dst, src)


def heal_cut(w: World, src: str, dst: str) -> None:
    w.cuts.discard((src, dst))
    w.members.trust(dst, src)


def stick(w: World) -> None:
    """A reader gets nothing for a while."""
    p = victim(w) if w.engine.rng.random() < 0.3 else w.engine.rng.choice([*w.processes(), None])
    if p is not None:
        p.reader.stuck = True
        w.engine.at(span(w, 5.0, 400.0), p.reader.unstick)


def hand_over(w: World) -> None:
    p = victim(w)
    if p is not None and len(w.nodes) > 1:
        to = w.engine.rng.choice([n for n in w.nodes if n != p.name])
        if w.engine.rng.random() < 0.3:  # the successor has just begun to take the active for dead
            w.members.doubt_at_once(to, p.name)
            w.engine.at(span(w, 20.0, 200.0), w.members.trust, to, p.name)
        p.deliver(ev.HandOverAsked(w.hand_over_token(), to))
        if w.engine.rng.random() < 0.2:
            w.engine.at(span(w, 0.0, 20.0), w.engine.rng.choice((crash, pause, hold, suspect_active)), w)


def hand_over_held(w: World) -> None:
    """A hand-over whose last record stays on its way for longer than a drain may take."""
    p = victim(w)
    if p is not None and p.partition.leading is not None and len(w.nodes) > 1:
        p.deliver(ev.HandOverAsked(w.hand_over_token(), w.engine.rng.choice([n for n in w.nodes if n != p.name])))
        hold_last(w, p, 100)


def hold_last(w: World, p: Process, patience: int) -> None:
    if p.partition.state.role is Role.HANDING and p.session is not None:
        p.session.freeze()
        w.engine.at(span(w, 50.0, 300.0), p.session.thaw)
    elif patience and p.partition.state.role is Role.DRAINING:
        w.engine.at(0.3, hold_last, w, p, patience - 1)


def flap(w: World) -> None:
    """Connections break and come back, several times in a row."""
    names = list(w.nodes)
    for _ in range(12):
        if len(names) > 1:
            p = victim(w)
            who = p.name if p is not None else names[0]
            whom = w.engine.rng.choice([n for n in names if n != who])
            start = span(w, 0.0, 300.0)
            w.engine.at(start, w.members.doubt, who, whom)
            w.engine.at(start + span(w, 1.0, 40.0), w.members.trust, who, whom)


def late_push(w: World) -> None:
    """A zombie goes on committing in its epoch, and pushes what it commits to whoever it finds."""
    for _ in range(12):
        w.engine.at(span(w, 0.0, 400.0), push_again, w)


def push_again(w: World) -> None:
    able = list(w.processes())
    p = w.engine.rng.choice(able) if able else None
    if p is None:
        return
    chain = p.partition.state.chain.state
    strange = [e for e in w.pushed if e.epoch.number < chain.epoch.number]
    if strange:
        w.cover.hit("a dead epoch's push arrived")
        zombie = w.engine.rng.choice(strange[-8:])
        header = Header(chain.log_id, zombie.epoch, chain.lsn + w.engine.rng.choice((1, 1, 3)), chain.hash)
        p.deliver(ev.Pushed(zombie.member, zombie.epoch, (encode(Commit(header, ())),)))


def restore_coordinator(w: World) -> None:
    """The coordinator's data come back from a backup (E4)."""
    if w.coordinator.restore():
        w.cover.hit("coordinator restored from a backup")
        if w.leased:
            leases.every_session_ends(w)


def regroup(w: World) -> None:
    """An operator changes priorities, the required number, or in a group of two the node that may go on alone."""
    rng, table = w.operator, w.coordinator.table
    names = table.configured
    group = msgspec.structs.replace(table.group)
    what = rng.choice(("priorities", "priorities", "required", "designated"))
    if what == "priorities":  # somebody can always be active
        levels = {n: rng.choice((0, 1, 1, 2, 3)) for n in names[1:]}
        group = msgspec.structs.replace(group, priorities={names[0]: rng.choice((1, 1, 2)), **levels})
    elif what == "required":
        group = msgspec.structs.replace(
            group, required=rng.choice((0, len(names) // 2 + 1, len(names))), required_until_ms=0
        )
    else:
        node = rng.choice(("", *names))
        if why_not_designated(table, node) is None:
            group = msgspec.structs.replace(group, designated=node, designated_until_ms=0)
    w.cover.hit("group changed")
    w.engine.say(f"an operator changes the group: {group}")
    w.coordinator.regroup(group)


FAULTS: list[Callable[[World], None]] = [
    crash,
    crash_all,
    pause,
    hold,
    lose_session,
    lose_producer,
    suspect,
    suspect_active,
    cut,
    stick,
    hand_over,
    hand_over_held,
    die,
    restore_coordinator,
    flap,
    dead_append,
    late_push,
]
