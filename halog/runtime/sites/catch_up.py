"""Brings one partition that this site is to take over level with the site that serves it (F1, M5).

First the other site's nodes end their epoch, or are not there. Then its log is fenced, so that nothing counts that
anybody there still sends. Then this site waits until it has that log up to the fence. No step waits, so many partitions
catch up at the same time, and one that does not holds up no other.
"""

from __future__ import annotations

import time

from halog.core.ids import Member
from halog.core.log import records
from halog.core.table.table import PartitionTable
from halog.errors import LogError
from halog.metadata.mirrors import COMPARES, standing
from halog.metadata.nodes import running
from halog.metadata.partition_tables import table_of
from halog.ports import Coordinator, LogSession, TopicPartition
from halog.runtime.sites.relinquish import fence
from halog.runtime.support.adapters import SiteAccess

AGAIN_S = 2.0
"""Pause between looks whether somebody over there has begun an epoch above the fence. It is longer than this site takes
to give its log away to a site whose log is its own."""


class CatchUp:
    """A `CatchUp` follows one partition. `here`: the coordinator in which this site's mirror writes its standing."""

    def __init__(self, here: Coordinator, remote: SiteAccess, partition: str, *, again_s: float = AGAIN_S) -> None:
        self._here = here
        self._remote = remote
        self._again_s = again_s
        self.partition = partition
        self.why = "it was not looked at"
        """Says why it is not level so far."""
        self.fencing_since: float | None = None
        """Since when a fence is under way; None: none is."""
        self.fenced: int | None = None
        """The offset of the fence in the other log."""
        self._looked_at = 0.0
        self._number = 0
        """When the table was last looked at, and the number of its epoch."""
        self._there: PartitionTable | None = None
        """The other site's table when its nodes had ended their epoch."""
        self._session: LogSession | None = None
        self._landed: list[int | None] = []

    def step(self, *, may_fence: bool = True) -> bool:
        """Go on, and return whether it is level. `may_fence`: a fence may begin now, since not too many others are
        under way. HalogError if it cannot become level."""
        if self._there is None:
            there = table_of(self._remote.coordinator, self.partition)
            if there.active is not None and there.active in running(self._remote.coordinator):
                self.why = "its active node has not handed over"
            elif may_fence:
                self._there = there
                self._fence(there, there.epoch.number)
            return False
        if self._session is not None:
            self._await_fence(self._session)
        return self.fenced is not None and self._has_come(self._there, self.fenced, may_fence=may_fence)

    def _fence(self, there: PartitionTable, highest: int) -> None:
        """Start an epoch in the other site's log that nobody will serve."""
        tp, me = TopicPartition(there.topic, there.index), Member("operator", time.time_ns())
        epoch = fence(self._remote.coordinator, there.name, self._remote.name, highest, me)
        record = records.EpochStarted(records.Header(bytes.fromhex(there.log_id), epoch), there.epoch, 0)
        self.why = f"the log of site {self._remote.name} does not answer"
        self.fencing_since = time.monotonic()
        self.fenced = None
        self._landed = []
        self._looked_at = self.fencing_since
        self._number = epoch.number
        self._session = self._remote.log.session()
        landed = self._landed
        self._session.append(tp, records.encode(record), lambda offset, why: landed.append(offset))

    def _await_fence(self, session: LogSession) -> None:
        session.poll(0.0)
        if not self._landed:
            return
        self.close()
        self.fenced = self._landed[0]
        if self.fenced is None:
            raise LogError(
                f"the log of {self.partition} at site {self._remote.name} did not take an epoch",
                partition=self.partition,
            )

    def _has_come(self, there: PartitionTable, offset: int, *, may_fence: bool) -> bool:
        """Is all of the other log up to the fence here? If that does not come about, it is fenced once more."""
        now = standing(self._here, self.partition)
        if now is None or now.error or now.site != self._remote.name or now.checkpoint.offset <= offset:
            why = "nothing was ever mirrored" if now is None else now.error or "the mirror is behind"
            self.why = f"{why}; see `halog site lag`"
            if why == COMPARES and may_fence:
                self._see_whose_it_is()
            return False
        state = now.checkpoint.state
        if not state.owner and state.opened:  # the log was ahead of the znode: an epoch above the fence is open
            if may_fence:
                self._fence(there, state.epoch.number)
            return False
        return True

    def _see_whose_it_is(self) -> None:
        """Begin another fence if the other site has given this one's log back. This site's log is to go to the other
        site, and waits until that site's log is its own, which the fence has made it. If that site has given it back
        meanwhile, since nothing came of the fence for long, each would wait for the other."""
        now = time.monotonic()
        if now - self._looked_at < self._again_s:
            return
        self._looked_at = now
        there = table_of(self._remote.coordinator, self.partition)
        given = there.owner not in ("", self._remote.name)  # still so: nobody has said the contrary
        if given and there.active is None and there.epoch.number > self._number:
            self._fence(there, there.epoch.number)

    def close(self) -> None:
        """Stop; a fence that is under way may still land."""
        session = self._session
        self._session = None
        self.fencing_since = None
        if session is not None:
            session.abandon()
