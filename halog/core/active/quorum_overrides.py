"""The end of an override that was to last a while (Q3): this copy counts it no more from its time on, whether or not
anybody has taken it out of the znode.

The znode tells the end as a time on the wall. Law: from the first look on it is a time of the driver's clock, and a
later look at the wall may bring it nearer and never puts it off; so a clock that is set back gives nobody more time,
and what is over stays over. The driver's clock is compared before each event is taken: a process that was stopped
beyond the end counts no acknowledgement by an override that is over. What was counted before it may be heard later.

What is over is not in the copy's table. So every part of the core goes by the quorum again, and the next
compare-and-set of this copy takes it out of the znode, if nobody else does before (`halog.metadata.groups`).
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
"""Two nodes' clocks are no further apart, where they are kept: whoever finds an override gone from the znode so long
before its end takes it that a node did it for which that is over, and not an operator."""


class QuorumOverrides:
    """Of one copy. `ahead`: how far the wall's clock (ms since 1970) is ahead of the driver's."""

    __slots__ = ("_ahead", "_copy", "_ends", "due", "over")

    def __init__(self, copy: CopyState, ahead: int) -> None:
        self._copy = copy
        self._ahead = ahead
        self._ends = {until: until - ahead for until in ends(copy.table.group)}
        """By the end as the znode tells it, when that is on the driver's clock."""
        self.over: frozenset[int] = frozenset()
        """Those that are over, and were in the znode when it was seen last."""
        self.due = min(self._ends.values(), default=FAR)
        """When the next one ends."""

    def of(self, table: PartitionTable) -> PartitionTable:
        """What counts of a table that the znode holds."""
        before = self._ends
        self._ends = {t: min(t - self._ahead, before.get(t, FAR)) for t in ends(table.group)}
        return self._left(table)

    def passed(self) -> frozenset[int]:
        """The ends, as the znode tells them, of those in this copy's table that are over for some node by now."""
        now = self._copy.now + self._ahead
        return frozenset(until for until in ends(self._copy.table.group) if until - now <= CLOCKS_MS)

    def look(self, ahead: int) -> None:
        """Look at the clock on the wall; `due` may be nearer then."""
        self._ahead = ahead
        if self.due != FAR:
            self._ends = {t: min(t - ahead, end) for t, end in self._ends.items()}
            self.due = min(end for t, end in self._ends.items() if t not in self.over)

    def end(self) -> None:
        """End those whose time is over: this copy's table has them no more."""
        self._copy.table = self._left(self._copy.table)

    def _left(self, table: PartitionTable) -> PartitionTable:
        known, self.over = self.over, frozenset(t for t, end in self._ends.items() if end <= self._copy.now)
        self._copy.out += ended(table, self.over - known)
        self.due = min((end for t, end in self._ends.items() if t not in self.over), default=FAR)
        return msgspec.structs.replace(table, group=without(table.group, self.over)) if self.over else table
