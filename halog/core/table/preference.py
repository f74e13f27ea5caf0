"""This module says which node should be active: the most recent copy, then node priority, then place in the node list
(Q2). It is arithmetic only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from halog.core.ids import Position

NEVER, NORMAL, HIGH, HIGHEST = 0, 1, 2, 3


class Candidate(NamedTuple):
    """A `Candidate` is a node that answered: what it holds and whether it may be active now."""

    node: str
    position: Position
    priority: int = NORMAL
    eligible: bool = True
    holder: bool = False
    """Does it have everything that was acknowledged and that the log may lack? Where commits wait for the log, no
    candidate needs to."""


def pick(candidates: Iterable[Candidate], configured: Sequence[str]) -> str | None:
    """Return the node that should take over, or None if no candidate may. Ties go to the earlier place in
    `configured`."""
    place = {name: i for i, name in enumerate(configured)}
    able = [c for c in candidates if c.eligible and c.priority != NEVER and c.node in place]
    if not able:
        return None
    return max(able, key=lambda c: (c.holder, c.position, c.priority, -place[c.node])).node
