"""Takes out of ZooKeeper what was to last a while, once that is over (Q3)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection

from halog.core.table.group import without
from halog.errors import HalogError
from halog.metadata.groups import change_group
from halog.ports import Coordinator
from halog.runtime.replica.driver import Copy

logger = logging.getLogger("halog.host")

LOOK_S = 0.5
"""How often a node looks whether an override that is over is to be taken out: its copies count it no more."""


class OverrideExpiry:
    """Takes the overrides of the partitions hosted here out of ZooKeeper when their time is over. Their copies count
    them no more by then (`halog.core.active.quorum_overrides`), whether this comes to anything or not: it is for the
    other nodes, and for operators."""

    def __init__(self, coordinator: Coordinator, copies: Callable[[], Collection[Copy]]) -> None:
        self._coordinator = coordinator
        self._copies = copies

    def turn(self, closing: threading.Event) -> None:
        """Take one look at all of them."""
        if not closing.wait(LOOK_S):
            for copy in self._copies():
                if over := copy.core.overrides.over:
                    self._end(copy.name, over)

    def _end(self, partition: str, over: Collection[int]) -> None:
        try:
            change_group(self._coordinator, partition, lambda table: without(table.group, over))
        except HalogError as e:
            logger.warning("the override of %s is over, and stands in ZooKeeper still: %s", partition, e)
            return
        logger.warning("the override of %s has ended: its time is over", partition)
