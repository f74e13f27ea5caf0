"""This module is the client process of the demo: it replays the flights (`client_process` says how it is spoken to)."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import msgspec

from halog.demo import dataset, rows
from halog.demo.client_process import epochs_of, reporting, run_client, say
from halog.demo.journal import Journal
from halog.demo.ordered_work import RowGate
from halog.demo.replay import WORKERS, Replay
from halog.runtime.node.open import RunningNode

REPORT_S = 0.2
"""Fine enough for the faults to come at their row; a report costs 20 µs."""


class ReplayOrder(msgspec.Struct, frozen=True):
    """Tells the client what to do (JSON in argv)."""

    config: str
    flights: str
    journal: str
    rows: int
    allowed: int
    sabotaged: int = -1
    workers: int = WORKERS


def main() -> int:
    """Run the process; return its exit code."""
    order = msgspec.json.decode(sys.argv[1], type=ReplayOrder)
    return run_client(order.config, "client", lambda node: _replay(node, order))


def _replay(node: RunningNode, order: ReplayOrder) -> None:
    gate = RowGate(order.allowed)
    with closing(Journal(Path(order.journal))) as journal:
        replay = Replay(node, node.runtime.operators, epochs_of(node), journal, order.sabotaged)
        began = time.monotonic()
        with reporting(gate, lambda: asdict(replay.tally), REPORT_S):
            replay.run(rows.parse(dataset.records(Path(order.flights), order.rows)), gate, order.workers)
    say({**asdict(replay.tally), "seconds": time.monotonic() - began, "done": True})


if __name__ == "__main__":
    sys.exit(main())
