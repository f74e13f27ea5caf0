"""Finds where histories parted, and counts how much each side has touched since, for all partitions reported as parted
(M1).

Both logs are read on one thread, which holds no lock meanwhile, and rests between pieces. The results are written to
`parted/<partition>` (`halog.runtime.sites.split_watch`) every half minute, and once as an event. The lineages show the
fork as soon as both ends are known. This copy knows its own. The other log is read on from where this site has mirrored
it up to, or from where that site lets others begin.

The node that counts a split also keeps what a merge needs of this site's log from being trimmed, for as long as it
lasts.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

import msgspec

from halog.core.sites.mirror import Checkpoint
from halog.core.table.tell import Tell
from halog.errors import AvailabilityError, HalogError, LogError, VersionError
from halog.events import BRANCHES
from halog.metadata import branch_holds, mirror_starts as places
from halog.metadata.mirrors import standing
from halog.ports import UnknownResult
from halog.runtime.sites import split_watch as splits
from halog.runtime.sites.relinquish import beginning
from halog.runtime.sites.site_paces import PACES, SitePaces
from halog.runtime.sites.split_watch import BranchCount, Split
from halog.runtime.support.adapters import SiteAccess
from restore.divergence import Behind, Fork, Place, compare, history_of
from restore.touched import TouchCounter

if TYPE_CHECKING:
    from halog.runtime.host.host import Host
    from halog.runtime.replica.driver import Copy

logger = logging.getLogger("halog.mirror")

REST_S = 0.02
"""Pause between two pieces of a log, in which commits of this process go on."""


class _LogPair:
    """Holds the two logs of one partition, as far as they were read."""

    def __init__(self, copy: Copy, ours: TouchCounter) -> None:
        self.copy = copy
        self.ours = ours
        self.theirs: TouchCounter | None = None
        self.theirs_at_ms = 0
        self.counted_at = -math.inf

    def are(self, copy: Copy, site: str) -> bool:
        """Are these logs of that copy and, as far as another log was read, of that site?"""
        return self.copy is copy and (self.theirs is None or self.theirs.site == site)

    @property
    def place(self) -> Place | None:
        """Return where they parted, as epoch and lsn of the last record of both; None while nothing shows it."""
        if self.theirs is None:
            return None
        relation = compare(history_of(self.ours.state), history_of(self.theirs.state))
        match relation:
            case Fork(at=at):
                return max(at, key=lambda point: point.lsn)[:2]
            case Behind(at=at):  # one of them has done nothing yet
                return at[:2]
            case _:
                return None


class _NodeStop(Exception):
    """Is raised when the node closes."""


class DivergenceCount:
    """Counts the splits that one host reports, on one thread."""

    def __init__(
        self, host: Host, reach: Callable[[str], SiteAccess], sites: Collection[str], paces: SitePaces = PACES
    ) -> None:
        """Take `sites`: the other ones."""
        self._host = host
        self._reach = reach
        self._sites = sites
        self._paces = paces
        self._both: dict[str, _LogPair] = {}
        self._kept_at: dict[str, float] = {}
        """By partition: when the hold on this site's branch was last renewed."""

    def turn(self) -> None:
        """Look once at what is reported as parted."""
        try:
            due = self._due()
            for site in dict.fromkeys(found.site for _, found in due):
                self._refresh(site, [one for one, found in due if found.site == site])
        except _NodeStop:
            return
        except (HalogError, UnknownResult) as e:
            logger.debug("it is not known what has parted: %s", e)
        self._host.pause(self._paces.count_s)

    def _due(self) -> list[tuple[_LogPair, Split]]:
        """Return the partitions that this node is to count now."""
        now, due, mine = time.monotonic(), [], set()
        for name in self._host.coordinator.children("parted"):
            copy, found = self._host.copies.get(name), splits.told(self._host.coordinator, name)
            if copy is None or found is None or not self._is_mine(copy, found):
                continue
            mine.add(name)
            self._keep(name, found.site)
            if name not in self._both or not self._both[name].are(copy, found.site):
                self._both[name] = _LogPair(copy, self._ours(copy))
            if now - self._both[name].counted_at >= self._paces.recount_s:
                due.append((self._both[name], found))
        for name in self._both.keys() - mine:
            del self._both[name]
        return due

    def _keep(self, partition: str, site: str) -> None:
        now = time.monotonic()
        if now - self._kept_at.get(partition, -math.inf) < self._paces.keep_s:
            return
        try:
            branch_holds.keep(self._host.coordinator, partition, site, self._sites)
            self._kept_at[partition] = now
        except (HalogError, UnknownResult) as e:
            logger.warning("the branch of %s is not held for longer yet: %s", partition, e)

    def _is_mine(self, copy: Copy, found: Split) -> bool:
        return copy.serving or (copy.core.state.table.owner == found.site and found.by == self._host.me.node)

    def _ours(self, copy: Copy) -> TouchCounter:
        with copy.lock:
            core = copy.core
            state, offset, undecided = (
                core.state.chain.state,
                core.state.next_offset,
                tuple(core.state.ledger.undecided.values()),
            )
        most = self._paces.most
        return TouchCounter(self._host.site, self._host.log, copy.tp, state, offset, undecided, most)

    # --- counting ---

    def _refresh(self, site: str, ones: list[_LogPair]) -> None:
        """Count all partitions that have parted from one site."""
        remote, why = None, ""
        try:
            remote = self._reach(site)
        except (HalogError, UnknownResult) as e:
            why = _said(e)
        try:
            for one in ones:
                self._count_one(one, remote, why)
        finally:
            if remote is not None:
                remote.close()

    def _count_one(self, one: _LogPair, remote: SiteAccess | None, why: str) -> None:
        try:
            if remote is not None:
                self._read_theirs(one, remote)
            self._run(one.ours.read_on(one.copy.core.state.next_offset))
            self._count(one)
        except (AvailabilityError, UnknownResult) as e:
            why = why or _said(e)
        except HalogError as e:  # it is read again from the start; a log that lost its end, or was trimmed, stays so
            why = _said(e)
            self._both[one.copy.name] = again = _LogPair(one.copy, self._ours(one.copy))
            again.counted_at = time.monotonic()
        self._write(one, why)

    def _read_theirs(self, one: _LogPair, remote: SiteAccess) -> None:
        if one.theirs is None:
            start = self._start(one.copy, remote)
            one.theirs = TouchCounter(
                remote.name, remote.log, one.copy.tp, start.state, start.offset, most=self._paces.most
            )
        one.theirs.log = remote.log
        self._run(one.theirs.read_on(remote.log.bounds(one.copy.tp)[1]))
        one.theirs_at_ms = _ms()

    def _start(self, copy: Copy, remote: SiteAccess) -> Checkpoint:
        """Return the last place in the other log whose history up to it is known."""
        begins = remote.log.bounds(copy.tp)[0]
        kept, offered = standing(self._host.coordinator, copy.name), places.offered(remote.coordinator, copy.name)
        known = [
            *([kept.checkpoint] if kept is not None and kept.site == remote.name else []),
            *([offered] if offered is not None else []),
            Checkpoint(0, beginning(copy, remote.name, self._host.site)),
        ]
        log_id = copy.core.state.chain.state.log_id
        good = [c for c in known if c.offset >= begins and c.state.log_id == log_id]
        if not good:
            raise LogError(
                f"the log of {copy.name} at site {remote.name} is trimmed up to offset {begins}, and no later place to "
                "read from is known",
                partition=copy.name,
                begins=begins,
            )
        return max(good, key=lambda c: c.offset)

    def _count(self, one: _LogPair) -> None:
        """Count from the place where they parted; from the start, if it shows that they parted elsewhere: one may have
        brought in what the other has."""
        place = one.place
        for side in (one.ours, one.theirs):
            if side is not None and place is not None and side.place != place:
                self._run(side.count_behind(place))

    def _run(self, steps: Iterator[None]) -> None:
        for _ in steps:
            if self._host.pause(REST_S):
                raise _NodeStop

    # --- telling ---

    def _write(self, one: _LogPair, why: str) -> None:
        name = one.copy.name
        before, version = splits.told_at(self._host.coordinator, name)
        if before is None or not one.are(one.copy, before.site):
            return  # the split is over
        now = msgspec.structs.replace(before, by=self._host.me.node, why=why)
        place, theirs = one.ours.place, one.theirs
        if place is not None and theirs is not None and theirs.place == place:
            epoch, lsn = place
            fork = splits.ForkPoint(epoch.number, epoch.site, lsn)
            now = splits.counted(now, fork, _branch(one.ours, _ms()), _branch(theirs, one.theirs_at_ms))
            one.counted_at = time.monotonic()
        try:
            splits.write(self._host.coordinator, name, now, version)
        except VersionError:
            return  # another node tells it, or it is over: the next look shows it
        if before.fork is None and now.fork is not None:
            self._host.telling.told(one.copy, Tell(BRANCHES, "", "both logs were read", _numbers(now)))


def _branch(side: TouchCounter, at_ms: int) -> BranchCount:
    return BranchCount(side.objects, side.at_least, side.state.lsn, at_ms)


def _numbers(now: Split) -> dict[str, object]:
    """Return the numbers of an event."""
    assert now.fork is not None
    assert now.here is not None
    assert now.there is not None
    more: dict[str, object] = {"site": now.site, "fork": now.fork.lsn, "fork_epoch": now.fork.epoch}
    return {**more, "here": said(now.here), "there": said(now.there)}


def said(branch: BranchCount) -> str:
    """Return the number of objects as text for people."""
    return f"at least {branch.objects}" if branch.at_least else str(branch.objects)


def _said(error: Exception) -> str:
    return error.message if isinstance(error, HalogError) else str(error)


def _ms() -> int:
    return time.time_ns() // 1_000_000
