"""What may happen in `merging_world`, as steps that hypothesis draws, or chance."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import strategies as st

from tests.unit.core.sites.merge_model import World

TABLE: list[tuple[int, str, tuple[tuple[int, int], ...]]] = [
    (24, "commit", ((0, 4), (0, 9), (0, 3), (0, 4))),
    (4, "prepare", ((0, 4), (0, 3))),
    (3, "decide", ()),
    (1, "horizon", ()),
    (2, "elect", ((0, 1),)),
    (8, "land", ((0, 7), (1, 4))),
    (10, "land", ((-2, -1), (1, 6))),
    (2, "alone", ()),
    (3, "close", ((0, 1),)),
    (3, "give", ((0, 1),)),
    (3, "mirror", ()),
    (6, "look", ((0, 3), (1, 12))),
    (3, "stand", ((0, 3),)),
    (1, "stop_mirror", ((0, 3),)),
    (5, "merge", ((0, 4),)),
    (1, "undo", ()),
    (10, "go_on", ((1, 3),)),
    (1, "give_up", ()),
    (1, "heal", ()),
    (5, "split", ((0, 3),)),
    (7, "restore", ((0, 5), (1, 9), (0, 4))),
]
"""How often, what, and from which ranges its numbers are; each is done at one of the sites."""

Step = tuple[Any, ...]
_SITES = ("west", "east")

STEP = st.one_of(
    *[
        st.tuples(st.just(name), st.sampled_from(_SITES), *(st.integers(a, b) for a, b in ranges))
        for weight, name, ranges in TABLE
        for _ in range(max(1, weight // 3))
    ]
)


def by_chance(seed: int, made: type[World] = World) -> tuple[World, list[Step]]:
    """A world, and what is to happen in it."""
    chance = random.Random(seed)
    world = made(keeps_before=chance.random() < 0.7, verdicts=chance.randrange(5))
    picked = chance.choices(TABLE, [weight for weight, _, _ in TABLE], k=chance.randint(10, 90))
    steps = [(name, chance.choice(_SITES), *(chance.randint(a, b) for a, b in ranges)) for _, name, ranges in picked]
    return world, steps


def play(world: World, steps: list[Step]) -> World:
    """To the end, where both sites are one again."""
    for name, *args in steps:
        getattr(world, name)(*args)
        world.check()
    world.finish()
    world.accounted()
    return world


def failure_of(seed: int) -> str:
    """What goes wrong in that world; "": nothing."""
    try:
        play(*by_chance(seed))
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:500] or "?"
    return ""
