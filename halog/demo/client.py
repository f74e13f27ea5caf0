"""The client process: a node in no zone that replays the flights. JSON lines on stdout say how far it is.

Its parent opens the gate by lines on stdin (`allow 30000`). It ends when all rows are done, or with one line that says
why not.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path

import msgspec

import halog
from halog.demo import dataset, rows
from halog.demo.journal import Journal
from halog.demo.replay import WORKERS, Gate, Replay
from halog.errors import HalogError
from halog.runtime.node.open import Node

REPORT_S = 0.2
"""Fine enough for the faults to come at their row; a report costs 20 µs."""


class Order(msgspec.Struct, frozen=True):
    """What the client is to do (JSON in argv)."""

    config: str
    flights: str
    journal: str
    rows: int
    allowed: int
    sabotaged: int = -1
    workers: int = WORKERS


def main() -> int:
    """Entry point of the process."""
    order = msgspec.json.decode(sys.argv[1], type=Order)
    try:
        with halog.node(order.config, name="client") as node:
            _replay(node, order)
    except HalogError as error:
        _say({"error": f"{type(error).__name__}: {error}"})
        return 1
    return 0


def _replay(node: Node, order: Order) -> None:
    tables = node.runtime.router.tables

    def epochs() -> dict[str, int]:
        return {name: table.epoch.number for name, (_, table) in tables.items()}

    journal = Journal(Path(order.journal))
    replay = Replay(node, node.runtime.operators, epochs, journal, order.sabotaged)
    gate = Gate(order.allowed)
    ended = threading.Event()
    for target in (lambda: _obey(gate), lambda: _report(replay, ended)):
        threading.Thread(target=target, daemon=True).start()
    began = time.monotonic()
    try:
        replay.run(rows.parse(dataset.records(Path(order.flights), order.rows)), gate, order.workers)
    finally:
        ended.set()
        journal.close()
    _say({**asdict(replay.tally), "seconds": time.monotonic() - began, "done": True})


def _obey(gate: Gate) -> None:
    """Orders of the parent; without a parent there is nobody to replay for."""
    for line in sys.stdin:
        word, _, number = line.partition(" ")
        if word == "allow":
            gate.open_to(int(number))


def _report(replay: Replay, ended: threading.Event) -> None:
    while not ended.wait(REPORT_S):
        _say(asdict(replay.tally))


def _say(message: dict[str, object]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
