"""Transactions that were in doubt where an initiating branch was closed, as pieces of what it did (S1, T2).

Whoever compares only takes them for not committed. Who merges asks the branch of their first partition, once, and notes
what it said: it is closed, too, and says the same for ever. Knows no Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from halog.core.log.transactions import Undecided
from restore.merge import Committed
from spark_jobs.branching import Branch, Folded, folded
from spark_jobs.history import Carried, History
from spark_jobs.snapshot import Place

Decide = Callable[[Place, Undecided], int | None]
"""Was it committed? Then the log's time, in ms since 1970, of the last record of the branch; else None."""


class Decided(NamedTuple):
    """Of one branch."""

    decided: dict[bytes, bool]
    rows: list[Folded]


def decided_rows(branches: Mapping[int, Branch], decide: Decide) -> dict[int, Decided]:
    """Of these, followed to their ends."""
    return {number: _decided(of, decide) for number, of in branches.items()}


def _decided(of: Branch, decide: Decide) -> Decided:
    history = History(Carried.unpack(of.carried))
    found = Decided({}, [])
    for tx, undecided in history.ledger.undecided.items():
        time_ms = decide(of.place, undecided)
        found.decided[tx] = time_ms is not None
        if time_ms is not None:
            prepare = undecided.prepare
            done = Committed(tx, history.lsn, time_ms, prepare.changes)
            found.rows.extend(folded(of, [done], tx if prepare.header.lsn < of.begin else None))
    return found
