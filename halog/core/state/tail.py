"""This module has commits of an ended epoch that may have been acknowledged and that the log may lack (E6).

A tail exists only where commits do not wait for the log. A follower keeps what the old active node pushed; an active
node that gave up keeps what it had in flight. Each keeps its tail until a higher epoch opens. By then the new active
node has appended again whatever the log lacked (E5), with the same lsn and transaction id. A tail travels with a
position, so that whoever wins an election has it (E3). A copy that stops leaves its tail on its disk, because its
memory may be all that had it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from halog.core.effects import KeepTail
from halog.core.ids import EpochId, Member, digest
from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.errors import LaterRecordError, RecordFormatError


class Tail:
    """A `Tail` keeps commits of one epoch, with consecutive lsns."""

    __slots__ = ("run", "since", "stood", "unread")

    def __init__(self, stood: tuple[int, ...] = (), since: Collection[int] | None = None) -> None:
        self.run: list[records.Commit] = []
        self.stood = stood
        """The incarnations of this node for which the copy's store stands (`halog.core.replica.pushed_store`)."""
        self.since = since
        """The incarnations that have used this node's store, if it was made in place of a damaged one. All other
        incarnations may have stored records in the damaged one that this one lacks. None: there was no other store
        here."""
        self.unread = False
        """Has this node's store records beyond the log that a later version of halog wrote? Any run of this node may
        have put them there."""

    def lacks(self, node: str, holders: Iterable[Member]) -> tuple[int, ...]:
        """Return the incarnations of this node among the holders whose records may be in the store that was set
        aside, or cannot be read."""
        if self.since is None and not self.unread:
            return ()
        known = () if self.since is None or self.unread else self.since
        return tuple(m.incarnation for m in holders if m.node == node and m.incarnation not in known)

    @property
    def tip(self) -> int:
        """Return the last lsn; 0: nothing is kept."""
        return self.run[-1].header.lsn if self.run else 0

    def _rank(self) -> tuple[int, int]:
        return (self.run[-1].header.epoch.number, self.tip) if self.run else (0, 0)

    def keep(self, run: Iterable[records.Record], state: ChainState) -> None:
        """Keep what `run`, of an epoch that is over, has beyond the history. What is kept already stays if it is of a
        later epoch, or longer."""
        kept = Tail()
        for record in run:
            if type(record) is not records.Commit:
                break
            if record.header.lsn > state.lsn:
                kept.run.append(record)
        if kept._rank() > self._rank():
            self.run = kept.run

    def adopt(self, datas: Sequence[bytes], state: ChainState) -> None:
        """Take over another copy's tail, which came with its position, or this copy's, which lay on the disk. A tail
        that is damaged is ignored. So is one of an epoch that is over here: a later epoch opened without it, and its
        callers may have been told that it did not happen (R4). LaterRecordError if a later version of halog wrote some
        of it: whoever goes on without that loses what was acknowledged (U1)."""
        try:
            run = [records.decode(data) for data in datas]
        except LaterRecordError as error:
            raise error.at("commits that the log may lack include") from None
        except RecordFormatError:
            return
        lsns = [r.header.lsn for r in run]
        if not run or lsns != list(range(lsns[0], lsns[0] + len(run))):
            return
        if run[0].header.log_id == state.log_id and run[0].header.epoch.number >= state.led:
            self.keep(run, state)

    def stopped(self) -> Iterator[KeepTail]:
        """Return the effect that stores the tail, since its copy stops."""
        if self.run:
            yield KeepTail(tuple(records.encode(record) for record in self.run))

    def accepted(self, record: records.Record) -> None:
        """Drop what the log has now. If the log has something else in its place, drop all that follows too: it will not
        come any more."""
        while self.run and self.run[0].header.lsn <= record.header.lsn:
            first = self.run.pop(0)
            if first.header.lsn == record.header.lsn and first.header.tx != record.header.tx:
                self.run.clear()

    def opened(self, epoch: EpochId) -> None:
        """Drop what an older epoch left. It was appended again before this one opened, or will not come any more."""
        if self.run and self.run[0].header.epoch.number < epoch.number:
            self.run.clear()

    def joins(self, state: ChainState) -> bool:
        """Say whether the tail begins where the history ends."""
        return not self.run or self.run[0].header.lsn == state.lsn + 1

    def again(self, state: ChainState, epoch: EpochId) -> list[bytes]:
        """Return what the log lacks, encoded as records of `epoch`."""
        datas, lsn, prev = [], state.lsn, state.hash
        for commit in self.run:
            lsn += 1
            origin = commit.origin or records.Origin(commit.header.epoch, commit.header.lsn)
            header = records.Header(state.log_id, epoch, lsn, prev, commit.header.tx)
            datas.append(records.encode(records.Commit(header, commit.changes, origin)))
            prev = digest(datas[-1])
        return datas


# --- who has one (E2) ---
