"""How long the log takes to answer who asks whether it does: at once; always as slow as this; or now so, now so.

Drawn from chances of their own. Its appends and entries come at their own pace all the while.
"""

from __future__ import annotations

import random
from typing import Final

QUICK_MS: Final = 1.6
"""There and back: where no server goes away, and once the world is healed."""
SLOW_MS: Final = (0.0, 1_200.0)
"""Up to eight times of what a replica may be silent."""
PHASE_MS: Final = (100.0, 1_500.0)
PHASES: Final = 12


class Answers:
    """Of one log."""

    def __init__(self) -> None:
        self._phases = [(float("inf"), QUICK_MS)]

    def draw(self, seed: int) -> str:
        """What kind this is."""
        rng = random.Random(f"{seed}/answers")
        kind = rng.choice(("quick", "slow", "changing"))
        if kind == "slow":
            self._phases = [(float("inf"), rng.uniform(*SLOW_MS))]
        elif kind == "changing":
            at = 0.0
            self._phases = []
            for _ in range(PHASES):
                at += rng.uniform(*PHASE_MS)
                self._phases.append((at, rng.choice((QUICK_MS, rng.uniform(*SLOW_MS)))))
            self._phases.append((float("inf"), QUICK_MS))
        return kind

    def heal(self) -> None:
        self._phases = [(float("inf"), QUICK_MS)]

    def way(self, now: float) -> float:
        """How long a question, or an answer, is under way that leaves now."""
        return next(ms for until, ms in self._phases if now < until) / 2

    @property
    def longest(self) -> float:
        """The longest that one answer takes, whenever it is asked for."""
        return max(ms for _, ms in self._phases)
