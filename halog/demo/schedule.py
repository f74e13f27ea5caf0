"""At which rows the nodes are hurt. Pure: a function of the number of rows and the seed.

The client stops at a gate until the fault before it is over, so that a short run has its faults in the middle, too; a
long one never notices. The jitter makes runs with different seeds hit different moments.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """Numbers of finished rows at which something happens, and rows the client must not pass before it is over."""

    kill_at: int
    restart_at: int
    freeze_at: int
    gate_restart: int
    """Not passed before the killed node is back."""
    gate_freeze: int
    """Not passed before the stopped node is back."""


def plan(rows: int, seed: int) -> Schedule:
    """Kill in the first third, restart a little later, freeze behind the middle."""
    chance = random.Random(seed)
    kill = 0.22 + 0.08 * chance.random()
    freeze = 0.58 + 0.08 * chance.random()
    return Schedule(
        kill_at=int(rows * kill),
        restart_at=int(rows * (kill + 0.12)),
        freeze_at=int(rows * freeze),
        gate_restart=max(1, int(rows * 0.55)),
        gate_freeze=max(1, int(rows * 0.92)),
    )


def sabotaged_row(rows: int, seed: int) -> int:
    """The row whose commit is dropped."""
    return random.Random(seed).randrange(rows // 4, max(rows // 4 + 1, rows // 2))
