"""This module undoes a merge: where nobody has changed its result since, the source's state stands again (M2).

The history is read back from its end to the merge, along the hashes, and read on while it grows; only what the merge
told is kept. A merge is undone once, whoever asks for it, however often, and at whichever site. Every history knows
what was undone in any of its branches (`ChainState.undoings`). The exception is an undoing that came with a merge which
was undone here (`restore.undoings`): then nothing is left of it.

The version of a key tells whether it was changed since, as it tells whether a conflict is open (`restore.waiting`). An
unchanged key has the merge's version, or that of a later merge whose report names no write since. Absence has no
version. Where the merge left nothing and nothing is there, a deletion since means that somebody changed it in between.
Eight bytes are kept of each deletion on the way back to the merge, until it is known what the merge told.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from halog.core.ids import ABSENT, NO_TX, EpochId
from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.core.log.records import DELETE, Merged
from halog.errors import LogError, RefusedError
from restore.branch import Side
from restore.divergence import lineage_of
from restore.merge import BranchCommit, Difference, Instance, Kind, State
from restore.plan import Choice
from restore.report import ReportEntry, entry, is_known, merged
from restore.thread import Link, Thread
from restore.touched import mark
from restore.undoings import Undoings, undoing

UNDONE = "undone"


class NodeObject(Protocol):
    """A `NodeObject` is an object as the node has it."""

    @property
    def ref(self) -> bytes: ...

    @property
    def value(self) -> bytes: ...

    @property
    def version(self) -> int: ...


class UndoPlan(NamedTuple):
    """An `UndoPlan` is what is to stand, and how much it is."""

    merged: list[Merged]
    numbers: dict[str, object]


class LaterMerge(NamedTuple):
    """A `LaterMerge` is a merge behind the one to be undone, with the lsn of the last commit to each key that it told,
    by branch; 0: there is none."""

    record: records.EpochMerged
    told: dict[bytes, tuple[int, int]]

    def names_a_commit(self, key: bytes, epoch: EpochId, lsn: int) -> bool:
        """Say whether it names a commit behind the merge that opened that epoch. On a branch that had not got that
        merge, any commit counts."""
        has = [(epoch, lsn) in branch.lineage for branch in self.record.branches]
        return any(last > (lsn if h else 0) for h, last in zip(has, self.told[key], strict=False))


class Undoing:
    """An `Undoing` is a merge that is to be undone, as far as its history was read."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.undoes = undoing(name)
        self.report: list[ReportEntry] = []
        """What it has told of each key."""
        self._opened: tuple[EpochId, int] | None = None
        """The epoch that it opened, and its lsn: the version of everything that it made to stand."""
        self._later: list[LaterMerge] = []
        """Merges behind it."""
        self.put_back: int | None = None
        """How many keys were put back, if it was undone before in what was read; 0: it was undone in another branch;
        None: it was not."""
        self._last = b""
        """The hash of the last record that was read."""
        self._deleted = array("Q")
        """Marks of the keys that a transaction behind the merge has deleted, or has voted to delete: the key was not
        empty then."""
        self._gone: set[int] = set()
        """Of these, the keys where the merge left nothing."""
        self._merges: list[records.EpochMerged] = []
        """The merges that were read, in the history's order."""

    def read(self, of: Side, between: Callable[[], None] = lambda: None) -> int:
        """Read on to where the history ends, and return how many records were new. `between` is called after each piece
        of the log. RefusedError if the merge is not in it, or not in what the log still has, and was not undone;
        DeadlineError."""
        if of.state.hash == self._last:
            return 0
        met: list[records.EpochMerged] = []
        try:
            new = self._read(of, between, met)
        except RefusedError:
            self._has_met(met, of.state)
            if self.put_back is None:
                raise
            return 0
        self._has_met(met, of.state)
        return new

    def left(self, key: bytes) -> int:
        """Return the version that the merge's result has as long as it was not changed since; ABSENT: it was
        changed."""
        assert self._opened is not None
        if self._gone and mark(key) in self._gone:
            return ABSENT
        epoch, lsn = self._opened
        told = [later for later in self._later if key in later.told]
        if any(later.names_a_commit(key, epoch, lsn) for later in told):
            return ABSENT
        return max((later.record.header.lsn for later in told), default=lsn)

    def _has_met(self, merges: list[records.EpochMerged], now: ChainState) -> None:
        """Take the merges that were met, the last one first."""
        self._merges += reversed(merges)
        if self.put_back is None and self.undoes in now.undoings and not Undoings(self._merges).is_gone(self.undoes):
            self.put_back = 0

    def _read(self, of: Side, between: Callable[[], None], met: list[records.EpochMerged]) -> int:
        """Read back to the merge. `met` takes the merges on the way, the last one first."""
        oldest, new = _oldest_merge(of.state), 0
        try:
            for link in Thread(of.log, of.tp, of.end, of.state.hash, of.site).back() if oldest else ():
                if link is None:
                    between()
                    continue
                if link.hash == self._last or self._is_it(link, met):
                    self._last = of.state.hash
                    self._keep_gone()
                    return new
                self._deleted.extend(_deleted_by(link.record))
                if link.lsn <= oldest:
                    break
                new += 1
        except LogError as e:
            if "begins" not in e.evidence:
                raise
            raise RefusedError(
                f"there is no merge {self.name.hex()} in what the log of site {of.site} still has: what was before "
                f"offset {e.evidence['begins']} is trimmed",
                **e.evidence,
            ) from e
        raise RefusedError(f"there is no merge {self.name.hex()} in the history of site {of.site}")

    def _keep_gone(self) -> None:
        """Keep, of what was deleted since, only keys that the merge has told."""
        absent = {mark(e.found.key) for e in self.report if e.then is None} if self._deleted else ()
        self._gone.update(one for one in self._deleted if one in absent)
        del self._deleted[:]

    def _is_it(self, link: Link, met: list[records.EpochMerged]) -> bool:
        if not isinstance(link.record, records.EpochMerged):
            return False
        met.append(link.record)
        told = [entry(m) for part in link.parts for m in part.merged]
        if link.record.merge == self.name:
            self.report = told
            self._opened = (link.record.header.epoch, link.lsn)
            return True
        if link.record.merge == self.undoes:
            self.put_back = len(told)
        lasts = {e.found.key: (_last(e.found.source_by), _last(e.found.initiating_by)) for e in told}
        self._later.append(LaterMerge(link.record, lasts))
        return False


