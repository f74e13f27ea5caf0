"""This module holds what there is to see of a split: one scene for the story, one for each site. `picture` draws the
plain values."""

from __future__ import annotations

from dataclasses import dataclass, field

from halog.demo.scene import Scene
from halog.demo.split.steps import EAST, WEST

OPEN, CUT = "open", "cut"


@dataclass
class SplitScene(Scene):
    """Holds everything on the screen. `rows` are the flights; a site's `done` are steps."""

    line: str = OPEN
    sites: dict[str, Scene] = field(default_factory=lambda: {WEST: Scene(0), EAST: Scene(0)})
    serves: dict[str, int] = field(default_factory=lambda: {WEST: 0, EAST: 0})
    """Partitions that each site believes to serve."""
