"""This module is the active node's part in making a copy anew: one step at a time."""

from __future__ import annotations

from halog.core import events as ev
from halog.core.commit.push import ReplicaPush
from halog.core.commit.writer import Writer
from halog.core.roles import Role
from halog.core.state.copy_state import CopyState
from halog.core.table.resync import empty_one
from halog.core.table.table import OUT


class ResyncSteps:
    """Knows, for one epoch, which acknowledgements may still be of a copy that was dropped."""

    def __init__(self, copy: CopyState, writer: Writer, pushing: ReplicaPush) -> None:
        self._copy = copy
        self._writer = writer
        self._pushing = pushing
        self._beyond: tuple[str, int] | None = None
        """A node that was seen to have dropped its copy, and the last lsn that was given out until then."""

    def look(self) -> None:
        """Give out an lsn that only the new copy can acknowledge, once it is seen that the old one was dropped."""
        table = self._copy.table
        node = empty_one(table)
        if node and self._copy.role is Role.ACTIVE and (self._beyond is None or self._beyond[0] != node):
            self._beyond = node, self._writer.last_lsn
            self._pushing.append_nothing()
        if table.resync is not None and table.resync.phase == OUT:
            self._beyond = None

    def stale(self, e: ev.ReplicaAck) -> bool:
        """Say whether the acknowledgement may be of the copy that was dropped."""
        if self._beyond is not None and e.member.node == self._beyond[0]:
            return e.lsn <= self._beyond[1]
        return e.member.node == empty_one(self._copy.table)
