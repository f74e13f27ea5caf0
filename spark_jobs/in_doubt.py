"""This module decides transactions that were in doubt where an initiating branch was closed, as pieces of what the
branch did (S1, T2).

A job that only compares takes them as not committed. A job for a merge asks the branch of their first partition, once,
and notes the answer: that branch is closed, too, and says the same for ever. Nothing here knows Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from halog.core.log.transactions import UndecidedTransaction
from restore.merge import BranchCommit
from spark_jobs.branching import Branch, Folded, folded
from spark_jobs.history import History, HistoryState
from spark_jobs.snapshot import Place

Decide = Callable[[Place, UndecidedTransaction], int | None]
"""Was it committed? Then it returns the log's time, in ms since 1970, of the last record of the branch; otherwise
None."""


class BranchDecisions(NamedTuple):
    """A `BranchDecisions` is what was decided for one branch."""

    decided: dict[bytes, bool]
    rows: list[Folded]


def decided_rows(branches: Mapping[int, Branch], decide: Decide) -> dict[int, BranchDecisions]:
    """Decide for these branches, which were followed to their ends."""
    return {number: _decided(of, decide) for number, of in branches.items()}


def _decided(of: Branch, decide: Decide) -> BranchDecisions:
    history = History(HistoryState.unpack(of.carried))
    found = BranchDecisions({}, [])
    for tx, undecided in history.ledger.undecided.items():
        time_ms = decide(of.place, undecided)
        found.decided[tx] = time_ms is not None
        if time_ms is not None:
            prepare = undecided.prepare
            done = BranchCommit(tx, history.lsn, time_ms, prepare.changes)
            found.rows.extend(folded(of, [done], tx if prepare.header.lsn < of.begin else None))
    return found
