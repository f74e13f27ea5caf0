"""This module says at which rows nodes are hurt, join and leave, and objects move. Pure: a function of the number of
rows and the seed.

The client stops at a gate until what comes before it is over, so that a short run has all of it in the middle, too; a
long one never notices. The jitter makes runs with different seeds hit different moments. Changes that copy or move
objects come early, while there are few objects.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """Holds numbers of finished rows at which something happens, and rows the client must not pass before it is
    over."""

    join_at: int
    ring_at: int
    leave_at: int
    kill_at: int
    restart_at: int
    freeze_at: int
    gate_join: int
    """The client waits here until the new node has its share."""
    gate_ring: int
    """The client waits here until every object is where the other ring has it."""
    gate_leave: int
    """The client waits here until the node that leaves is gone."""
    gate_restart: int
    """The client waits here until the killed node is back."""
    gate_freeze: int
    """The client waits here until the stopped node is back."""


def plan(rows: int, seed: int) -> Schedule:
    """Return a schedule: join, move and leave at the beginning, kill in the first third, restart a little later, freeze
    behind the middle."""
    chance = random.Random(seed)
    kill = 0.22 + 0.08 * chance.random()
    freeze = 0.58 + 0.08 * chance.random()
    return Schedule(
        join_at=int(rows * (0.02 + 0.02 * chance.random())),
        ring_at=int(rows * 0.09),
        leave_at=int(rows * 0.15),
        kill_at=int(rows * kill),
        restart_at=int(rows * (kill + 0.12)),
        freeze_at=int(rows * freeze),
        gate_join=int(rows * 0.08),
        gate_ring=int(rows * 0.14),
        gate_leave=int(rows * 0.21),
        gate_restart=max(1, int(rows * 0.55)),
        gate_freeze=int(rows * 0.92),
    )


def sabotaged_row(rows: int, seed: int) -> int:
    """Return the row whose commit is dropped."""
    return random.Random(seed).randrange(rows // 4, max(rows // 4 + 1, rows // 2))
