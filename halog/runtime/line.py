"""The line from another site: its log read, its chain appended to this site's log, and how it stands written down (F2).

One thread for each other site, with a tail of that site's log and a session of this one's. What it has brought stands
in this site's coordinator every few seconds (`halog.runtime.sites`): from its checkpoint the next mirror goes on. What
it still needs is held in the other site's, so that nothing of it is trimmed there.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from halog.core import events as ev
from halog.core.chain import ChainState
from halog.core.ids import EpochId
from halog.core.mirror import Checkpoint, Mirror
from halog.errors import HalogError, LogError, PartedError, RefusedError
from halog.events import MIRRORING, PARTED
from halog.ports import Entry, LogSession, LogTail, OutOfRange, TopicPartition, UnknownResult
from halog.runtime import retention
from halog.runtime.giving import GivingAway, beginning
from halog.runtime.outside import Remote
from halog.runtime.sites import HOLD_MS, Standing, standing, write

if TYPE_CHECKING:
    from halog.runtime.copy import Copy
    from halog.runtime.host import Host

logger = logging.getLogger("halog.mirror")

LOOK_S = 0.25
"""How often it is looked at who mirrors what: a node that died is found dead in about a second."""

POLL_S = 0.02
"""One wait for the other site's log: what was delivered here meanwhile is known after that."""

REPORT_S = 2.0
"""How often a standing is written where something changed: a few ms of the coordinator for each partition."""

IN_FLIGHT = 2_000
"""Records under way to this site's log: what two sites a tenth of a second apart need for 20,000 records a second."""

AGAIN_S = 30.0
"""Between attempts at a partition that cannot be mirrored: it may take an operator."""

STUCK_S = 5.0
"""Everything brought is in the log for that long, and the copy here has not taken it: begin again."""

HOLD_S = 60.0
"""How often the other site's log is held anew."""


class _Mirrored:
    """One partition that is being mirrored."""

    def __init__(self, copy: Copy, mirror: Mirror) -> None:
        self.copy, self.mirror = copy, mirror
        self.pending: deque[tuple[int, Checkpoint]] = deque()
        """What is under way: when the other site's log took it, and where the mirror stood behind it."""
        self.landed = self.safe = self._next_safe = mirror.checkpoint
        """Everything up to here is in this site's log; and was read from it by this node, as what counts."""
        self.lag_ms = 0
        self.still_since = time.monotonic()
        """Since when nothing is under way."""
        self.told: Standing | None = None
        self.told_at = self.held_at = -HOLD_S

    def settle(self) -> None:
        """Look how far `safe` is. Not at the last that has landed, which a busy log would never have read."""
        if not self.pending:
            self.landed = self.mirror.checkpoint
        if self.copy.core.chain.state.lsn >= self._next_safe.state.lsn:
            self.safe, self._next_safe = self._next_safe, self.landed
            if self.copy.core.chain.state.lsn >= self.landed.state.lsn:
                self.safe = self.landed

    @property
    def fenced(self) -> bool:
        """Has the other site's turn ended, and is all of it here, and that not told yet? Somebody waits for it."""
        epoch = self.safe.state.epoch
        return not self.safe.state.opened and (self.told is None or self.told.checkpoint.state.epoch != epoch)


class _Way(NamedTuple):
    """What a line is made of, while it stands."""

    remote: Remote
    tail: LogTail
    """Of the other site's log."""
    session: LogSession
    """Of this one's."""

    def close(self) -> None:
        self.session.abandon()
        self.tail.close()
        self.remote.close()


