"""A node's disk and the copy in memory: objects and position written together, or not at all.

The state hash is a sum over the objects, kept up to date by the one function that changes objects; a restarted copy
computes it anew from what its disk held.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from halog.core import effects as fx
from halog.core.ids import NO_TX, Member, digest
from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.core.log.merge_parts import AppliedMerge, standing
from halog.core.log.outcomes import Outcomes
from halog.core.log.transactions import (
    Applied,
    DecidedTransaction,
    Decision,
    ForgottenDecisions,
    Ledger,
    PreparedTransaction,
    UndecidedTransaction,
)


class Stored(NamedTuple):
    """An object."""

    version: int
    value: bytes
    ref: bytes


Objects = dict[bytes, Stored]

_MASK = (1 << 64) - 1


def object_hash(key: bytes, version: int, value: bytes, ref: bytes) -> int:
    """A number that depends on all four (not on PYTHONHASHSEED)."""
    content = len(value) * 31 + sum(value) + int.from_bytes(ref, "big") + 7
    return (int.from_bytes(key[:4], "big") + 1) * (version * 1_000_003 + content) & _MASK


def state_hash(objects: Objects) -> int:
    return sum(object_hash(k, *held) for k, held in objects.items()) & _MASK


class Disk:
    """What survives a kill -9."""

    def __init__(self, chain: ChainState, keep: int) -> None:
        self.empty = (chain, keep)
        self.wipes = -1
        self.noted = 0
        """How many of the wipes were noted (a damaged store was set aside)."""
        self.since: frozenset[int] | None = None
        """The incarnations since the last of them."""
        self.wipe()

    def wipe(self) -> None:
        self.wipes += 1
        chain, keep = self.empty
        self.objects: Objects = {}
        self.chain = chain
        self.next_offset = 0
        self.outcomes = Outcomes(keep=keep)
        self.undecided: dict[bytes, UndecidedTransaction] = {}
        self.decided: dict[bytes, Decision] = {}
        self.horizon = b""
        self.mapping = 0
        self.left: tuple[bytes, ...] = ()
        """What the log never had, when a copy here stopped last."""
        self.pushed: dict[int, bytes] = {}
        """By lsn, what was told as held."""
        self.stood: tuple[int, ...] = ()
        """For whom it stands."""
        self.images = 0
        self.safe: Disk | None = None
        """What of it was flushed."""
        self.recent: deque[Disk] | None = None
        """As it was after each of its last writes; None: nobody asks."""

    def image(self) -> Disk:
        """As it is now."""
        self.images += 1
        made = copy.copy(self)
        for name in ("objects", "undecided", "decided", "pushed"):
            setattr(made, name, dict(getattr(self, name)))
        made.outcomes = Outcomes(self.outcomes.items(), self.outcomes.horizon, self.outcomes.keep)
        made.recent = None
        return made

    def changed(self) -> None:
        """Something was written."""
        if self.recent is not None:
            self.recent.append(self.image())

    def flushed(self, image: Disk) -> None:
        """All that it had then is on the disk, unless something newer is."""
        if self.safe is None or image.images > self.safe.images:
            self.safe = image

    @property
    def ledger(self) -> Ledger:
        return Ledger(list(self.undecided.values()), self.decided.items(), self.horizon, self.mapping)

    def write(self, changes: list[Applied], chain: ChainState, next_offset: int) -> None:
        """One atomic step."""
        for record in changes:
            self._note(record)
            commit = committed(record, self.objects)
            if commit is not None:
                change_objects(self.objects, commit)
            if commit is not None and commit.header.tx != NO_TX:
                self.outcomes.add(commit.header.tx, commit.header.lsn)
        self.chain = chain
        self.next_offset = next_offset
        self.pushed = {lsn: data for lsn, data in self.pushed.items() if lsn > chain.lsn}
        self.changed()

    def _note(self, record: Applied) -> None:
        if isinstance(record, PreparedTransaction):
            self.undecided[record.header.tx] = record.undecided
        elif isinstance(record, DecidedTransaction):
            self.undecided.pop(record.header.tx, None)
            self.decided[record.header.tx] = record.decision
        elif isinstance(record, ForgottenDecisions):
            self.horizon = record.horizon
            for tx in record.ids:
                del self.decided[tx]
        elif isinstance(record, records.MapperChanged):
            self.mapping = max(self.mapping, record.mapper_version)
        elif isinstance(record, AppliedMerge):
            self._merged(record)

    def _merged(self, m: AppliedMerge) -> None:
        ledger = self.ledger
        ledger.merged(m, m.offset)
        self.undecided = ledger.undecided
        self.decided = ledger.decided
        self.horizon = ledger.horizon
        self.mapping = ledger.mapping
        for tx in m.happened:
            self.outcomes.add(tx, m.header.lsn)


def committed(record: Applied, objects: Objects) -> records.Commit | None:
    """What it changes of these."""
    if isinstance(record, DecidedTransaction):
        return record.commit
    if isinstance(record, AppliedMerge):
        changes = (c for one in record.merged for c in standing(one, objects.get(one.key)))
        return records.Commit(record.header, tuple(changes))
    return record if isinstance(record, records.Commit) else None


def as_record(applied: Applied) -> records.Record:
    """As the log has it."""
    match applied:
        case PreparedTransaction(undecided=undecided):
            return undecided.prepare
        case DecidedTransaction(header=header, decision=decision):
            return records.Outcome(header, decision.commit)
        case ForgottenDecisions(header=header, horizon=horizon):
            return records.Horizon(header, int.from_bytes(horizon, "big"))
        case AppliedMerge():
            raise TypeError("a merge is several records")
        case _:
            return applied


def change_objects(objects: Objects, record: records.Commit) -> int:
    """Apply a commit; returns by how much the state hash moved."""
    moved, lsn = 0, record.header.lsn
    for c in record.changes:
        old = objects.pop(c.key, None)
        if old is not None:
            moved -= object_hash(c.key, *old)
        if c.value is not None:
            objects[c.key] = Stored(lsn, c.value, c.ref)
            moved += object_hash(c.key, lsn, c.value, c.ref)
    return moved


class Copy:
    """One process's copy: what is applied, and what of it is not yet on the disk."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.objects: Objects = dict(disk.objects)
        self.hash = state_hash(self.objects)
        self.outcomes = Outcomes(disk.outcomes.items(), disk.outcomes.horizon, disk.outcomes.keep)
        self.ledger = disk.ledger
        self.unsaved: list[Applied] = []
        self.position: tuple[ChainState, int] | None = None
        """The newest (chain state, next offset) not yet on the disk."""

    def apply(self, record: Applied, chain: ChainState, next_offset: int) -> None:
        commit = committed(record, self.objects)
        if commit is not None:
            self.hash = (self.hash + change_objects(self.objects, commit)) & _MASK
        self.unsaved.append(record)
        self.position = (chain, next_offset)

    def keep(self, chain: ChainState, next_offset: int) -> None:
        self.position = (chain, next_offset)

    def flush(self) -> None:
        """Everything applied so far goes to the disk."""
        if self.position is not None:
            self.disk.write(self.unsaved, *self.position)
        self.unsaved = []
        self.position = None


