"""A dumb reader of the whole log, written from protocol.md R1-R3 and not from halog/core/log/chain.py.

The log falls into terms: a term begins at an `EpochStarted` with a number above all before it. Within a term only that
epoch's records can count, and of those the longest run from the beginning that continues the history and does not go
on behind a `HandedOver`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from halog.core.ids import NO_HASH, digest
from halog.core.log import records
from halog.core.log.records import EpochOpened, EpochStarted, HandedOver, Record
from tests.sim.log import Entry


class Accepted(NamedTuple):
    """One record of the history, and who wrote it."""

    offset: int
    record: Record
    digest: bytes
    entry: Entry


Term = list[tuple[int, Record, Entry]]


def history(entries: Sequence[Entry]) -> list[Accepted]:
    """The accepted records in order; their place in the list plus one is their lsn."""
    accepted: list[Accepted] = []
    for term in _terms(entries):
        _extend(accepted, term)
    return accepted


def _terms(entries: Sequence[Entry]) -> list[Term]:
    terms: list[Term] = []
    highest = 0
    for offset, entry in enumerate(entries):
        record = records.decode(entry.data)
        if isinstance(record, EpochStarted):
            if record.header.epoch.number > highest:
                highest = record.header.epoch.number
                terms.append([(offset, record, entry)])
        elif terms and record.header.epoch == terms[-1][0][1].header.epoch:
            terms[-1].append((offset, record, entry))
    return terms


def _extend(accepted: list[Accepted], term: Term) -> None:
    opened = False
    for offset, record, entry in term[1:]:
        h = record.header
        opens = isinstance(record, EpochOpened)
        fits = h.lsn == len(accepted) + 1 and h.prev == (accepted[-1].digest if accepted else NO_HASH)
        if opens and not opened and not fits:
            raise AssertionError(f"the EpochOpened at offset {offset} stands on another history than the log's")
        if (opens and opened) or not fits:
            return
        opened = opened or opens
        accepted.append(Accepted(offset, record, digest(entry.data), entry))
        if isinstance(record, HandedOver):
            return
