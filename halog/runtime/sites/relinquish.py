"""Gives a site's log of a partition to the site that serves it now, and begins to mirror that one (F1, F3).

First this site's own log is fenced by an epoch that nobody serves, against whatever is still on its way there. Then
what the log holds up to there is compared with the other site's. If the other one has all of it, `SiteSwitched` ends
this site's turn, and mirroring begins. If not, both have gone on, which is reported (M1). Then the other site may merge
what this one has. The record of the merge makes this site's history a part of that one's, and is waited for.

It goes on a little at each step, on the thread of the link to that site, through its session: other partitions are
mirrored meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from halog.core.ids import EpochId, Member, nonce
from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.core.sites.mirror import Checkpoint, Mirror
from halog.core.table.table import PartitionTable
from halog.errors import LogError, PartedError
from halog.metadata.partition_tables import change_table
from halog.metadata.restore_requests import ClosedBranch, close
from halog.ports import Coordinator, LogSession
from halog.runtime.support.adapters import SiteAccess

if TYPE_CHECKING:
    from halog.runtime.host.host import Host
    from halog.runtime.replica.driver import Copy

logger = logging.getLogger("halog.mirror")

PIECE = 2_000
"""So many entries of the other log are read in one step: some 50 ms."""

AGAIN_S = 1.0
"""Pause between looks whether the other log is that site's by now."""


class Relinquishment:
    """A `Relinquishment` gives one partition to one site. `fenced`: an epoch that this node has begun for it before."""

    def __init__(
        self,
        host: Host,
        copy: Copy,
        remote: SiteAccess,
        session: LogSession,
        start: Callable[[], Checkpoint],
        fenced: EpochId | None,
    ) -> None:
        """Take `start`: it finds a place in the other log that this site's history goes up to, or beyond. LogError."""
        self._host = host
        self._copy = copy
        self._remote = remote
        self._session = session
        self._start = start
        self.epoch = fenced
        self.parted: LogError | None = None
        """Is set if both sites have gone on, as far as this one can see."""
        self.rests_until = 0.0
        """Until when there is nothing to do, by the monotonic clock."""
        self._steps = self._all()

    def step(self) -> bool:
        """Go on a little; False: that was all, whatever came of it. LogErrors if the two logs cannot be compared."""
        return next(self._steps, False)

    def _all(self) -> Iterator[bool]:
        own = self._state()
        if self.epoch is None or own.epoch != self.epoch or own.opened or own.void:
            self.epoch = self._fence()
            self._append(records.EpochStarted(self._header(), own.epoch, own.lsn))
        while self._state().epoch != self.epoch:
            if self._state().epoch.number > self.epoch.number:
                logger.info("partition %s: another node began an epoch first; fencing begins again", self._copy.name)
                return
            yield True
        own = self._closed()
        yield from self._compare(own)
        if self._state().epoch != self.epoch:  # another node was quicker: what was told of this branch's end is void
            return
        self._append(records.SiteSwitched(self._header(), self._remote.name, own.head))
        while self._state().owner != self._remote.name:
            if self._state().epoch != self.epoch:
                return
            yield True

    def _state(self) -> ChainState:
        with self._copy.lock:
            return self._copy.core.state.chain.state

    def _closed(self) -> ChainState:
        """Write down what this site's log ends with, for a site that may merge it: nothing more comes to it. Return
        that state."""
        with self._copy.lock:
            core = self._copy.core
            state, offset = core.state.chain.state, core.state.next_offset
            in_doubt = tuple(u.offset for u in core.state.ledger.undecided.values())
        close(self._host.coordinator, self._copy.name, ClosedBranch(Checkpoint(offset, state), in_doubt))
        return state

    def _header(self) -> records.Header:
        assert self.epoch is not None
        return records.Header(self._copy.core.state.chain.state.log_id, self.epoch)

    def _fence(self) -> EpochId:
        """Take an epoch in the znode: no other node of this site has it, and none is active."""
        return fence(
            self._host.coordinator, self._copy.name, self._host.site, self._state().epoch.number, self._host.me
        )

    def _append(self, record: records.Record) -> None:
        self._session.append(self._copy.tp, records.encode(record), _ignore)

    def _compare(self, own: ChainState) -> Iterator[bool]:
        """Wait until the other log is that site's, and has all that this one has. If it does not have all, the
        histories have `parted`, and a merge over there is waited for."""
        log, tp, found = self._remote.log, self._copy.tp, Mirror(self._start(), own)
        while True:
            end = log.bounds(tp)[1]
            while found.offset < end:
                upto = min(end, found.offset + PIECE)
                for entry in log.read(tp, found.offset, upto):
                    found.read(entry.offset, entry.value)
                found.offset = upto
                yield True
            theirs = found.chain.state
            if (not theirs.owner and found.met) or self._state().epoch != self.epoch:
                return
            if not theirs.owner and (theirs.opened or theirs.lsn >= own.lsn):
                self.parted = found.parted or _ends_before(own, theirs)
            self.rests_until = time.monotonic() + AGAIN_S
            yield True


def _ends_before(own: ChainState, theirs: ChainState) -> PartedError:
    return PartedError(
        f"the histories of the two sites have parted: this one goes up to lsn {own.lsn}, the other one took over at "
        f"most at {theirs.lsn}",
        lsn=theirs.lsn,
        ours=own.hash.hex(),
        theirs=theirs.hash.hex(),
    )


def fence(coordinator: Coordinator, partition: str, site: str, highest: int, by: Member) -> EpochId:
    """Take an epoch of a site that no node of it will serve, above `highest` and all that its znode knows. Nobody is
    active from then on. The epoch still has to be started in the log."""

    def fenced(table: PartitionTable) -> PartitionTable:
        number = max(table.epoch.number, highest) + 1
        return msgspec.structs.replace(table, epoch=EpochId(number, site, nonce(by, number)), active=None, replicas=())

    return change_table(coordinator, partition, fenced).epoch


def beginning(copy: Copy, site: str, here: str) -> ChainState:
    """Return where the other site's log of this partition begins: as its own, or as a mirror of the home site's."""
    home = copy.core.state.table.home or here
    return ChainState(copy.core.state.chain.state.log_id, site, owner="" if home == site else home)


def _ignore(offset: int | None, why: str | None) -> None:
    """Ignore the result: the log shows it, and a session that fails makes the link begin again."""