def _deleted_by(record: records.Record) -> Iterable[int]:
    """Return marks of the keys that the record deletes."""
    if isinstance(record, records.Commit | records.Prepare):
        return (mark(c.key) for c in record.changes if c.op == DELETE)
    return ()


def _last(by: Iterable[BranchCommit]) -> int:
    """Return the lsn of the last of these writes that belongs to no merge; 0: there is none."""
    return max((c.lsn for c in by if c.tx != NO_TX), default=0)


def _oldest_merge(state: ChainState) -> int:
    """Return the lsn of this history's oldest merge; 0: there is none."""
    begun = {o.epoch: o.lsn for o in lineage_of(state)}
    return min((begun.get(j.epoch, 1) for j in state.joined), default=0)


def report_of(side: Side, name: bytes) -> list[ReportEntry]:
    """Return the report of a merge that is part of this history. RefusedError if it is not, or its log does not reach
    back."""
    found = Undoing(name)
    found.read(side)
    return found.report


def undone(
    report: Iterable[ReportEntry], left: Callable[[bytes], int], find: Callable[[bytes], NodeObject | None]
) -> UndoPlan:
    """Return what undoes the merge; `left`: see `Undoing`. Objects that were changed since are left as they are, and
    counted."""
    back, kept = [], 0
    for told in report:
        if told.then == told.found.source:
            continue
        key = told.found.key
        found = find(key)
        now: State = None if found is None else Instance(found.ref, found.value)
        if now == told.found.source:
            continue
        version = left(key)
        changed = now != told.then or version == ABSENT or (found is not None and found.version != version)
        if changed or not is_known(told.found.source):
            kept += 1
            continue
        difference = Difference(key, Kind.KEPT, told.then, now, None, (), ())
        back.append(merged(Choice(difference, None, told.found.source), UNDONE))
    return UndoPlan(back, {"objects": len(back) + kept, "changed": len(back), "changed_since": kept})
