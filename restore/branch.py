"""This module reads one site's log of a partition as a branch: what its history has behind the fork (F4, M3).

The log is read backwards from its end to that point (`restore.thread`), and may be read on while it grows. A
transaction over several partitions counts where it was decided. One that was in doubt when its branch was closed is
decided by the branch of its first partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from halog.core.ids import NO_TX, digest
from halog.core.log import records
from halog.core.log.chain import Chain, ChainState, Verdict
from halog.core.log.merge_parts import taken
from halog.core.log.records import Change, Merged
from halog.core.log.transactions import DecidedTransaction, Ledger, UndecidedTransaction
from halog.errors import DivergedError, LogError
from halog.ports import Log, TopicPartition
from restore.divergence import AcceptedRecord, Fork, Place, accepted
from restore.merge import BranchCommit, Instance, State, after
from restore.report import changes_of
from restore.thread import BESIDE, READ_S, Link, Thread


class Side(NamedTuple):
    """A `Side` is one site's log of a partition, and the history it holds."""

    site: str
    log: Log
    tp: TopicPartition
    state: ChainState
    """Where the history ends."""
    end: int
    """All of the history is before this offset."""
    in_doubt: tuple[int, ...] = ()
    """Offsets of the `Prepare`s that are in doubt there."""


class Branch(NamedTuple):
    """A `Branch` is what a history has behind a fork."""

    committed: list[tuple[AcceptedRecord, BranchCommit]]
    decided: dict[bytes, bool]
    """Transactions over several partitions that were decided in it."""
    horizon: int
    in_doubt: tuple[UndecidedTransaction, ...]
    parted_at: bytes = b""
    """The hash of the last record before; b"": nothing of the branch is behind it."""
    happened: Sequence[bytes] = ()
    """Its transactions, including those that a merge in it brought from elsewhere."""
    brought: Collection[bytes] = ()
    """Those of them that a merge in it brought. Some were in doubt where the branch that the merge stands on ends; the
    history that goes on from there decides them anew."""
    written: Mapping[bytes, State] = {}
    """Every key that got another version, though nothing else may have changed, with what stands there at its end."""


Decide = Callable[[Side, UndecidedTransaction], bool]
"""Was a transaction that is in doubt at the end of a branch committed?"""


def aborted(side: Side, undecided: UndecidedTransaction) -> bool:
    """Decide that it was aborted, because nobody says that it was committed."""
    return False


def side(site: str, log: Log, tp: TopicPartition, begin: ChainState) -> Side:
    """Read the log from its beginning, which costs as much as the log holds. LogError if the beginning is gone."""
    return read_on(Side(site, log, tp, begin, 0), check_whole(site, log, tp))


def check_whole(site: str, log: Log, tp: TopicPartition) -> int:
    """Return where the log ends. LogError if its beginning is gone: a fork further back could not be seen."""
    start, end = log.bounds(tp)
    if start > 0:
        raise LogError(
            f"the log of {tp.topic}/{tp.partition} at site {site} is trimmed up to offset {start}, and cannot be "
            "compared",
            site=site,
            start=start,
        )
    return end


def read_on(of: Side, end: int) -> Side:
    """Read the same history on to `end`, where its log ends by now."""
    chain, ledger = Chain(of.state), Ledger()
    for offset in of.in_doubt:
        ledger.accepted(_prepare(of, offset).prepare, offset)
    for e in of.log.read(of.tp, of.end, end, READ_S):
        record = records.read(e)
        if chain.read(record, digest(e.value)) in (Verdict.ACCEPTED, Verdict.OPENED):
            ledger.accepted(record, e.offset)
            if chain.merged is not None and type(record) is records.EpochMerged:
                ledger.merged(chain.merged, e.offset)
    return of._replace(state=chain.state, end=end, in_doubt=tuple(u.offset for u in ledger.undecided.values()))


# --- what it has behind a fork ---


