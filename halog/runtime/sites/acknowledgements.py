"""How a site that serves learns what the logs of others have (`sync_sites`), and they, that commits wait for that (M5).

The node that mirrors a partition tells how far its copy has read this site's log: an entry in a topic of the site that
serves, through the line that it has open anyway; the nodes there follow that topic. It says what a log has accepted,
so it is true whoever says it, and when. It may be lost, since it is said again and again, which shows that the site is
there, too.

<cluster>.arrived      JSON: `Arrived`, in the log of the site that serves

What a site hears of waiting commits it notes (`halog.metadata.sync_waits`).
"""

from __future__ import annotations

import logging
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
from halog.metadata.sync_waits import FRESH_S, Awaited, note
from halog.ports import Log, LogSession, LogTail, OutOfRange, TopicPartition, UnknownResult
from halog.runtime.support.adapters import Remote

if TYPE_CHECKING:
    from halog.runtime.host.host import Host
    from halog.runtime.replica.driver import Copy
    from halog.runtime.sites.mirror_assignment import MirrorAssignments

logger = logging.getLogger("halog.mirror")

REPEAT_S = 0.5
"""How often all is told, changed or not: a site is away after several of these."""

GATHER_S = 0.002
"""What arrives meanwhile is told together: each time is an append to the other site's log, and a look at all copies."""

WAIT_S = 0.1
"""One wait for what other sites tell."""

STUCK_S = 3.0
"""What was told is not taken for so long: the line is made anew."""

AGAIN_S = 1.0
"""Between attempts to make it."""

LOOK_S = 2.0
"""How often it is looked whether commits wait for this site."""


class Arrived(msgspec.Struct, frozen=True):
    """What the log of one site has accepted of others' partitions."""

    site: str
    by: str
    """The node that mirrors them."""
    items: list[tuple[str, EpochId, int]]
    """Partition, epoch, lsn."""


_ARRIVED = msgspec.json.Decoder(Arrived)


class Confirming:
    """Tells one other site what has arrived here of what it serves. One thread; `stir` is called from others."""

    def __init__(
        self,
        host: Host,
        assignments: MirrorAssignments,
        site: str,
        reach: Callable[[str], Remote],
        topic: TopicPartition,
        policies: Collection[str],
    ) -> None:
        """`policies`: those whose commits are to wait for this site."""
        self._host = host
        self._assignments = assignments
        self._site = site
        self._reach = reach
        self._topic = topic
        self._policies = policies
        self._stirred = threading.Event()
        self._remote: Remote | None = None
        self._session: LogSession | None = None
        self._told: dict[str, tuple[EpochId, int]] = {}
        self._repeated_at = -REPEAT_S
        self._since = 0.0
        """Since when what was told last is under way; 0: nothing is."""

    def stir(self) -> None:
        """A copy may have read something."""
        self._stirred.set()

    def turn(self) -> None:
        """Tell what is new, or all of it; one word at a time, for the next one would wait for its answer anyway."""
        try:
            if self._since:
                self._await_answer()
            else:
                self._stirred.wait(REPEAT_S)
                self._stirred.clear()
                self._look()
        except (HalogError, UnknownResult) as e:
            logger.debug("site %s is not told what has arrived here: %s", self._site, e)
            self.close()
            self._host.pause(AGAIN_S)

    def _look(self) -> None:
        if time.monotonic() - self._repeated_at >= REPEAT_S:
            self._repeated_at = time.monotonic()
            self._told.clear()
        items = [(name, *at) for name, at in self._mine() if self._told.get(name) != at]
        if items:
            self._tell(items)

    def _mine(self) -> list[tuple[str, tuple[EpochId, int]]]:
        """What this node mirrors from there, and how far the own log has it, by what its copy has read there."""
        found = []
        for copy in list(self._host.copies.values()):
            if copy.core.table.policy in self._policies and self._assignments.is_wanted(copy):
                state = copy.core.chain.state
                if state.owner == self._site and state.lsn:
                    found.append((copy.name, state.head))  # not by an epoch that this site has begun, and gave away
        return found

    def _tell(self, items: list[tuple[str, EpochId, int]]) -> None:
        session = self._session or self._opened()
        if session.failed:
            raise LogError(f"its log did not take it ({session.failed})")
        data = msgspec.json.encode(Arrived(self._host.site, self._host.me.node, items))
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
        """What failed is told again: the session has failed, too."""
        if offset is None:
            self._told.clear()
        self._since = 0.0

    def _opened(self) -> LogSession:
        self._remote = self._reach(self._site)
        self._session = self._remote.log.session()
        return self._session

    def close(self) -> None:
        """Let go of the line."""
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


