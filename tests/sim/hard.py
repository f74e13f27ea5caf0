"""Review: stowing histories in which nothing is ever lost on a disk for good, all processes die at once now and then,
and a machine that loses its power keeps any prefix of what it wrote behind its last flush."""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter

from tests.sim import faults, stowed
from tests.sim.away import log_away
from tests.sim.faults import FAULTS
from tests.sim.run import LIVENESS_MS, _end_faults
from tests.sim.store import Copy, Disk
from tests.sim.world import World

OK = [f for f in FAULTS if f not in (faults.die, faults.restore_coordinator, faults.crash, faults.crash_all)]

_image, _flushed = Disk.image, Disk.flushed
_perform, _copy_flush = stowed.perform, Copy.flush


def note(disk):
    if disk.safe is not None or True:
        im = _image(disk)
        recent = disk.__dict__.setdefault("recent", [])
        recent.append(im)
        del recent[:-12]


def perform(p, e):
    _perform(p, e)
    note(p.node.disk)


def copy_flush(self):
    had = self.position is not None
    _copy_flush(self)
    if had:
        note(self.disk)


def lose_power(w, node, p):
    safe = node.disk.safe
    rng = random.Random(f"{w.seed}/power/{p.me}")
    if not w.settings.stows or w.settings.remote_sync.name != "SYNC" or safe is None or rng.random() < 0.4:
        return
    newer = [im for im in node.disk.__dict__.get("recent", []) if im.images > safe.images]
    chosen = rng.choice([safe, safe, *newer])
    w.cover.hit("power lost, kept more" if chosen is not safe else "power lost")
    node.disk = chosen.image()
    node.disk.recent = []
    node.disk.images = max(node.disk.images, safe.images) + 1
    node.disk.safe = safe


stowed.perform, Copy.flush, stowed.lose_power = perform, copy_flush, lose_power


def crash(w):
    p = faults.victim(w)
    if p is not None:
        w.crash(p.name)
        w.engine.at(faults.span(w, 5.0, 500.0), faults.restart, w, p.name, False)


def crash_all(w):
    w.cover.hit("all crash")
    for p in list(w.processes()):
        w.crash(p.name)
        w.engine.at(faults.span(w, 5.0, 300.0), faults.restart, w, p.name, False)


def freeze_and_crash(w):
    """The log takes nothing for a while; then all die."""
    p = w.active()
    if p is not None and p.session is not None:
        p.session.freeze()
        w.engine.at(faults.span(w, 100.0, 600.0), p.session.thaw)
        w.engine.at(faults.span(w, 2.0, 60.0), w.engine.rng.choice((crash, crash_all, crash_all)), w)


def claimants_die(w, n=400):
    """Whoever is between its claim and serving is killed, perhaps with all others."""
    from halog.core.roles import CLAIMANT
    able = [p for p in w.processes() if p.partition.role in CLAIMANT]
    if able and w.engine.rng.random() < 0.15:
        w.cover.hit("claimant killed")
        if w.engine.rng.random() < 0.3:
            crash_all(w)
        else:
            w.crash(able[0].name)
            w.engine.at(faults.span(w, 5.0, 300.0), faults.restart, w, able[0].name, False)
        n -= 150
    if n > 0:
        w.engine.at(0.7, claimants_die, w, n - 1)


faults.crash, faults.crash_all = crash, crash_all


def make(seed, names=None):
    rng = random.Random(seed * 104729 + 7)
    names = names or ("A", "B", "C", "D")[: rng.choice((2, 2, 3, 3, 4))]
    world = World(
        seed, names=names, sync_replicas=rng.choice((1, 1, 1, 2)), clients=rng.choice((1, 2, 4)), quota=60,
        keep=50_000, calm=rng.random() < 0.4,
    )
    if rng.random() < 0.5:
        world.nature.drop = min(world.nature.drop, 0.02)
    for n in names:
        world.engine.at(0.0, world.start, n)
    for c in world.clients:
        world.engine.at(30.0 + 60.0 * rng.random(), c.begin)
    length = rng.uniform(300.0, 1500.0)
    kinds = [crash, crash_all, freeze_and_crash, freeze_and_crash, claimants_die, *rng.sample(OK, 2)]
    for _ in range(rng.randint(2, 10)):
        world.engine.at(60.0 + rng.random() * (length - 60.0), rng.choice(kinds), world)
    if rng.random() < 0.5:
        world.engine.at(60.0 + rng.random() * (length - 60.0), log_away, world)
    world.engine.at(length, _end_faults, world)
    world.fault_phase_ms = length
    return world


from tests.sim import away as _away
_away.faults.restart = lambda w, name, wipe, _r=faults.restart: _r(w, name, False)


def main():
    first, count = int(sys.argv[1]), int(sys.argv[2])
    counts, bad, t = Counter(), 0, time.monotonic()
    for i in range(count):
        seed = 19 + 28 * (first + i)
        w = make(seed)
        try:
            w.run(w.fault_phase_ms)
            w.settle(LIVENESS_MS)
            w.checks.finish()
        except Exception as e:
            bad += 1
            print(seed, type(e).__name__, e, flush=True)
            if bad > 12:
                break
        if w.cover.counts["unlogged lost"]:
            print("lost told", seed, flush=True)
        counts.update(w.cover.counts)
    want = ("all crash", "claimant killed", "power lost", "power lost, kept more", "stands for one before",
            "tail brought along", "appended again", "unlogged lost", "given up, and on a disk", "waits for holders",
            "unlogged commits given up", "elections", "log away", "stowed")
    print(json.dumps({"seeds": i + 1, "bad": bad, "s": round(time.monotonic() - t), **{k: counts[k] for k in want}}))


if __name__ == "__main__":
    main()