class BranchReader:
    """A `BranchReader` is what a history has behind a fork, as far as it was read. When the history grows, only what is
    new is read, so what comes late need not wait for what was there before."""

    def __init__(self, fork: Fork, *, beside: int = BESIDE) -> None:
        """Begin at the fork. DivergedError where both histories have merged each other before: they parted behind more
        than one record."""
        if len(fork.at) != 1:
            raise DivergedError(f"the histories have parted behind several records ({places_of(fork)}): not comparable")
        self.fork = fork
        self._beside = beside
        self._point = fork.at[0]
        self._place = self._point.epoch, self._point.lsn
        self._forget()

    def _forget(self) -> None:
        self._ledger = Ledger()
        self._last = b""
        """The hash of the last record that was read; its lsn follows."""
        self._last_lsn = 0
        self._first: Link | None = None
        """The first record behind the fork. What comes before it tells what the others mean."""
        self._found: list[tuple[AcceptedRecord, BranchCommit]] = []
        self._happened: list[bytes] = []
        self._brought: list[bytes] = []
        self._written: dict[bytes, State] = {}

    def read(self, of: Side) -> int:
        """Read on to where the history ends, and return how many records were new. DivergedError if it does not go back
        to the fork, LogError if its log no longer does."""
        if of.state.head == self._place or of.state.hash == self._last:
            return 0
        last, place = self._last, self._place
        new = max(1, of.state.lsn - max(self._last_lsn, self._point.lsn))
        thread = Thread(of.log, of.tp, of.end, of.state.hash, of.site, new, self._beside)
        links = thread.back_to(lambda link: link.hash == last or stands_on(link, place))
        if last and links[0].hash == last and not self._unknown(links):
            links = links[1:]
        else:
            links = self._from_the_fork(of, thread)
        for link in links:
            self._take(link)
        return len(links)

    def _unknown(self, links: Sequence[Link]) -> set[bytes]:
        """Return the transactions that are committed there, and were prepared before anything that was read."""
        return _unprepared(links) - {*self._ledger.undecided, *self._ledger.decided}

    def _from_the_fork(self, of: Side, thread: Thread) -> list[Link]:
        self._forget()
        links = thread.back_to(lambda link: stands_on(link, self._place))
        if not stands_on(links[0], self._place):
            raise DivergedError(
                f"the history of site {of.site} does not go back to lsn {self._point.lsn}", lsn=self._point.lsn
            )
        self._first = links[0]
        wanted = _unprepared(links)
        return thread.back_to(lambda link: _prepares(link, wanted)) if wanted else links

    def _take(self, link: Link) -> None:
        assert self._first is not None
        what, committed = _committed(self._ledger, link, self._place, self._last)
        self._last = link.hash
        self._last_lsn = link.lsn
        if not self._found and link.hash != self._first.hash:
            return
        self._found.append((what, committed))
        came = [tx for part in link.parts for tx in part.happened]
        self._happened += came if not committed.changes or committed.tx == NO_TX else [committed.tx]
        self._brought += came
        self._brought += [tx for part in link.parts for tx, commit in part.decided if commit]
        self._written.update(written_by([m for part in link.parts for m in part.merged], committed.changes))

    def branch(self, of: Side, decide: Decide) -> Branch:
        """Return the branch that was read; `of` ends there."""
        if self._first is None:
            return Branch([], {}, 0, ())
        found, happened, written = [*self._found], [*self._happened], {**self._written}
        in_doubt = tuple(_prepare(of, offset) for offset in of.in_doubt)
        decided = {tx: d.commit for tx, d in self._ledger.decided.items()}
        for u in in_doubt:
            decided[u.tx] = decide(of, u)
            if decided[u.tx]:
                head = AcceptedRecord(*of.state.head, of.state.hash, u.tx, _place(u))
                found.append((head, BranchCommit(u.tx, of.state.lsn, found[-1][1].time_ms, u.prepare.changes)))
                happened.append(u.tx)
                written.update((c.key, after(c)) for c in u.prepare.changes)
        horizon = int.from_bytes(self._ledger.horizon, "big")
        parted_at = _before(self._first, self._place)
        return Branch(found, decided, horizon, in_doubt, parted_at, happened, tuple(self._brought), written)


