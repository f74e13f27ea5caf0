"""Mirrors the partitions of one other site: reads its log, appends its chain to this site's log, and writes its
standing (F2).

There is one thread for each other site, with a tail of that site's log and a session of this one's. How far it is
stands in this site's coordinator every few seconds (`halog.metadata.mirrors`): the next mirror goes on from its
checkpoint. What the mirror still needs is held in the other site's log, so that it is not trimmed there.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from halog.core.ids import EpochId
from halog.core.log.chain import ChainState
from halog.core.sites.mirror import Checkpoint, Mirror
from halog.core.table.tell import Tell
from halog.errors import HalogError, LaterRecordError, LogError, PartedError, RefusedError, VersionMismatchError
from halog.events import MIRRORING, PARTED
from halog.metadata import log_holds as retention, mirror_starts as places
from halog.metadata.mirrors import COMPARES, HOLD_MS, MirrorStatus, standing, write
from halog.ports import Entry, LogSession, LogTail, OutOfRange, TopicPartition, UnknownResult
from halog.runtime.sites import split_watch as splits
from halog.runtime.sites.mirror_audience import announce
from halog.runtime.sites.mirrored_partition import MirroredPartition
from halog.runtime.sites.owner_tracking import OwnerTracker
from halog.runtime.sites.relinquish import Relinquishment, beginning
from halog.runtime.sites.site_paces import PACES, SitePaces
from halog.runtime.support.adapters import SiteAccess
from halog.runtime.topics.schemas import bring

if TYPE_CHECKING:
    from halog.runtime.host.host import Host
    from halog.runtime.replica.driver import Copy

logger = logging.getLogger("halog.mirror")

LOOK_S = 0.25
"""It is looked this often who mirrors what: a node that died is found dead in about a second."""

POLL_S = 0.02
"""One wait for the other site's log; after it, what was delivered here meanwhile is known."""

IN_FLIGHT = 2_000
"""So many records may be under way to this site's log: two sites a tenth of a second apart need that for 20,000 records
a second."""


class _Connection(NamedTuple):
    """A `_Connection` is what a link reads and writes by, while it stands."""

    remote: SiteAccess
    tail: LogTail
    """Follows the other site's log."""
    session: LogSession
    """Writes to this site's log."""

    def close(self) -> None:
        self.session.abandon()
        self.tail.close()
        self.remote.close()


