"""Looks whether a running process still knows its cluster's level (U1).

Whoever raises it has asked who runs what; a process that came or was silent meanwhile may be left. From when it hears
of the higher level it takes on nothing new: a node goes offline, as one without a quorum does, and gives up what it
serves; a client refuses what it is asked for. What was under way before is settled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from halog.errors import CoordinatorError, VersionMismatchError
from halog.metadata.cluster_level import LEVEL_PATH, check_found
from halog.ports import Coordinator, Versioned
from halog.runtime.rpc.own_state import OwnState

logger = logging.getLogger("halog.node")


class LevelWatch:
    """A `LevelWatch` hears of the level in one run of a process. What is not known once is not known for the rest of
    the run."""

    def __init__(
        self,
        coordinator: Coordinator,
        cluster: str,
        own: OwnState,
        changed: Callable[[], None],
        known: Callable[[int], None],
    ) -> None:
        """Note in `own` that the level is not known any more, and then call `changed`. Call `known` with each level
        that is."""
        self._coordinator = coordinator
        self._cluster = cluster
        self._own = own
        self._changed = changed
        self._known = known

    def begin(self) -> None:
        """Hear of every change from now on, those during a lost session behind it."""
        self._coordinator.watch(LEVEL_PATH, self._seen)

    def _seen(self, path: str, found: Versioned | None) -> None:
        try:
            self._known(check_found(found, self._cluster))
        except CoordinatorError as e:
            logger.error("this process goes on as it is, and will not start again: %s", e)
        except VersionMismatchError as e:
            if self._own.outgrown(e):
                logger.error("this process takes part no more: %s", e)
                self._changed()
