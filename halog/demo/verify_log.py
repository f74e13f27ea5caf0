"""The third question: is every acknowledged transaction in the log exactly once?

Reads the log topics from their beginning with the automaton every reader runs, and counts transaction ids among the
records that automaton accepts. The client's journal is the only other thing it knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from halog.core import records
from halog.core.chain import Chain, ChainState, Verdict
from halog.core.ids import digest
from halog.core.table import PartitionTable
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


def accepted_ids(entries: Iterable[Entry], start: ChainState) -> Counter[bytes]:
    """Transaction ids of accepted commits."""
    chain = Chain(start)
    found: Counter[bytes] = Counter()
    for entry in entries:
        record = records.decode(entry.value)
        verdict = chain.read(record, digest(entry.value))
        if verdict is Verdict.ACCEPTED and type(record) is records.Commit:
            found[record.header.tx] += 1
    return found


def read_all(
    log: Log, site: str, tables: Iterable[PartitionTable], read: Callable[[str], None] = lambda partition: None
) -> Counter[bytes]:
    """Transaction ids of every partition's accepted commits, over the whole log."""
    found: Counter[bytes] = Counter()
    for table in tables:
        tp = TopicPartition(table.topic, table.index)
        start, end = log.bounds(tp)
        if start > 0:
            raise HalogError(f"the log of {table.name} begins at offset {start}: it was trimmed and cannot be judged")
        found.update(accepted_ids(log.read(tp, start, end, READ_S), ChainState(bytes.fromhex(table.log_id), site)))
        read(table.name)
    return found


def judge(claims: Claims, found: Counter[bytes]) -> Findings:
    """The journal held against the log."""
    lost = sum(tx not in found for tx in claims.acknowledged)
    doubled = sum(times > 1 for times in found.values()) + sum(tx in found for tx in claims.denied)
    return Findings(lost, doubled, sum(tx in found for tx in claims.unknown))