class Held:
    """How far each incarnation ever was, in memory or on its disk: what "this replica holds it" means. Pushed records
    count, by their digests, from when it said so until their epoch is over for it."""

    def __init__(self) -> None:
        self._lsn: dict[Member, int] = {}
        self._pushed: dict[Member, dict[int, bytes]] = {}

    def holds(self, member: Member, lsn: int) -> None:
        self._lsn[member] = lsn

    def holds_pushed(self, member: Member, digests: dict[int, bytes]) -> None:
        self._pushed.setdefault(member, {}).update(digests)

    def epoch_over(self, member: Member) -> None:
        self._pushed.pop(member, None)

    def has(self, member: Member, lsn: int, digest: bytes) -> bool:
        """Everything up to `lsn`, which is the record of this digest?"""
        return self.lsn(member) >= lsn and (self._lsn.get(member, 0) >= lsn or self._pushed[member].get(lsn) == digest)

    def lsn(self, member: Member) -> int:
        lsn, pushed = self._lsn.get(member, 0), self._pushed.get(member, ())
        while lsn + 1 in pushed:
            lsn += 1
        return lsn


def one_by_one(e: fx.Apply) -> Iterator[tuple[Applied, ChainState, int]]:
    """What it would have been, record by record."""
    first = e.next_offset - len(e.records)
    for i, record in enumerate(e.records):
        state = msgspec.structs.replace(e.state, lsn=record.header.lsn, hash=_hash(e, i))
        yield record, state, first + i + 1
    if state != e.state:
        raise AssertionError(f"Apply ends at {e.state.lsn}, its records at {state.lsn}")


def _hash(e: fx.Apply, i: int) -> bytes:
    """Of the record that led to it. A merge is not told as one: there the next one names it."""
    record = e.records[i]
    if isinstance(record, AppliedMerge):
        return e.records[i + 1].header.prev if i + 1 < len(e.records) else e.state.hash
    return digest(records.encode(as_record(record)))
