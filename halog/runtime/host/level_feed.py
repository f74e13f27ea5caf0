"""Brings the cluster's level to the copies hosted here, and back to the coordinator what a log states beyond it (U1).

A copy states a level in its log before it writes anything of that level there. A coordinator that was put back to older
data may say less than a log does: then nothing is lowered, and the coordinator's level is raised again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from typing import Final

from halog.core import events as ev
from halog.errors import HalogError
from halog.metadata.cluster_level import raise_level
from halog.ports import Coordinator, UnknownResult
from halog.runtime.replica.driver import Copy

logger = logging.getLogger("halog.host")

BY: Final = "a log that states it"
LOOK_S: Final = 0.25
"""How often it is looked whether the coordinator's level is to be raised."""


class LevelFeed:
    """A `LevelFeed` tells copies of the level, and raises the coordinator's to one that stands already: it tries until
    that is done."""

    def __init__(self, coordinator: Coordinator, copies: Callable[[], Collection[Copy]]) -> None:
        """Take the copies that are hosted now."""
        self._coordinator = coordinator
        self._copies = copies
        self._level: int | None = None
        """What the coordinator has said; None: nothing yet."""
        self._lock = threading.Lock()
        self._stands = 0
        """The level that the coordinator's is to be raised to, as one copy says, or hundreds; 0: none."""
        self._failed = False

    def seen(self, level: int) -> None:
        """Take the level that the coordinator says."""
        self._level = level
        for copy in self._copies():
            self.tell(copy)

    def tell(self, copy: Copy) -> None:
        """Tell a copy, one that is hosted from now on, too."""
        if self._level is not None:
            copy.post(ev.LevelSeen(self._level))

    def stands(self, level: int) -> None:
        """Let the coordinator's level be raised to one that stands already."""
        with self._lock:
            self._stands = max(self._stands, level)

    def turn(self, closing: threading.Event) -> None:
        """Take one turn of the thread that raises it."""
        if closing.wait(LOOK_S) or not self._stands:
            return
        level = self._stands
        try:
            raise_level(self._coordinator, level, BY, int(time.time() * 1000))
        except (HalogError, UnknownResult) as e:
            if not self._failed:
                logger.warning("a log states level %d, and the coordinator's is not raised to it yet: %s", level, e)
            self._failed = True
            return
        self._failed = False
        with self._lock:
            if self._stands == level:
                self._stands = 0
