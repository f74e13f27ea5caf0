"""For models of two sites: a log in memory, and what a copy makes of it, with the real chain and the real ledger."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from halog.core.ids import ABSENT, digest
from halog.core.log import records
from halog.core.log.chain import Chain, ChainState, Verdict
from halog.core.log.merge_parts import AppliedMerge, standing
from halog.core.log.records import CREATE, Change
from halog.core.log.transactions import DecidedTransaction, Ledger
from halog.ports import Entry, TopicPartition

TP = TopicPartition("model", 0)


class MemoryLog:
    """As much of a log as `restore` reads."""

    def __init__(self) -> None:
        self.entries: list[bytes] = []
        self.begins = 0
        """Trimmed up to here."""
        self.read_so_far = 0
        """Entries handed out."""

    def append(self, data: bytes) -> int:
        self.entries.append(data)
        return len(self.entries) - 1

    def bounds(self, tp: TopicPartition, timeout_s: float = 5.0) -> tuple[int, int]:
        return self.begins, len(self.entries)

    def read(self, tp: TopicPartition, start: int, end: int, timeout_s: float = 10.0) -> Iterator[Entry]:
        for offset in range(max(start, self.begins), end):
            self.read_so_far += 1
            yield Entry(tp, offset, self.entries[offset], 1_000 + offset)


class Held(NamedTuple):
    """An object."""

    ref: bytes
    value: bytes
    version: int


class Copy:
    """A reader of one site's log, that keeps what it says. Fails where a record changes what is not there."""

    def __init__(self, beginning: ChainState) -> None:
        self.chain = Chain(beginning)
        self.ledger = Ledger()
        self.objects: dict[bytes, Held] = {}
        self.happened: dict[bytes, int] = {}
        """Transaction → lsn."""
        self.merges: list[AppliedMerge] = []
        self.next_offset = 0
        self.may_store = True
        """May what came last be the end of a stored position?"""

    def read(self, offset: int, data: bytes) -> Verdict:
        record = records.decode(data)
        verdict = self.chain.read(record, digest(data))
        self.next_offset = offset + 1
        self.may_store = verdict not in (Verdict.HELD, Verdict.SKIPPED)
        if verdict is Verdict.ACCEPTED:
            self._accepted(record, offset)
        elif verdict is Verdict.OPENED and isinstance(record, records.EpochMerged):
            assert self.chain.merged is not None
            self._merged(self.ledger.merged(self.chain.merged, offset))
        return verdict

    def _accepted(self, record: records.Record, offset: int) -> None:
        if isinstance(record, records.Commit):
            self._apply(record, record.header.tx)
        else:
            meant = self.ledger.accepted(record, offset)
            if isinstance(meant, DecidedTransaction) and meant.commit is not None:
                self._apply(meant.commit, record.header.tx)

    def _apply(self, commit: records.Commit, tx: bytes) -> None:
        assert tx not in self.happened, f"{tx.hex()} is applied twice"
        self.happened[tx] = commit.header.lsn
        for c in commit.changes:
            there = self.objects.get(c.key)
            assert (ABSENT if there is None else there.version) == c.replaced, f"{tx.hex()} changes what is not there"
            assert c.op == CREATE or there is not None
        change(self.objects, commit.changes, commit.header.lsn)

    def _merged(self, m: AppliedMerge) -> None:
        self.merges.append(m)
        for tx in m.happened:
            self.happened.setdefault(tx, m.header.lsn)
        for one in m.merged:
            there = self.objects.get(one.key)
            found = None if there is None else _Found(there.ref, there.version)
            change(self.objects, standing(one, found), m.header.lsn)

    def restarted(self) -> Copy:
        """What a process that begins with the position stored just now has. It knows nothing of parts."""
        new = Copy(self.chain.state)
        ledger = self.ledger
        new.ledger = Ledger([*ledger.undecided.values()], ledger.decided.items(), ledger.horizon, ledger.mapping)
        new.objects, new.happened = dict(self.objects), dict(self.happened)
        new.merges, new.next_offset = [*self.merges], self.next_offset
        return new

    def read_on(self, log: MemoryLog) -> Copy:
        for entry in log.read(TP, self.next_offset, len(log.entries)):
            self.read(entry.offset, entry.value)
        return self

    def knows(self) -> dict[str, object]:
        """Everything that must be the same for every reader, at both sites."""
        s, ledger = self.chain.state, self.ledger
        return {
            "objects": self.objects,
            "lsn": s.lsn,
            "hash": s.hash,
            "lineage": s.lineage,
            "led": s.led,
            "joined": {j.epoch: j.branches for j in s.joined},
            "undoings": set(s.undoings),
            "in doubt": sorted(ledger.undecided),
            "locks": {k: dict(v) for k, v in ledger.locks.items()},
            "decided": {tx: d.commit for tx, d in ledger.decided.items()},
            "horizon": ledger.horizon,
            "mapping": ledger.mapping,
            "happened": set(self.happened),
        }


class _Found(NamedTuple):
    ref: bytes
    version: int


def change(objects: dict[bytes, Held], changes: Iterator[Change] | tuple[Change, ...], version: int) -> None:
    for c in changes:
        if c.value is None:
            objects.pop(c.key, None)
        else:
            objects[c.key] = Held(c.ref, c.value, version)


def check_readers(beginning: ChainState, log: MemoryLog, main: Copy) -> None:
    """Whoever reads this log, from whichever stored position on, knows the same."""
    reader, stored = Copy(beginning), []
    for entry in log.read(TP, 0, len(log.entries)):
        reader.read(entry.offset, entry.value)
        near_parts = any(records.is_part(data) for data in log.entries[entry.offset + 1 : entry.offset + 3])
        if reader.may_store and (near_parts or entry.offset % 9 == 8):
            stored.append(reader.restarted())
    for one in (reader, *(s.read_on(log) for s in stored)):
        assert one.knows() == main.knows(), "a reader knows something else"
        assert one.chain.state == main.chain.state
