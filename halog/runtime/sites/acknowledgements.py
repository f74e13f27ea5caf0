"""Acknowledges to a site what the logs of other sites have of its partitions, and tells these sites that commits wait
for it (`sync_sites`, M5).

The node that mirrors a partition says how far its copy has read this site's own log. It appends that to a topic of the
site that serves, over the connection that it has anyway; the nodes there follow the topic. An entry says what a log has
accepted, so it is true whoever wrote it, and when. It may be lost: it is repeated all the time, which also shows that
the site is up.

    <cluster>.arrived      JSON: `MirroredPositions`, in the log of the site that serves

A site notes what it hears of waiting commits (`halog.metadata.sync_waits`).
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

import msgspec

from halog.core import events as ev
from halog.core.ids import EpochId
from halog.core.table.table import PartitionTable
from halog.errors import HalogError, LogError
from halog.metadata.log_holds import now_ms
from halog.metadata.sync_waits import FRESH_S, SyncWait, note
from halog.ports import Log, LogSession, LogTail, OutOfRange, TopicPartition, UnknownResult
from halog.runtime.sites.site_paces import PACES, SitePaces
from halog.runtime.support.adapters import SiteAccess

if TYPE_CHECKING:
    from halog.runtime.host.host import Host
    from halog.runtime.replica.driver import Copy
    from halog.runtime.sites.mirror_assignment import MirrorDuties

logger = logging.getLogger("halog.mirror")

GATHER_S = 0.002
"""What arrives in this time is told together: each time costs an append to the other site's log, and a look at all
copies."""

WAIT_S = 0.1
"""One wait for what other sites tell."""

STUCK_S = 3.0
"""If an entry is not accepted for so long, the connection is made anew."""

AGAIN_S = 1.0
"""Pause between attempts to connect."""

LOOK_S = 2.0
"""It is looked this often whether commits wait for this site."""


class MirroredPositions(msgspec.Struct, frozen=True):
    """Says how much of other sites' partitions the log of one site has accepted."""

    site: str
    by: str
    """The node that mirrors the partitions."""
    items: list[tuple[str, EpochId, int]]
    """Partition, epoch and lsn of each."""


_ARRIVED = msgspec.json.Decoder(MirroredPositions)


class AcknowledgementSender:
    """Tells one other site what has arrived here of what it serves. It runs on one thread; `stir` is called from
    others."""

    def __init__(
        self,
        host: Host,
        assignments: MirrorDuties,
        site: str,
        reach: Callable[[str], SiteAccess],
        topic: TopicPartition,
        policies: Collection[str],
        paces: SitePaces = PACES,
    ) -> None:
        """Take `policies`: those whose commits are to wait for this site."""
        self._host = host
        self._assignments = assignments
        self._site = site
        self._reach = reach
        self._topic = topic
        self._policies = policies
        self._repeat_s = paces.repeat_s
        self._stirred = threading.Event()
        self._remote: SiteAccess | None = None
        self._session: LogSession | None = None
        self._told: dict[str, tuple[EpochId, int]] = {}
        self._repeated_at = -math.inf
        self._since = 0.0
        """Since when the last entry is under way; 0: none is."""

    def stir(self) -> None:
        """Note that a copy may have read something."""
        self._stirred.set()

    def turn(self) -> None:
        """Tell what is new, or everything; one entry at a time, as the next one would wait for its answer anyway."""
        try:
            if self._since:
                self._await_answer()
            else:
                self._stirred.wait(self._repeat_s)
                self._stirred.clear()
                self._look()
        except (HalogError, UnknownResult) as e:
            logger.debug("site %s is not told what has arrived here: %s", self._site, e)
            self.close()
            self._host.pause(AGAIN_S)

    def _look(self) -> None:
        if time.monotonic() - self._repeated_at >= self._repeat_s:
            self._repeated_at = time.monotonic()
            self._told.clear()
        items = [(name, *at) for name, at in self._mine() if self._told.get(name) != at]
        if items:
            self._tell(items)

    def _mine(self) -> list[tuple[str, tuple[EpochId, int]]]:
        """Return what this node mirrors from there, and how far this site's own log has it, by what the copy has read
        in it."""
        found = []
        for copy in list(self._host.copies.values()):
            if copy.core.state.table.policy in self._policies and self._assignments.is_wanted(copy):
                state = copy.core.state.chain.state
                if state.owner == self._site and state.lsn:
                    found.append((copy.name, state.head))  # not of an epoch that this site has begun, and gave away
        return found

    def _tell(self, items: list[tuple[str, EpochId, int]]) -> None:
        session = self._session or self._opened()
        if self._remote is not None:
            self._remote.check_level()
        if session.failed:
            raise LogError(f"its log did not take it ({session.failed})")
        data = msgspec.json.encode(MirroredPositions(self._host.site, self._host.me.node, items))
        self._since = time.monotonic()
        session.append(self._topic, data, self._taken)
        self._told.update((name, (epoch, lsn)) for name, epoch, lsn in items)

    def _await_answer(self) -> None:
        session = self._session
        assert session is not None
        session.poll(WAIT_S)
        if self._since and (session.failed or time.monotonic() - self._since >= STUCK_S):
            raise LogError(f"its log does not take it ({session.failed or 'no answer'})")
        self._host.pause(GATHER_S)

    def _taken(self, offset: int | None, why: str | None) -> None:
        """Note that the entry was accepted, or have it told again: the session has failed then, too."""
        if offset is None:
            self._told.clear()
        self._since = 0.0

    def _opened(self) -> LogSession:
        self._remote = self._reach(self._site)
        self._session = self._remote.log.session()
        return self._session

    def close(self) -> None:
        """Close the connection."""
        self._told.clear()
        session = self._session
        remote = self._remote
        self._session = None
        self._remote = None
        if session is not None:
            session.abandon()
        if remote is not None:
            remote.close()
        self._since = 0.0


