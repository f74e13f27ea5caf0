"""This module ends an override of the quorum that was to last a while (Q3). From its end on this copy does not count
it, whether or not it was taken out of the znode.

The znode tells the end as a time on the wall. Law: from the first look on it is a time of the driver's clock. A later
look at the wall may bring the end nearer, but never puts it off. So a clock that is set back gives nobody more time,
and what is over stays over. The driver's clock is compared before each event is taken: a process that was stopped
beyond the end counts no acknowledgement by an override that is over. What was counted before the end may be heard
later.

What is over is not in the copy's table. So every part of the core goes by the quorum again. The next compare-and-set of
this copy takes the override out of the znode, if nobody else does before (`halog.metadata.groups`).
"""

from __future__ import annotations

from typing import Final

import msgspec

from halog.core.state.copy_state import CopyState
from halog.core.table.changes import ended
from halog.core.table.group import ends, without
from halog.core.table.table import PartitionTable

FAR: Final = 1 << 63

CLOCKS_MS: Final = 1_000
"""The clocks of two nodes differ by no more than this, where they are kept. If an override is gone from the znode so
long before its end, a node is taken to have removed it because it is over there, and not an operator."""


class QuorumOverrides:
    """Keeps the overrides of one copy. `ahead`: how far the wall's clock (ms since 1970) is ahead of the driver's."""

    __slots__ = ("_ahead", "_copy", "_ends", "due", "over")

    def __init__(self, copy: CopyState, ahead: int) -> None:
        self._copy = copy
        self._ahead = ahead
        self._ends = {until: until - ahead for until in ends(copy.table.group)}
        """The end on the driver's clock, by the end as the znode tells it."""
        self.over: frozenset[int] = frozenset()
        """The overrides that are over, and were in the znode when it was seen last."""
        self.due = min(self._ends.values(), default=FAR)
        """When the next one ends."""

    def of(self, table: PartitionTable) -> PartitionTable:
        """Return the table that counts, if the znode holds `table`: without overrides that are over."""
        before = self._ends
        self._ends = {t: min(t - self._ahead, before.get(t, FAR)) for t in ends(table.group)}
        return self._left(table)

    def passed(self) -> frozenset[int]:
        """Return the ends, as the znode tells them, of overrides in this copy's table that are over for some node by
        now."""
        now = self._copy.now + self._ahead
        return frozenset(until for until in ends(self._copy.table.group) if until - now <= CLOCKS_MS)

    def look(self, ahead: int) -> None:
        """Look at the clock on the wall; `due` may come nearer then."""
        self._ahead = ahead
        if self.due != FAR:
            self._ends = {t: min(t - ahead, end) for t, end in self._ends.items()}
            self.due = min(end for t, end in self._ends.items() if t not in self.over)

    def end(self) -> None:
        """Take the overrides whose time is over out of this copy's table."""
        self._copy.table = self._left(self._copy.table)

    def _left(self, table: PartitionTable) -> PartitionTable:
        known, self.over = self.over, frozenset(t for t, end in self._ends.items() if end <= self._copy.now)
        self._copy.out += ended(table, self.over - known)
        self.due = min((end for t, end in self._ends.items() if t not in self.over), default=FAR)
        return msgspec.structs.replace(table, group=without(table.group, self.over)) if self.over else table