class Hearing:
    """Tells the copies of a host what the logs of other sites have. One thread."""

    def __init__(self, host: Host, log: Log, topic: TopicPartition) -> None:
        self._host = host
        self._log = log
        self._topic = topic
        self._tail: LogTail | None = None

    def turn(self) -> None:
        """Wait for what they tell, and pass it on. What was told before this node began is told again."""
        try:
            tail = self._tail or self._followed()
            told: dict[tuple[str, str, EpochId], int] = {}
            for entry in tail.poll(WAIT_S):
                if isinstance(entry, OutOfRange):
                    tail.follow(self._topic, entry.end)
                else:
                    self._read(entry.value, told)
        except HalogError as e:
            logger.warning("what other sites say has arrived there cannot be read: %s", e)
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
        except msgspec.MsgspecError as e:
            logger.warning("an entry of %s says nothing of what has arrived: %s", self._topic.topic, e)
            return
        for partition, epoch, lsn in said.items:
            key = said.site, partition, epoch
            told[key] = max(lsn, told.get(key, 0))

    def _followed(self) -> LogTail:
        self._tail = tail = self._log.tail()
        tail.follow(self._topic, self._log.bounds(self._topic)[1])
        return tail

    def close(self) -> None:
        """Let go of the topic."""
        tail = self._tail
        self._tail = None
        if tail is not None:
            tail.close()


class Looking:
    """Notes whether commits at one other site wait for this one: whoever takes over from there asks it. One thread."""

    def __init__(
        self,
        host: Host,
        assignments: MirrorAssignments,
        site: str,
        reach: Callable[[str], Remote],
        may_drop: Mapping[str, bool],
    ) -> None:
        """`may_drop`: of each policy whose commits are to wait for this site, whether they may go on without it."""
        self._host = host
        self._assignments = assignments
        self._site = site
        self._reach = reach
        self._may_drop = may_drop
        self._remote: Remote | None = None
        self._noted: dict[str, Awaited] = {}

    def turn(self) -> None:
        """One look at the other site's tables."""
        mine = [c for c in list(self._host.copies.values()) if self._is_mine(c)]
        try:
            for copy in mine:
                self._look(copy)
        except (HalogError, UnknownResult) as e:
            logger.debug("whether site %s waits for this one is not known: %s", self._site, e)
            self.close()
        if not mine:
            self.close()
        self._host.pause(LOOK_S)

    def _is_mine(self, copy: Copy) -> bool:
        table = copy.core.table
        return table.owner == self._site and table.policy in self._may_drop and self._assignments.is_wanted(copy)

    def _look(self, copy: Copy) -> None:
        if self._remote is None:
            self._remote = self._reach(self._site)
        at_ms, own = now_ms(), copy.core.table  # as it was when it was asked, whenever the answer comes
        found = self._remote.coordinator.get(f"partitions/{own.name}")
        theirs = None if found is None else PartitionTable.from_bytes(found.data)
        waits = theirs is not None and _waits(theirs, own, self._host.site)
        now = Awaited(self._site, waits, self._may_drop[own.policy], at_ms)
        before = self._noted.get(own.name)
        if before is None or before.waits != waits or at_ms - before.at_ms >= FRESH_S * 1000:
            note(self._host.coordinator, own.name, now)
            self._noted[own.name] = now

    def close(self) -> None:
        """Let go of the line."""
        self._noted.clear()
        remote = self._remote
        self._remote = None
        if remote is not None:
            remote.close()


def _waits(theirs: PartitionTable, own: PartitionTable, site: str) -> bool:
    """Do commits under that table wait for this site's log, which has everything they waited for before?"""
    return not theirs.owner and theirs.log_id == own.log_id and site in theirs.synced
