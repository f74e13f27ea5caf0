"""This module asks the third question: is every acknowledged transaction in the log exactly once?

It reads the log topics from their beginning with the automaton that every reader runs, and counts transaction ids among
the records that automaton accepts. A transaction over several partitions has happened if each of them has its vote and
the commit; if only some of them have these, it is torn. The only other input is the client's journal.
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
"""Seconds for one partition's whole log: 60,000 records at 20 µs, on a busy machine."""


class LogVerdict(NamedTuple):
    """Counts acknowledged ids that are not in the log (`lost`); ids that are there twice or more, or were run again
    because they had not happened and are there all the same (`doubled`); and unknown ones that did happen."""

    lost: int
    doubled: int
    happened_after_all: int


class LogContents(NamedTuple):
    """Holds what the logs of all partitions hold. `commits`: how often each transaction happened; `torn`: transactions
    that happened in some of their partitions only, which are not in `commits`; `moved`: objects that came to another
    partition."""

    commits: Counter[bytes]
    torn: int
    moved: int


class LogCounter:
    """A `LogCounter` counts what is in one log after the other."""

    def __init__(self) -> None:
        self._commits: Counter[bytes] = Counter()
        self._spanning: dict[bytes, Counter[str]] = {}
        """Commits over several partitions: how often in which."""
        self._participants: dict[bytes, tuple[str, ...]] = {}
        self._created: set[bytes] = set()
        """References of created objects; an object keeps its own when it moves."""
        self._moved = 0

    def read(self, partition: str, entries: Iterable[Entry], start: ChainState) -> None:
        """Read the whole log of a partition."""
        chain, ledger = Chain(start), Ledger()
        for entry in entries:
            record = records.read(entry)
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

    def logged(self) -> LogContents:
        """Return the counts of all logs that were read."""
        whole = {tx: at for tx, at in self._spanning.items() if at.keys() == set(self._participants[tx])}
        commits = self._commits + Counter({tx: max(at.values()) for tx, at in whole.items()})
        return LogContents(commits, len(self._spanning) - len(whole), self._moved)


def accepted_ids(entries: Iterable[Entry], start: ChainState) -> Counter[bytes]:
    """Return transaction ids of a partition's accepted commits."""
    found = LogCounter()
    found.read("", entries, start)
    return found.logged().commits


def read_all(log: Log, site: str, tables: Iterable[PartitionTable]) -> LogContents:
    """Return transaction ids of every partition's accepted commits, over the whole log."""
    found = LogCounter()
    for table in tables:
        tp = TopicPartition(table.topic, table.index)
        start, end = log.bounds(tp)
        if start > 0:
            raise HalogError(f"the log of {table.name} begins at offset {start}: it was trimmed and cannot be judged")
        found.read(table.name, log.read(tp, start, end, READ_S), table.beginning(site))
    return found.logged()


def judge(claims: Claims, found: Counter[bytes]) -> LogVerdict:
    """Hold the journal against the log."""
    lost = sum(tx not in found for tx in claims.acknowledged)
    doubled = sum(times > 1 for times in found.values()) + sum(tx in found for tx in claims.denied)
    return LogVerdict(lost, doubled, sum(tx in found for tx in claims.unknown))
