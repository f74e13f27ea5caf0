"""What replicas store of what they are pushed, where commits do not wait for the log and `remote_sync` asks for more
than memory (R6, decision 38). No process takes with it what it told as held: all of them may die at once. In half of
these histories what was not flushed goes with it, as if its machine had lost its power.

What was acknowledged may be given up only where a disk was lost, a node for good, or what the znode says of holders.
In histories of their own none is (`tests.sim.rough`). In every second history disks that are lost are stores that were
set aside (decision 49): then only an operator gives anything up.
"""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING

from halog.core import effects as fx, events as ev
from halog.core.ids import digest
from halog.core.replica.pushed_store import last_run
from halog.core.settings import Settings, Sync
from halog.core.state.tail import Tail
from tests.sim.violation import demand

if TYPE_CHECKING:
    from tests.sim.node import Node, Process
    from tests.sim.store import Disk
    from tests.sim.world import World


SEEDS = range(19, 1 << 21, 28)
"""Of the histories that do not wait for the log, every fourth; in every second of these replicas flush."""


ROUGH = range(8 << 20, 9 << 20)
"""See `tests.sim.rough`; in every second of these replicas flush."""

NEWEST = 12
"""Of so many writes behind the last flush a disk may keep any number when its machine loses its power."""


def sets_aside(seed: int) -> bool:
    """Is each empty disk there in place of a damaged one, and says so?"""
    return seed in SEEDS and seed % 56 == 47


def set_aside(node: Node) -> None:
    """As `halog.runtime.node.wiring.open_store` does, of a damaged store, before the next incarnation begins."""
    node.disk.wipe()
    node.disk.noted += 1
    node.disk.since = frozenset()
    node.world.cover.hit("store set aside")


def is_rough(seed: int) -> bool:
    return seed in ROUGH


def remote_sync(seed: int, settings: Settings) -> Sync:
    """What replicas are asked for in a history that does not wait for the log."""
    if is_rough(seed):
        return Sync.SYNC if seed % 2 else Sync.WRITE_NO_SYNC
    stored = settings.remote_sync is not Sync.NO_SYNC
    return Sync.SYNC if stored and seed % 8 >= 4 else settings.remote_sync


def perform(p: Process, e: fx.StorePushed | fx.Stand) -> None:
    """As `halog.runtime.store.pushed_records` does."""
    disk = p.node.disk
    if isinstance(e, fx.Stand):
        disk.stood = e.incarnations
        p.world.cover.hit("stands for itself" if p.me.incarnation in e.incarnations else "stands for itself no more")
        if e.flush:
            disk.flushed(disk.image())
        disk.changed()
        return
    if e.anew:
        disk.pushed = {}
    first = e.upto + 1 - len(e.records)
    disk.pushed |= {first + i: data for i, data in enumerate(e.records)}
    disk.changed()
    p.world.cover.hit("pushed records stored")
    if e.flush:
        then(p, ev.PushedFlushed(e.epoch, e.upto))


def saved(p: Process, *, flush: bool) -> None:
    """The copy's disk was given all that the copy has."""
    p.copy.flush()
    if flush:
        p.node.disk.flushed(p.node.disk.image())


def then(p: Process, done: ev.PushedFlushed | ev.Flushed) -> None:
    """It is told of that once what its disk has been given is on it."""
    p.world.engine.at(p.world.nature.delay(p.world.nature.ack), _flushed, p, p.node.disk.image(), done)


def _flushed(p: Process, image: Disk, done: ev.PushedFlushed | ev.Flushed) -> None:
    if p.alive:
        p.node.disk.flushed(image)
        if isinstance(done, ev.Flushed):
            p.world.checks.flushed[p.me] = done.lsn
        p.deliver(done)


def lose_power(w: World, node: Node, p: Process) -> None:
    """Its process is no more, nor is what its disk did not have."""
    if is_rough(w.seed):
        _lose_power_anywhere(w, node, p)
        return
    safe = node.disk.safe
    if w.settings.stores_pushed and safe is not None and random.Random(f"{w.seed}/power/{p.me}").random() < 0.5:
        w.cover.hit("power lost")
        node.disk = safe.image()
        node.disk.safe = safe
        if w.settings.remote_sync is not Sync.SYNC:  # not all that was told was flushed, and another run of it knows
            node.disk.stood = ()
            node.disk.wipes += 1


def keeps_writes(node: Node) -> None:
    """From now on its disk knows what it was after each of its last writes."""
    node.disk.recent = deque(maxlen=NEWEST)


def _lose_power_anywhere(w: World, node: Node, p: Process) -> None:
    """Where all is flushed before it is told: what was written behind the last flush is on the disk up to any write.
    Elsewhere machines keep their power."""
    safe, recent, chance = node.disk.safe, node.disk.recent, random.Random(f"{w.seed}/power/{p.me}")
    if w.settings.remote_sync is not Sync.SYNC or safe is None or chance.random() < 0.4:
        return
    newer = [image for image in recent or () if image.images > safe.images]
    chosen = chance.choice([safe, safe, *newer])
    w.cover.hit("power lost" if chosen is safe else "power lost, kept more")
    images = node.disk.images
    node.disk = chosen.image()
    node.disk.images, node.disk.safe = max(images, safe.images), safe
    keeps_writes(node)


def brought_along(node: Node) -> Tail:
    """As `halog.runtime.store.unlogged_tail.found`, of what was pushed."""
    disk = node.disk
    if disk.since is not None:
        disk.since |= {node.incarnation}
    tail = Tail(disk.stood, disk.since)
    tail.adopt(last_run(data for _, data in sorted(disk.pushed.items())), disk.chain)
    if disk.stood:
        node.world.cover.hit("stands for one before")
    return tail


def is_stored(p: Process, lsn: int) -> None:
    """R6: what is told as held up to there is on the disk, and so is that this incarnation said so."""
    disk = p.node.disk if p.world.settings.remote_sync is not Sync.SYNC else p.node.disk.safe
    assert disk is not None, "nothing was ever flushed"
    told = [r for r in p.partition.state.held.run if disk.chain.lsn < r.lsn <= lsn]
    for r in told:
        has = r.lsn in disk.pushed and digest(disk.pushed[r.lsn]) == r.digest
        demand(has, f"R6: {p.me.node} said it holds lsn {r.lsn}, its disk does not")
    demand(p.me.incarnation in disk.stood, f"R6: the disk of {p.me.node} does not keep the word of this incarnation")


def has_it(w: World) -> bool:
    """Is what was acknowledged on some disk, even where it is said that it may be lost?"""
    lost = any(n.disk.wipes > n.disk.noted for n in w.nodes.values()) or bool(w.gone) or w.checks.put_back
    lost = lost and not is_rough(w.seed)  # there a copy is dropped only where a node has left
    if w.settings.stores_pushed and not lost:
        w.cover.hit("given up, and on a disk")
    return w.settings.stores_pushed and not lost
