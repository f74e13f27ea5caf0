"""How many partitions a history over several has (P13): mostly two or three, as banks and shops draw themselves; now
and then one, a few, or dozens.

Drawn from chances of their own: the histories of two or three are replayed as they were. Where there are dozens, more
movers do more, and what must be well in the end has longer.
"""

from __future__ import annotations

import random

ONE, FEW, DOZENS = 0.10, 0.025, 0.005
"""How likely each is. A history costs as much as its partitions: together these cost next to nothing."""
MANY = 16
"""Above so many a history has dozens."""


def partitions(seed: int, usual: int) -> int:
    """Of a history of this seed."""
    chance = random.Random(f"{seed}/partitions")
    turn = chance.random()
    if turn < ONE:
        return 1
    if turn < ONE + FEW:
        return chance.randint(4, 7)
    return chance.randint(MANY + 1, 2 * MANY) if turn < ONE + FEW + DOZENS else usual


def is_many(count: int) -> bool:
    """Are these dozens?"""
    return count > MANY


TOLD = "one partition", "two or three partitions", "a few partitions", "dozens of partitions"


def told(count: int) -> str:
    """What is counted of it."""
    return TOLD[(count > 1) + (count > 3) + is_many(count)]


def movers(count: int, usual: int) -> int:
    """Of a shop: each looks at one partition at a time."""
    return 5 if is_many(count) else usual