class MirrorLink:
    """A `MirrorLink` mirrors one other site. All of it runs on one thread; another one sets `wanted`."""

    def __init__(
        self, host: Host, succession: OwnerTracker, definitions: TopicPartition, paces: SitePaces = PACES
    ) -> None:
        """Take `succession`, which tracks the site that serves in that site's place."""
        self.wanted: frozenset[str] = frozenset()
        self._succession = succession
        self._paces = paces
        self._host = host
        self._site = succession.site
        self._definitions = definitions
        self._way: _Connection | None = None
        self._running: dict[TopicPartition, MirroredPartition] = {}
        self._failed: dict[str, float] = {}
        """By partition that cannot be mirrored: since when."""
        self._later: set[str] = set()
        """Partitions in whose other log a later version of halog wrote what this one does not know."""
        self._told: dict[str, tuple[float, str]] = {}
        """By partition: when it was last said that it stands still, and why."""
        self._giving: dict[str, Relinquishment] = {}
        self._fenced: dict[str, EpochId] = {}
        """Epochs that were begun to give partitions away: another attempt goes on with the same one."""
        self._broken = ""
        self._outgrown: tuple[float, VersionMismatchError] | None = None
        """Why nothing is asked of that site, whose level is not known here, and until when."""
        self._definitions_read = 0
        self._looked_at = -math.inf

    # --- its thread ---

    def turn(self) -> None:
        """Read and append for a moment. Whatever fails, the next turn begins again from what is in this site's log."""
        if not self.wanted:
            self._succession.answers()
            self.reset()
            self._host.pause(LOOK_S)
            return
        if self._rests():
            return
        try:
            way = self._way or self._connected()
            way.remote.check_level()
            self._begin_and_end(way)
            self._bring(way)
            self._succession.answers()
        except VersionMismatchError as e:
            self.reset()
            self._outgrown = time.monotonic() + self._paces.retry_s, e
        except (HalogError, UnknownResult) as e:
            logger.warning("the mirror of site %s begins again: %s", self._site, e)
            self.reset()
            self._succession.is_silent(self.wanted)
            self._host.pause(LOOK_S)

    def _rests(self) -> bool:
        """Is that site at a level that is not known here? It counts as one that does not answer, and every partition
        that is wanted from there is told to stand still."""
        if self._outgrown is None:
            return False
        until, why = self._outgrown
        if time.monotonic() >= until:
            self._outgrown = None
            return False
        with suppress(HalogError, UnknownResult):  # it is told again
            for name in sorted(self.wanted):
                copy = self._host.copies.get(name)
                if copy is not None:
                    self._stands_still(copy, why)
        self._succession.is_silent(self.wanted)
        self._host.pause(LOOK_S)
        return True

    def announce(self) -> None:
        """Report to the other site what is mirrored from it, now and then. It runs on a thread of its own: no record
        waits for an answer to that."""
        way = self._way
        if way is not None:
            brought = [one.copy.name for one in list(self._running.values()) if one.mirror.parted is None]
            with suppress(HalogError, UnknownResult):  # the next turn reports again
                announce(way.remote.coordinator, self._host.site, self._host.me, brought)
        self._host.pause(self._paces.report_s)

    def reset(self) -> None:
        """Close everything; what is under way may still land, and does no harm."""
        self._running.clear()
        self._giving.clear()
        self._broken = ""
        self._definitions_read = 0
        way = self._way
        self._way = None
        if way is not None:
            way.close()

    def _connected(self) -> _Connection:
        remote = self._succession.reach(self._site)
        try:
            tail = remote.log.tail()
            try:
                self._way = _Connection(remote, tail, self._host.log.session())
            except BaseException:
                tail.close()
                raise
        except BaseException:
            remote.close()
            raise
        return self._way

    def _begin_and_end(self, way: _Connection) -> None:
        wanted = self.wanted
        for tp, one in list(self._running.items()):
            if one.copy.name not in wanted or self._host.copies.get(one.copy.name) is not one.copy:
                way.tail.unfollow(tp)
                del self._running[tp]
        for mine in (self._failed, self._told, self._giving, self._fenced):
            for name in mine.keys() - wanted:
                del mine[name]
        begun = {one.copy.name for one in self._running.values()}
        now = time.monotonic()
        resting = {name for name, since in self._failed.items() if now - since < self._paces.retry_s}
        resting |= self._later
        resting |= {name for name, giving in self._giving.items() if now < giving.rests_until}
        for name in wanted - begun - resting:
            copy = self._host.copies.get(name)
            if copy is not None:
                self._begin(way, copy)

    def _begin(self, way: _Connection, copy: Copy) -> None:
        """Begin with a partition, once this node has read its own site's log to the end."""
        if copy.core.state.next_offset < self._host.log.bounds(copy.tp)[1]:
            return
        with copy.lock:
            own = copy.core.state.chain.state
        try:
            before = standing(self._host.coordinator, copy.name)
            kept = before.checkpoint if before is not None and before.site == self._site else None
            if own.owner != self._site:
                self._give_away(way, copy, partial(self._start, way, copy, own, kept))
                return
            start = self._start(way, copy, own, kept)
            mirror = Mirror(start, own)  # it may begin past what is here: before a merge that has all of it
            self._hold(way, copy.name, start.offset)
        except (LogError, RefusedError) as e:
            self._stop(copy, e)
            return
        self._told.pop(copy.name, None)
        one = self._running[copy.tp] = MirroredPartition(copy, mirror)
        one.told, one.held_at = before, time.monotonic()
        way.tail.follow(copy.tp, start.offset)
        logger.info("partition %s: mirrored from site %s, offset %d", copy.name, self._site, start.offset)

    def _start(self, way: _Connection, copy: Copy, own: ChainState, kept: Checkpoint | None) -> Checkpoint:
        """Return where to go on in the other log: the last checkpoint, unless it is ahead of the own log. If that log
        was trimmed meanwhile, it is the place that the other site offers."""
        begins = way.remote.log.bounds(copy.tp)[0]
        if kept is not None and kept.state.lsn <= own.lsn and kept.offset >= begins:
            return kept
        if begins > 0:
            offered = places.offered(way.remote.coordinator, copy.name)
            if offered is not None and places.leads_on(offered, own, begins):
                return offered
            raise LogError(
                f"the log of {copy.name} at site {self._site} is trimmed up to offset {begins}, and what this site has "
                "ends before that: it cannot be mirrored from there",
                partition=copy.name,
                begins=begins,
            )
        return Checkpoint(0, beginning(copy, self._site, self._host.site))

    def _give_away(self, way: _Connection, copy: Copy, start: Callable[[], Checkpoint]) -> None:
        """Give this site's log to the other one, once nobody serves from it (F3)."""
        active = copy.core.state.table.active
        if active is not None and active in copy.core.state.alive:
            return
        giving = self._giving.get(copy.name)
        if giving is None:
            fenced = self._fenced.get(copy.name)
            giving = Relinquishment(self._host, copy, way.remote, way.session, start, fenced)
            self._giving[copy.name] = giving
        going_on = False
        try:
            going_on = giving.step()
        finally:
            if giving.epoch is not None:
                self._fenced[copy.name] = giving.epoch
            if not going_on:
                del self._giving[copy.name]
        if giving.parted is not None:
            self._stands_still(copy, giving.parted)
        else:
            self._compares(copy)

    def _hold(self, way: _Connection, partition: str, offset: int) -> None:
        until = retention.now_ms() + HOLD_MS
        why = f"mirrored by {self._host.me.node} of site {self._host.site}"
        retention.hold(way.remote.coordinator, partition, f"site-{self._host.site}", retention.Hold(offset, until, why))

    # --- bringing ---

    def _bring(self, way: _Connection) -> None:
        session = way.session
        for entry in way.tail.poll(POLL_S):
            one = self._running.get(entry.tp)
            if one is None:
                continue
            if isinstance(entry, OutOfRange):
                raise LogError(f"the log of {one.copy.name} at site {self._site} has no offset {entry.offset} any more")
            self._take(way, one, entry)
        session.poll(0)
        while sum(len(one.pending) for one in self._running.values()) > IN_FLIGHT and not self._broken:
            session.poll(POLL_S)
            if self._host.pause(0):  # the log may be away, and the node closes
                return
        if self._broken or session.failed:
            raise LogError(f"this site's log did not take what was mirrored: {self._broken or session.failed}")
        self._report(way)

    def _take(self, way: _Connection, one: MirroredPartition, entry: Entry) -> None:
        try:
            found = one.mirror.read(entry.offset, entry.value)
        except LogError as e:
            self._end(way, one, e)
            return
        if not found and not one.pending:
            one.landed = one.mirror.checkpoint
        for data in found:
            self._give(way, one, data, entry.timestamp_ms, one.mirror.checkpoint)

    def _give(self, way: _Connection, one: MirroredPartition, data: bytes, taken_ms: int, behind: Checkpoint) -> None:
        """Append to this site's log. Of several records that go together, each notes the same checkpoint: the last one
        counts."""
        one.pending.append((taken_ms, behind))

        def done(offset: int | None, why: str | None) -> None:
            if self._way is not way:
                return
            if offset is None:
                self._broken = why or "it did not say why"
            elif one.pending:
                taken, one.landed = one.pending.popleft()
                one.lag_ms = max(one.lag_ms, _ms() - taken)
                one.still_since = time.monotonic()

        way.session.append(one.copy.tp, data, done)

    def _end(self, way: _Connection, one: MirroredPartition, error: LogError) -> None:
        self._running.pop(one.copy.tp)
        way.tail.unfollow(one.copy.tp)
        self._stop(one.copy, error, one)

    def _is_read(self, way: _Connection, one: MirroredPartition) -> bool:
        """Is all of the other log read, up to where it ended at the first question? A merge may have joined parted
        histories again. The question keeps one end, since the end of a busy log over a long line is never reached."""
        if one.upto is None:
            one.upto = way.remote.log.bounds(one.copy.tp)[1]
        if one.mirror.offset < one.upto:
            return False
        one.upto = None
        return True

    def _stop(self, copy: Copy, error: HalogError, one: MirroredPartition | None = None) -> None:
        """Note that this partition cannot be mirrored, leave the others alone, and try again later. What a later
        version of halog wrote this one will never read: another node of this site may, or this one's next run."""
        if isinstance(error, LaterRecordError):
            self._later.add(copy.name)
        self._failed[copy.name] = time.monotonic()
        self._stands_still(copy, error, one)

    def _stands_still(self, copy: Copy, error: HalogError, one: MirroredPartition | None = None) -> None:
        """Report that a partition stands still: once as an event, and repeatedly as its standing, so that no other node
        of this site tries it."""
        parted = isinstance(error, PartedError)
        since, known = self._told.get(copy.name, (-math.inf, ""))
        if known == error.message and time.monotonic() - since < self._paces.report_s:
            return
        self._told[copy.name] = time.monotonic(), error.message
        if known != error.message:
            logger.error("partition %s is not mirrored from site %s: %s", copy.name, self._site, error)
            more = {"site": self._site, "at": error.evidence.get("lsn", copy.core.state.chain.state.lsn)}
            self._host.telling.told(copy, Tell(PARTED if parted else MIRRORING, "", error.message, more))
        if parted:
            splits.tell(self._host.coordinator, copy.name, self._site, self._host.me.node)
        self._write(copy, standing(self._host.coordinator, copy.name), error.message, one, parted=parted)

    def _compares(self, copy: Copy) -> None:
        """Write now and then that this node compares, and what was said before, so that no other node of this site
        begins, too."""
        now = time.monotonic()
        since, known = self._told.setdefault(copy.name, (now, ""))
        if now - since >= self._paces.report_s:
            self._told[copy.name] = now, known
            before = standing(self._host.coordinator, copy.name)
            parted = before is not None and before.parted and before.site == self._site
            self._write(copy, before, before.error if before and parted else COMPARES, None, parted=parted)

    def _write(
        self, copy: Copy, before: MirrorStatus | None, why: str, one: MirroredPartition | None, *, parted: bool
    ) -> None:
        """Write the standing of a mirror that stands still."""
        if one is not None:
            checkpoint = one.safe
        elif before is not None and before.site == self._site:
            checkpoint = before.checkpoint
        else:
            checkpoint = Checkpoint(0, beginning(copy, self._site, self._host.site))
        write(
            self._host.coordinator,
            copy.name,
            MirrorStatus(
                site=self._site,
                by=self._host.me.node,
                at_ms=_ms(),
                checkpoint=checkpoint,
                error=why,
                parted=parted,
            ),
        )

    # --- telling ---

    def _report(self, way: _Connection) -> None:
        now = time.monotonic()
        for tp, one in list(self._running.items()):
            if self._is_stuck(one, now):
                logger.warning(
                    "partition %s: the copy here does not take what was mirrored: mirroring begins again", one.copy.name
                )
                way.tail.unfollow(tp)
                del self._running[tp]
                continue
            one.settle()
            if one.mirror.parted is not None and now - one.told_at >= self._paces.report_s and self._is_read(way, one):
                self._end(way, one, one.mirror.parted)
                continue
            if one.mirror.given_away and self._is_followed(way, one):
                continue
            due = now - one.told_at >= self._paces.report_s or one.fenced
            if due and not one.apart and one.mirror.parted is None:
                one.told_at = now
                self._tell(way, one)
            if now - one.held_at >= self._paces.hold_s:
                one.held_at = now
                self._hold(way, one.copy.name, one.safe.offset)
        if now - self._looked_at >= self._paces.report_s:
            self._looked_at = now
            self._bring_definitions(way)

    def _is_followed(self, way: _Connection, one: MirroredPartition) -> bool:
        """Is the partition another site's by now, and is all of the log here? Then that site is mirrored from now
        on."""
        if one.pending or one.copy.core.state.table.owner != self._site or not self._is_read(way, one):
            return False
        return self._succession.is_given(one.copy, one.mirror.given_away)

    def _is_stuck(self, one: MirroredPartition, now: float) -> bool:
        """Is everything in the log, and not taken by the copy? Then another history is there, or the log lost its end.
        Or it never will be: a takeover has fenced this log, and came to nothing."""
        state = one.copy.core.state.chain.state
        if one.pending or (state.lsn >= one.mirror.lsn and state.owner == self._site):
            one.still_since = now
        return now - one.still_since >= self._paces.stuck_s

    def _tell(self, way: _Connection, one: MirroredPartition) -> None:
        if one.fenced:
            self._bring_definitions(way)  # a takeover from here will not ask that site again
        waiting = _ms() - one.pending[0][0] if one.pending else 0
        end = way.tail.known_end(one.copy.tp)  # the log is not asked: the line may be long, and partitions many
        now = MirrorStatus(
            site=self._site,
            by=self._host.me.node,
            at_ms=_ms(),
            checkpoint=one.safe,
            behind=max(0, (end if end >= 0 else way.remote.log.bounds(one.copy.tp)[1]) - one.safe.offset),
            lag_ms=max(one.lag_ms, waiting, 0),
            epoch=self._epoch(one.copy),
        )
        one.lag_ms = 0
        write(self._host.coordinator, one.copy.name, now)
        if one.mirror.met and not one.joined:
            splits.joined(self._host.coordinator, one.copy.name, self._site)
            one.joined = True
        one.told = now

    def _epoch(self, copy: Copy) -> int:
        """Return the epoch of the table by which this site mirrors that one, if nothing of its own is in the log behind
        that; else -1."""
        with copy.lock:
            mirrors = copy.core.state.table.owner == copy.core.state.chain.state.owner == self._site
            return copy.core.state.table.epoch.number if mirrors else -1

    def _bring_definitions(self, way: _Connection) -> None:
        """Copy the definitions of classes: objects of older classes are read by definitions that only the other site
        may have."""
        self._definitions_read = bring(way.remote.log, self._host.log, self._definitions, self._definitions_read)


def _ms() -> int:
    return time.time_ns() // 1_000_000
