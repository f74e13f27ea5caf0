"""The third question: is every acknowledged transaction in the log exactly once?

Reads the log topics from their beginning with the automaton every reader runs, and counts transaction ids among the
records that automaton accepts. A transaction over several partitions has happened where each of them has its vote and
the commit; in some of them only, it is torn. The client's journal is the only other thing it knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from halog.core.ids import digest
from halog.core.log import records
from halog.core.log.chain import Chain, ChainState, Verdict
from halog.core.log.transactions import DecidedTransaction, Ledger
from halog.core.table.table import PartitionTable
from halog.demo.journal import Claims
from halog.errors import HalogError
from halog.ports import Entry, Log, TopicPartition

READ_S = 120.0
"""For one partition's whole log: 60,000 records at 20 µs, on a machine that does other things."""


class Findings(NamedTuple):
    """Acknowledged ids that are not in the log; ids that are there twice or more, or were run again because they had
    not happened and are there all the same; unknown ones that did happen."""

    lost: int
    doubled: int
    happened_after_all: int


class Logged(NamedTuple):
    """What the logs of all partitions hold. `commits`: how often each transaction happened; `torn`: those that happened
    in some of their partitions only, and are not among these; `moved`: objects that came to another partition."""

    commits: Counter[bytes]
    torn: int
    moved: int


class Found:
    """What is found in one log after the other."""

    def __init__(self) -> None:
        self._commits: Counter[bytes] = Counter()
        self._spanning: dict[bytes, Counter[str]] = {}
        """Committed over several partitions: how often in which."""
        self._participants: dict[bytes, tuple[str, ...]] = {}
        self._created: set[bytes] = set()
        """References; an object keeps its own where it moves to."""
        self._moved = 0

    def read(self, partition: str, entries: Iterable[Entry], start: ChainState) -> None:
        """The whole log of a partition."""
        chain, ledger = Chain(start), Ledger()
        for entry in entries:
            record = records.decode(entry.value)
            if chain.read(record, digest(entry.value)) is not Verdict.ACCEPTED:
                continue
            if type(record) is records.Commit:
                self._commits[record.header.tx] += 1
                self._count(record)
            elif (
                type(meant := ledger.accepted(record, entry.offset)) is DecidedTransaction and meant.commit is not None
            ):
                tx = meant.header.tx
                self._spanning.setdefault(tx, Counter())[partition] += 1
                self._participants[tx] = meant.decision.participants
                self._count(meant.commit)

    def _count(self, commit: records.Commit) -> None:
        for change in commit.changes:
            if change.op == records.CREATE:
                self._moved += change.ref in self._created
                self._created.add(change.ref)

    def logged(self) -> Logged:
        """All of it."""
        whole = {tx: at for tx, at in self._spanning.items() if at.keys() == set(self._participants[tx])}
        commits = self._commits + Counter({tx: max(at.values()) for tx, at in whole.items()})
        return Logged(commits, len(self._spanning) - len(whole), self._moved)


def accepted_ids(entries: Iterable[Entry], start: ChainState) -> Counter[bytes]:
    """Transaction ids of a partition's accepted commits."""
    found = Found()
    found.read("", entries, start)
    return found.logged().commits


def read_all(log: Log, site: str, tables: Iterable[PartitionTable]) -> Logged:
    """Transaction ids of every partition's accepted commits, over the whole log."""
    found = Found()
    for table in tables:
        tp = TopicPartition(table.topic, table.index)
        start, end = log.bounds(tp)
        if start > 0:
            raise HalogError(f"the log of {table.name} begins at offset {start}: it was trimmed and cannot be judged")
        found.read(table.name, log.read(tp, start, end, READ_S), table.beginning(site))
    return found.logged()


def judge(claims: Claims, found: Counter[bytes]) -> Findings:
    """The journal held against the log."""
    lost = sum(tx not in found for tx in claims.acknowledged)
    doubled = sum(times > 1 for times in found.values()) + sum(tx in found for tx in claims.denied)
    return Findings(lost, doubled, sum(tx in found for tx in claims.unknown))
