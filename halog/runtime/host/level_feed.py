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


class LevelFeed:
    """A `LevelFeed` tells copies of the level. What fails is tried again when the coordinator says the level next: it
    does so behind each lost connection."""

    def __init__(
        self,
        coordinator: Coordinator,
        copies: Callable[[], Collection[Copy]],
        run: Callable[[Callable[[], None]], None],
    ) -> None:
        """Take the copies that are hosted now, and who does what may block."""
        self._coordinator = coordinator
        self._copies = copies
        self._run = run
        self._level = 1
        self._lock = threading.Lock()
        self._raising = 0
        """The level that the coordinator's is being raised to, for one copy or for hundreds; 0: none."""

    def seen(self, level: int) -> None:
        """Take the level that the coordinator says."""
        self._level = level
        for copy in self._copies():
            self.tell(copy)

    def tell(self, copy: Copy) -> None:
        """Tell a copy, one that is hosted from now on, too."""
        copy.post(ev.LevelSeen(self._level))

    def stands(self, level: int) -> None:
        """Raise the coordinator's level to one that stands already."""
        with self._lock:
            if level <= self._raising:
                return
            self._raising = level
        self._run(lambda: self._raise(level))

    def _raise(self, level: int) -> None:
        with self._lock:
            if self._raising == level:
                self._raising = 0  # first: who asks from now on may have heard of a later change
        try:
            raise_level(self._coordinator, level, BY, int(time.time() * 1000))
        except (HalogError, UnknownResult) as e:
            logger.warning("a log states level %d, and the coordinator's could not be raised to it yet: %s", level, e)