class Line:
    """From one other site. All of it happens on one thread; `wanted` is set by another."""

    def __init__(self, host: Host, site: str, reach: Callable[[str], Remote], definitions: TopicPartition) -> None:
        self.wanted: frozenset[str] = frozenset()
        self._host, self._site, self._reach, self._definitions = host, site, reach, definitions
        self._way: _Way | None = None
        self._running: dict[TopicPartition, _Mirrored] = {}
        self._failed: dict[str, tuple[float, str]] = {}
        """Partitions that cannot be mirrored: since when, and why."""
        self._giving: dict[str, GivingAway] = {}
        self._fenced: dict[str, EpochId] = {}
        """Epochs begun to give partitions away: another attempt goes on with the same one."""
        self._broken = ""
        self._definitions_read, self._looked_at = 0, -REPORT_S

    # --- its thread ---

    def turn(self) -> None:
        """Mirror for a moment. Whatever fails, the next turn begins again from what is in this site's log."""
        if not self.wanted:
            self.reset()
            self._host.pause(LOOK_S)
            return
        try:
            way = self._way or self._connected()
            self._begin_and_end(way)
            self._bring(way)
        except (HalogError, UnknownResult) as e:
            logger.warning("the mirror of site %s begins again: %s", self._site, e)
            self.reset()
            self._host.pause(LOOK_S)

    def reset(self) -> None:
        """Let go of everything; what is under way may still land, and does no harm."""
        self._running.clear()
        self._giving.clear()
        self._broken = ""
        self._definitions_read = 0
        way, self._way = self._way, None
        if way is not None:
            way.close()

    def _connected(self) -> _Way:
        remote = self._reach(self._site)
        try:
            tail = remote.log.tail()
            try:
                self._way = _Way(remote, tail, self._host.log.session())
            except BaseException:
                tail.close()
                raise
        except BaseException:
            remote.close()
            raise
        return self._way

    def _begin_and_end(self, way: _Way) -> None:
        wanted = self.wanted
        for tp, one in list(self._running.items()):
            if one.copy.name not in wanted or self._host.copies.get(one.copy.name) is not one.copy:
                way.tail.unfollow(tp)
                del self._running[tp]
        for mine in (self._failed, self._giving, self._fenced):
            for name in mine.keys() - wanted:
                del mine[name]
        begun = {one.copy.name for one in self._running.values()}
        now = time.monotonic()
        resting = {name for name, (since, _) in self._failed.items() if now - since < AGAIN_S}
        for name in wanted - begun - resting:
            copy = self._host.copies.get(name)
            if copy is not None:
                self._begin(way, copy)

    def _begin(self, way: _Way, copy: Copy) -> None:
        """Once this node has read its own site's log to the end."""
        if copy.core.next_offset < self._host.log.bounds(copy.tp)[1]:
            return
        with copy.lock:
            own = copy.core.chain.state
        try:
            before = standing(self._host.coordinator, copy.name)
            kept = before.checkpoint if before is not None and before.site == self._site else None
            start = self._start(way, copy, own, kept)
            if own.owner != self._site:
                self._give_away(way, copy, start)
                return
            mirror = Mirror(start, own)
            self._hold(way, copy.name, start.offset)
        except (LogError, RefusedError) as e:
            self._stop(copy, e)
            return
        one = self._running[copy.tp] = _Mirrored(copy, mirror)
        one.told, one.held_at = before, time.monotonic()
        way.tail.follow(copy.tp, start.offset)
        logger.info("partition %s: mirrored from site %s, offset %d", copy.name, self._site, start.offset)

    def _start(self, way: _Way, copy: Copy, own: ChainState, kept: Checkpoint | None) -> Checkpoint:
        """Where to go on in the other log: the last checkpoint, unless it is of more than the own log holds."""
        begins = way.remote.log.bounds(copy.tp)[0]
        if kept is not None and kept.state.lsn <= own.lsn and kept.offset >= begins:
            return kept
        if begins > 0:
            raise LogError(
                f"the log of {copy.name} at site {self._site} is trimmed up to offset {begins}, and what this site has "
                "ends before that: it cannot be mirrored from there",
                partition=copy.name,
                begins=begins,
            )
        return Checkpoint(0, beginning(copy, self._site, self._host.site))

    def _give_away(self, way: _Way, copy: Copy, start: Checkpoint) -> None:
        """The own log is this site's still: once nobody serves from it, it becomes the other one's (F3)."""
        active = copy.core.table.active
        if active is not None and active in copy.core.alive:
            return
        giving = self._giving.get(copy.name)
        if giving is None:
            fenced = self._fenced.get(copy.name)
            giving = GivingAway(self._host, copy, way.remote, way.session, start, fenced)
            self._giving[copy.name] = giving
        going_on = False
        try:
            going_on = giving.step()
        finally:
            if giving.epoch is not None:
                self._fenced[copy.name] = giving.epoch
            if not going_on:
                del self._giving[copy.name]

    def _hold(self, way: _Way, partition: str, offset: int) -> None:
        until = retention.now_ms() + HOLD_MS
        why = f"mirrored by {self._host.me.node} of site {self._host.site}"
        retention.hold(way.remote.coordinator, partition, f"site-{self._host.site}", retention.Hold(offset, until, why))

    # --- bringing ---

    def _bring(self, way: _Way) -> None:
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

    def _take(self, way: _Way, one: _Mirrored, entry: Entry) -> None:
        try:
            data = one.mirror.read(entry.offset, entry.value)
        except LogError as e:
            self._running.pop(entry.tp)
            way.tail.unfollow(entry.tp)
            self._stop(one.copy, e, one)
            return
        if data is None:
            if not one.pending:
                one.landed = one.mirror.checkpoint
            return
        one.pending.append((entry.timestamp_ms, one.mirror.checkpoint))

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

    def _stop(self, copy: Copy, error: HalogError, one: _Mirrored | None = None) -> None:
        """This partition cannot be mirrored: say so, and leave the others alone."""
        parted = isinstance(error, PartedError)
        known = self._failed.get(copy.name, (0.0, ""))[1]
        self._failed[copy.name] = time.monotonic(), error.message
        if known != error.message:
            logger.error("partition %s is not mirrored from site %s: %s", copy.name, self._site, error)
            more = {"site": self._site, "at": error.evidence.get("lsn", copy.core.chain.state.lsn)}
            self._host.telling.told(copy, ev.Tell(PARTED if parted else MIRRORING, "", error.message, more))
        before = standing(self._host.coordinator, copy.name) if one is None else one.told
        checkpoint = one.safe if one is not None else None if before is None else before.checkpoint
        if checkpoint is None:
            checkpoint = Checkpoint(0, beginning(copy, self._site, self._host.site))
        write(self._host.coordinator, copy.name, Standing(
            site=self._site, by=self._host.me.node, at_ms=_ms(), checkpoint=checkpoint, error=error.message,
            parted=parted,
        ))  # fmt: skip

    # --- telling ---

    def _report(self, way: _Way) -> None:
        now = time.monotonic()
        for tp, one in list(self._running.items()):
            if self._is_stuck(one, now):
                logger.warning("what was brought of %s is not taken here: it is begun again", one.copy.name)
                way.tail.unfollow(tp)
                del self._running[tp]
                continue
            one.settle()
            if now - one.told_at >= REPORT_S or one.fenced:
                one.told_at = now
                self._tell(way, one)
            if now - one.held_at >= HOLD_S:
                one.held_at = now
                self._hold(way, one.copy.name, one.safe.offset)
        if now - self._looked_at >= REPORT_S:
            self._looked_at = now
            self._bring_definitions(way)

    def _is_stuck(self, one: _Mirrored, now: float) -> bool:
        """Everything is in the log and is not taken: somebody else's history is there, or the log lost its end."""
        if one.pending or one.copy.core.chain.state.lsn >= one.mirror.lsn:
            one.still_since = now
        return now - one.still_since >= STUCK_S

    def _tell(self, way: _Way, one: _Mirrored) -> None:
        if one.fenced:
            self._bring_definitions(way)  # whoever takes over from here will not ask that site again
        waiting = _ms() - one.pending[0][0] if one.pending else 0
        now = Standing(
            site=self._site, by=self._host.me.node, at_ms=_ms(), checkpoint=one.safe,
            behind=max(0, way.remote.log.bounds(one.copy.tp)[1] - one.safe.offset),
            lag_ms=max(one.lag_ms, waiting, 0),
        )  # fmt: skip
        one.lag_ms = 0
        write(self._host.coordinator, one.copy.name, now)
        one.told = now

    def _bring_definitions(self, way: _Way) -> None:
        """Objects of older classes are read by definitions that only the other site may have."""
        tp = self._definitions
        end = way.remote.log.bounds(tp)[1]
        if end <= self._definitions_read:
            return
        have = dict(self._host.log.read_keyed(tp))
        for key, value in way.remote.log.read_keyed(tp, self._definitions_read):
            if value is not None and have.get(key) != value:
                self._host.log.put(tp, key, value)
        self._definitions_read = end


def _ms() -> int:
    return time.time_ns() // 1_000_000