def branch(of: Side, fork: Fork, decide: Decide) -> Branch:
    """Read at once what the history has behind the fork."""
    since = BranchReader(fork)
    since.read(of)
    return since.branch(of, decide)


def places_of(fork: Fork) -> str:
    """Return the last records of both histories, for people."""
    return "lsn " + ", ".join(f"{p.lsn} of epoch {p.epoch.number} of {p.epoch.site}" for p in fork.at)


def stands_on(link: Link, place: Place) -> bool:
    """Say whether it is the first record behind that place."""
    record = link.record
    if isinstance(record, records.EpochMerged):
        return any((b.epoch, b.lsn) == place for b in record.branches)
    return link.lsn <= place[1] + 1


def _unprepared(links: Sequence[Link]) -> set[bytes]:
    """Return the transactions that are committed there, and were prepared before."""
    here, wanted = set(), set()
    for link in links:
        record = link.record
        if isinstance(record, records.Prepare):
            here.add(record.header.tx)
        elif isinstance(record, records.Outcome) and record.commit and record.header.tx not in here:
            wanted.add(record.header.tx)
    return wanted


def _prepares(link: Link, wanted: set[bytes]) -> bool:
    """Say whether the last of them was found. (One that was decided before is found twice, and counts once.)"""
    if isinstance(link.record, records.Prepare):
        wanted.discard(link.record.header.tx)
    return not wanted or link.lsn <= 1


def _place(u: UndecidedTransaction) -> Place:
    """Return where it was voted for. It is one transaction, whichever branch decided it (F4)."""
    return u.prepare.header.epoch, u.prepare.header.lsn


def written_by(merged: Collection[Merged], changes: Iterable[Change]) -> Iterator[tuple[bytes, State]]:
    """Yield the keys that a record gives another version, with what stands there then.

    For a merge these are all keys that it sets, whether or not the state is new. For any other record they are the keys
    it changes.
    """
    yield from ((m.key, None if m.value is None else Instance(m.ref, m.value)) for m in merged)
    if not merged:
        yield from ((c.key, after(c)) for c in changes)


def _before(link: Link, place: Place) -> bytes:
    if isinstance(link.record, records.EpochMerged):
        return next((b.hash for b in link.record.branches if (b.epoch, b.lsn) == place), link.record.header.prev)
    return link.record.header.prev


def _committed(ledger: Ledger, link: Link, place: Place, before: bytes) -> tuple[AcceptedRecord, BranchCommit]:
    """Return what a record committed. `before`: hash of the record in front of it in this log."""
    record, what = link.record, accepted(link.record, link.hash)
    changes: tuple[Change, ...] = ()
    if type(record) is records.Commit:
        changes = record.changes
    elif type(record) is records.EpochMerged:
        second = _is_second(record, place, before)
        changes = tuple(changes_of((m for part in link.parts for m in part.merged), second=second))
        ledger.merged(taken(record, link.parts), link.offset)
    else:
        vote = ledger.undecided.get(record.header.tx)
        meant = ledger.accepted(record, link.offset)
        if type(meant) is DecidedTransaction and meant.commit is not None and vote is not None:
            what, changes = what._replace(origin=_place(vote)), meant.commit.changes
    return what, BranchCommit(record.header.tx, record.header.lsn, link.time_ms, changes)


def _is_second(record: records.EpochMerged, place: Place, before: bytes) -> bool:
    """Say whether the branch comes to that merge by another history than the first.

    It comes by the history it stands on behind the fork, or else by the one that was read in front of the merge. A
    third site has the one it mirrored.
    """
    at = next((i for i, b in enumerate(record.branches) if (b.epoch, b.lsn) == place), None)
    if at is None:
        at = next((i for i, b in enumerate(record.branches) if b.hash == before), 0)
    return at > 0


def _prepare(of: Side, offset: int) -> UndecidedTransaction:
    for e in of.log.read(of.tp, offset, offset + 1, READ_S):
        record = records.read(e)
        if isinstance(record, records.Prepare):
            return UndecidedTransaction(record, offset)
    raise LogError(f"the log of {of.tp.topic}/{of.tp.partition} at site {of.site} has no vote at offset {offset}")
