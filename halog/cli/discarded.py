"""The records of a log that readers skipped, and what became of their transactions (X9).

Pure. Whether a record counts is the verdict of the one automaton every reader runs; nothing is judged here. A skipped
record says that an attempt did not count, not that its transaction did not happen: the same id may have been committed
by another attempt, before or behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from halog.core import records
from halog.core.chain import Verdict
from halog.runtime.verdicts import Judged

DISCARDED, UNDECIDED = "discarded", "undecided"

_PASSED_OVER = frozenset({Verdict.SKIPPED.value, Verdict.VOIDED.value})
_COUNTED = frozenset({Verdict.ACCEPTED.value, Verdict.OPENED.value})


class Left(msgspec.Struct, frozen=True):
    """A skipped record. `outcome`: discarded, undecided (no higher epoch has opened yet: it may still be committed
    anew), or "committed as lsn N"."""

    judged: Judged
    outcome: str


def discarded(judged: Iterable[Judged]) -> Iterator[Left]:
    """The skipped transactions among these records, which are all there are, in log order."""
    passed: list[tuple[Judged, records.Commit | records.Prepare]] = []
    happened: dict[bytes, int] = {}
    led = 0
    for item in judged:
        record = item.record
        if isinstance(record, records.Commit | records.Prepare) and item.verdict in _PASSED_OVER:
            passed.append((item, record))
        elif record is not None and item.verdict in _COUNTED:
            if isinstance(record, records.EpochOpened | records.EpochMerged):
                led = record.header.epoch.number
            elif isinstance(record, records.Commit) or (isinstance(record, records.Outcome) and record.commit):
                happened[record.header.tx] = record.header.lsn
    for item, record in passed:
        yield Left(item, _outcome(record.header, happened, led))


def _outcome(header: records.Header, happened: dict[bytes, int], led: int) -> str:
    if header.tx in happened:
        return f"committed as lsn {happened[header.tx]}"
    return DISCARDED if led > header.epoch.number else UNDECIDED
