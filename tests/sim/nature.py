"""How unkind this world is: delays and the odds of each fault, drawn once per seed (each seed enables some faults only,
so that rare combinations are not drowned by common ones). `calm` is a world in which everything works."""

from __future__ import annotations

import enum
import random


class Fate(enum.Enum):
    """What becomes of one append or one compare-and-set."""

    FINE = "fine"
    FAILED = "failed"
    """Never happens, and is reported as unknown."""
    UNSAID = "unsaid"
    """Happens, and is reported as unknown."""
    LATE = "late"
    """Is reported as unknown, and happens later."""
    HOLE = "hole"
    """Never happens, is reported as unknown; what was sent behind it happens all the same (no gapless guarantee)."""


class Nature:
    """Delays in ms as (shortest, longest), odds as probabilities. `sloppy`: the rest of a batch of entries that was
    already fetched is still given to the core after it asked to read no more, or from elsewhere."""

    def __init__(self, rng: random.Random, *, calm: bool = False) -> None:
        self.rng = rng
        self.calm()
        if not calm:
            self._rough()

    def calm(self) -> None:
        self.net = (0.1, 0.6)
        self.drop = 0.0
        self.duplicate = 0.0
        self.land = (0.3, 2.0)
        self.ack = (0.1, 1.0)
        self.append_failed = self.append_unsaid = self.append_hole = 0.0
        self.abandoned_lost = 0.4
        self.abandoned_held = 0.0
        self.read = (0.1, 1.0)
        self.batch = 8
        self.take = (0.0, 0.5)
        self.flush = (0.0, 20.0)
        self.poll = (0.0, 0.0)
        self.cas = (0.5, 3.0)
        self.watch = (0.5, 5.0)
        self.cas_failed = self.cas_unsaid = self.cas_late = self.stale_read = 0.0
        self.notice = (0.5, 10.0)
        self.push = (0.0, 0.1)
        self.sloppy = False

    def _rough(self) -> None:
        r, maybe = self.rng, self._maybe
        self.drop = maybe(0.02, 0.3)
        self.duplicate = maybe(0.1)
        self.net = (0.1, r.choice((0.6, 5.0, 60.0)))
        self.land = (0.3, r.choice((2.0, 2.0, 30.0)))
        self.ack = (0.1, r.choice((1.0, 40.0)))
        self.append_failed = maybe(0.01, 0.1)
        self.append_unsaid = maybe(0.01, 0.1)
        self.append_hole = maybe(0.0, 0.0, 0.05)
        self.abandoned_lost = r.choice((0.0, 0.4))
        self.abandoned_held = r.choice((0.3, 0.9))
        self.read = (0.1, r.choice((1.0, 1.0, 40.0)))
        self.flush = (0.0, r.choice((1.0, 20.0, 400.0)))
        self.take = (0.0, r.choice((0.5, 0.5, 8.0, 60.0, 300.0)))
        self.poll = (0.0, r.choice((0.0, 0.0, 2.0, 10.0)))
        self.batch = r.choice((1, 4, 8))
        self.watch = (0.5, r.choice((5.0, 50.0, 400.0)))
        self.cas_failed = maybe(0.3)
        self.cas_unsaid = maybe(0.3)
        self.cas_late = maybe(0.3)
        self.stale_read = maybe(0.3)
        if r.random() < 0.2:  # sets go through and nobody hears of it for long
            self.cas_failed = 0.1
            self.cas_unsaid = 0.5
            self.cas_late = 0.3
            self.watch = (0.5, 400.0)
            self.stale_read = 0.8
        self.notice = (0.5, r.choice((10.0, 200.0)))
        self.sloppy = r.random() < 0.6
        self.push = (0.0, r.choice((0.1, 3.0, 30.0, 300.0)))

    def _maybe(self, *odds: float) -> float:
        return self.rng.choice((0.0, *odds))

    def delay(self, span: tuple[float, float]) -> float:
        low, high = span
        return low + (high - low) * self.rng.random()

    def chance(self, odds: float) -> bool:
        return odds > 0.0 and self.rng.random() < odds

    def append_fate(self) -> Fate:
        if self.chance(self.append_failed):
            return Fate.FAILED
        if self.chance(self.append_hole):
            return Fate.HOLE
        return Fate.UNSAID if self.chance(self.append_unsaid) else Fate.FINE

    def cas_fate(self) -> Fate:
        if self.chance(self.cas_failed):
            return Fate.FAILED
        if self.chance(self.cas_unsaid):
            return Fate.UNSAID
        return Fate.LATE if self.chance(self.cas_late) else Fate.FINE
