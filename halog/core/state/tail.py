"""Commits that were acknowledged, perhaps, and that the log may lack: what a copy keeps of an epoch that is over (E6).

Only where commits do not wait for the log. A follower keeps what the old active pushed, an active that gave up what it
had in flight, until an epoch opens above: by then the new active has appended again whatever the log lacked (E5), with
the same lsn and transaction id. A tail travels with a position, so that whoever wins an election has it (E3).
A copy that stops leaves its tail on its disk: its memory may be all that had it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from halog.core.effects import KeepTail
from halog.core.ids import EpochId, Member, digest
from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.errors import RecordFormatError


class Tail:
    """Commits of one epoch, one lsn behind the other."""

    __slots__ = ("run", "since", "stood")

    def __init__(self, stood: tuple[int, ...] = (), since: Collection[int] | None = None) -> None:
        self.run: list[records.Commit] = []
        self.stood = stood
        """The incarnations of this node for which the copy's store stands (`halog.core.replica.pushed_store`)."""
        self.since = since
        """This node's store was made in place of a damaged one, and these incarnations have used it: all others may
        have stowed in that one what this one lacks. None: there was no other store here."""

    def lacks(self, node: str, holders: Iterable[Member]) -> tuple[int, ...]:
        """The incarnations of this node among the holders whose word the store that was set aside may have kept."""
        if self.since is None:
            return ()
        return tuple(m.incarnation for m in holders if m.node == node and m.incarnation not in self.since)

    @property
    def tip(self) -> int:
        """The last lsn; 0: nothing is kept."""
        return self.run[-1].header.lsn if self.run else 0

    def _rank(self) -> tuple[int, int]:
        return (self.run[-1].header.epoch.number, self.tip) if self.run else (0, 0)

    def keep(self, run: Iterable[records.Record], state: ChainState) -> None:
        """The epoch of `run` is over; what of it is beyond the history is kept, unless what is kept already is of a
        later one, or longer."""
        kept = Tail()
        for record in run:
            if type(record) is not records.Commit:
                break
            if record.header.lsn > state.lsn:
                kept.run.append(record)
        if kept._rank() > self._rank():
            self.run = kept.run

    def adopt(self, datas: Sequence[bytes], state: ChainState) -> None:
        """Another copy's tail, as it came with its position, or this one's, as it lay on the disk. One that cannot be
        read is none, nor is one of an epoch that is over here: a later one opened without it, and its callers may have
        been told that it did not happen (R4)."""
        try:
            run = [records.decode(data) for data in datas]
        except RecordFormatError:
            return
        lsns = [r.header.lsn for r in run]
        if not run or lsns != list(range(lsns[0], lsns[0] + len(run))):
            return
        if run[0].header.log_id == state.log_id and run[0].header.epoch.number >= state.led:
            self.keep(run, state)

    def stopped(self) -> Iterator[KeepTail]:
        """Its copy does not go on."""
        if self.run:
            yield KeepTail(tuple(records.encode(record) for record in self.run))

    def accepted(self, record: records.Record) -> None:
        """The log has it now, or something else in its place: then what is behind it is not to come any more."""
        while self.run and self.run[0].header.lsn <= record.header.lsn:
            first = self.run.pop(0)
            if first.header.lsn == record.header.lsn and first.header.tx != record.header.tx:
                self.run.clear()

    def opened(self, epoch: EpochId) -> None:
        """What an older epoch left was appended again before, or is not to come any more."""
        if self.run and self.run[0].header.epoch.number < epoch.number:
            self.run.clear()

    def joins(self, state: ChainState) -> bool:
        """Does it go on where the history ends?"""
        return not self.run or self.run[0].header.lsn == state.lsn + 1

    def again(self, state: ChainState, epoch: EpochId) -> list[bytes]:
        """What the log lacks, as records of `epoch`."""
        datas, lsn, prev = [], state.lsn, state.hash
        for commit in self.run:
            lsn += 1
            origin = commit.origin or records.Origin(commit.header.epoch, commit.header.lsn)
            header = records.Header(state.log_id, epoch, lsn, prev, commit.header.tx)
            datas.append(records.encode(records.Commit(header, commit.changes, origin)))
            prev = digest(datas[-1])
        return datas


# --- who has one (E2) ---
