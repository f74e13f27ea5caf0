"""How a site gives its log of a partition to the site that serves it now, and begins to mirror it (F1, F3).

Its own log first: an epoch of this site's that nobody serves fences whatever is still on its way there. Then what the
log holds up to there is compared with the other site's: if the other one has all of it, `SiteSwitched` ends this site's
turn, and mirroring begins; if not, both have gone on, which is told and never mended here (M1).

One step each time it is looked after, on the thread of the line to that site, through its session.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from halog.core import records
from halog.core.chain import ChainState
from halog.core.ids import EpochId, nonce
from halog.core.mirror import Checkpoint, Mirror
from halog.core.table import PartitionTable
from halog.errors import PartedError
from halog.ports import LogSession
from halog.runtime.groups import change_table
from halog.runtime.outside import Remote

if TYPE_CHECKING:
    from halog.runtime.copy import Copy
    from halog.runtime.host import Host

logger = logging.getLogger("halog.mirror")


class GivingAway:
    """Of one partition, to one site."""

    def __init__(self, host: Host, copy: Copy, remote: Remote, session: LogSession, start: Checkpoint) -> None:
        """`start`: a place in the other log that this site's history goes up to, or beyond."""
        self._host, self._copy, self._remote, self._session = host, copy, remote, session
        self._start = start
        self._steps = self._all()

    def step(self) -> bool:
        """Go on as far as possible; False: that was all, whatever came of it. PartedError if both sites have gone
        on."""
        return next(self._steps, False)

    def _all(self) -> Iterator[bool]:
        copy, site = self._copy, self._remote.name
        epoch = self._fence()
        header = records.Header(copy.core.chain.state.log_id, epoch)
        state = copy.core.chain.state
        self._append(records.EpochStarted(header, state.epoch, state.lsn))
        while self._state().epoch != epoch:
            if self._state().epoch.number > epoch.number:
                logger.info("partition %s: epoch %d was quicker; once more", copy.name, self._state().epoch.number)
                return
            yield True
        own = self._state()
        while not self._has_all(own):
            yield True
        self._append(records.SiteSwitched(header, site, own.head))
        while self._state().owner != site:
            yield True

    def _state(self) -> ChainState:
        with self._copy.lock:
            return self._copy.core.chain.state

    def _fence(self) -> EpochId:
        """In the znode: nobody else of this site has this epoch, and none is active."""
        me, highest = self._host.me, self._state().epoch.number

        def fenced(table: PartitionTable) -> PartitionTable:
            number = max(table.epoch.number, highest) + 1
            return msgspec.structs.replace(
                table, epoch=EpochId(number, self._host.site, nonce(me, number)), active=None, replicas=()
            )

        return change_table(self._host.coordinator, self._copy.name, fenced).epoch

    def _append(self, record: records.Record) -> None:
        self._session.append(self._copy.tp, records.encode(record), _ignore)

    def _has_all(self, own: ChainState) -> bool:
        """Does the other site's history go on from where this one's ends? False: it is not that site's yet."""
        log, tp = self._remote.log, self._copy.tp
        found = Mirror(self._start, own)
        for entry in log.read(tp, self._start.offset, log.bounds(tp)[1]):
            found.read(entry.offset, entry.value)
        theirs = found.chain.state
        if theirs.owner:
            return False
        if theirs.lsn < own.lsn:
            raise PartedError(
                f"the histories of the two sites have parted: this one goes up to lsn {own.lsn}, the other one took "
                f"over at most at {theirs.lsn}",
                lsn=theirs.lsn,
                ours=own.hash.hex(),
                theirs=theirs.hash.hex(),
            )
        return True


def beginning(copy: Copy, site: str, here: str) -> ChainState:
    """Where the other site's log of this partition begins: as its own, or as a mirror of the home site's."""
    home = copy.core.table.home or here
    return ChainState(copy.core.chain.state.log_id, site, owner="" if home == site else home)


def _ignore(offset: int | None, why: str | None) -> None:
    """What came of it the log shows; a session that fails makes the line begin again."""