class AcknowledgementReceiver:
    """Tells the copies of a host what the logs of other sites have. It runs on one thread."""

    def __init__(self, host: Host, log: Log, topic: TopicPartition) -> None:
        self._host = host
        self._log = log
        self._topic = topic
        self._tail: LogTail | None = None

    def turn(self) -> None:
        """Wait for entries, and pass them on. What was told before this node started is repeated."""
        try:
            tail = self._tail or self._followed()
            told: dict[tuple[str, str, EpochId], int] = {}
            for entry in tail.poll(WAIT_S):
                if isinstance(entry, OutOfRange):
                    tail.follow(self._topic, entry.end)
                else:
                    self._read(entry.value, told)
        except HalogError as e:
            logger.warning("acknowledgements of other sites cannot be read: %s", e)
            self.close()
            self._host.pause(AGAIN_S)
            return
        for (site, partition, epoch), lsn in told.items():
            copy = self._host.copies.get(partition)
            if copy is not None and copy.core.leading is not None:
                copy.post(ev.SiteAck(site, epoch, lsn))

    def _read(self, data: bytes, told: dict[tuple[str, str, EpochId], int]) -> None:
        try:
            said = _ARRIVED.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as e:
            logger.warning("an entry of topic %s is no acknowledgement: %s", self._topic.topic, e)
            return
        for partition, epoch, lsn in said.items:
            key = said.site, partition, epoch
            told[key] = max(lsn, told.get(key, 0))

    def _followed(self) -> LogTail:
        self._tail = tail = self._log.tail()
        tail.follow(self._topic, self._log.bounds(self._topic)[1])
        return tail

    def close(self) -> None:
        """Stop following the topic."""
        tail = self._tail
        self._tail = None
        if tail is not None:
            tail.close()


class SyncWaitWatch:
    """Notes whether commits at one other site wait for this one: a takeover from there reads that. It runs on one
    thread."""

    def __init__(
        self,
        host: Host,
        assignments: MirrorDuties,
        site: str,
        reach: Callable[[str], SiteAccess],
        may_drop: Mapping[str, bool],
    ) -> None:
        """Take `may_drop`: for each policy whose commits are to wait for this site, whether they may go on without
        it."""
        self._host = host
        self._assignments = assignments
        self._site = site
        self._reach = reach
        self._may_drop = may_drop
        self._remote: SiteAccess | None = None
        self._noted: dict[str, SyncWait] = {}

    def turn(self) -> None:
        """Look once at the other site's tables."""
        mine = [c for c in list(self._host.copies.values()) if self._is_mine(c)]
        try:
            for copy in mine:
                self._look(copy)
        except (HalogError, UnknownResult) as e:
            logger.debug("it is not known whether site %s waits for this one: %s", self._site, e)
            self.close()
        if not mine:
            self.close()
        self._host.pause(LOOK_S)

    def _is_mine(self, copy: Copy) -> bool:
        table = copy.core.state.table
        return table.owner == self._site and table.policy in self._may_drop and self._assignments.is_wanted(copy)

    def _look(self, copy: Copy) -> None:
        if self._remote is None:
            self._remote = self._reach(self._site)
        at_ms, own = now_ms(), copy.core.state.table  # the time of the question, whenever the answer comes
        found = self._remote.coordinator.get(f"partitions/{own.name}")
        theirs = None if found is None else PartitionTable.from_bytes(found.data)
        waits = theirs is not None and _waits(theirs, own, self._host.site)
        now = SyncWait(self._site, waits, self._may_drop[own.policy], at_ms)
        before = self._noted.get(own.name)
        if before is None or before.waits != waits or at_ms - before.at_ms >= FRESH_S * 1000:
            note(self._host.coordinator, own.name, now)
            self._noted[own.name] = now

    def close(self) -> None:
        """Close the connection."""
        self._noted.clear()
        remote = self._remote
        self._remote = None
        if remote is not None:
            remote.close()


def _waits(theirs: PartitionTable, own: PartitionTable, site: str) -> bool:
    """Do commits under that table wait for this site's log, which has everything they waited for before?"""
    return not theirs.owner and theirs.log_id == own.log_id and site in theirs.synced
