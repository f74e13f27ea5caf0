"""One site's client: a node in no zone that does its steps, and notes what was said of each.

Its parent opens the gate by lines on stdin (`allow 300`); JSON lines on stdout say how far it is, and when the first
step was acknowledged. Steps of one aircraft are done one after the other, and those of one airport in turn.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

import halog
from halog.demo import dataset, rows
from halog.demo.exactly import Exactly, Outcomes
from halog.demo.model import Aircraft, Airport, Status
from halog.demo.replay import Gate, Lines
from halog.demo.split.journal import AIRCRAFT, AIRPORT, DEPARTURE, Journal, Note, Write
from halog.demo.split.model import Departure, departure_key, departure_state
from halog.demo.split.steps import ANNOUNCE, DROP, LAND, WEST, Step, plan
from halog.errors import AvailabilityError, HalogError
from halog.runtime.node.open import Node
from halog.transactions import Node as Verbs, Transaction

WORKERS = 16
"""Threads: a commit waits for logs and replicas, not for a processor."""
REPORT_S = 0.1
KNOCK_S = 0.05
"""Between two tries at a site that does not serve yet: it refuses at once."""
GATES = 60
"""At a terminal; which one a flight leaves from says nothing of who wrote it."""


class Order(msgspec.Struct, frozen=True):
    """What a client is to do (JSON in argv). It is `plan`'s, of so many flights."""

    site: str
    config: str
    flights: str
    journal: str
    rows: int
    seed: int
    sabotaged: int = -1


class Traffic(Exactly[Step]):
    """One client's work. `run` returns when every step is done; the first error of a thread ends it."""

    def __init__(
        self, node: Verbs, outcomes: Outcomes, epochs: Callable[[], Mapping[str, int]], journal: Journal, sabotaged: int
    ) -> None:
        super().__init__(node, outcomes, epochs)
        self.journal = journal
        self.sabotaged = sabotaged
        self.first: float | None = None
        """When something was acknowledged, by the machine's clock."""
        self._airports: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._written = threading.local()

    def run(self, steps: Iterable[Step], gate: Gate, workers: int = WORKERS) -> None:
        """All steps, in order where one could meet another."""
        lines = Lines(self._step, workers, self.guarded)
        for step in steps:
            gate.wait(step.number, self.has_failed)
            if not step.number:
                self._knock()
            lines.put(step.row.tail, step)
            if self.has_failed():
                break
        lines.finish()
        if self.error is not None:
            raise self.error

    def _knock(self) -> None:
        """Until this site serves; it serves all partitions then, or the next step waits."""
        while True:
            try:
                with self.node.transaction():
                    self.node.find(Aircraft, "")
                return
            except AvailabilityError:
                time.sleep(KNOCK_S)

    def _step(self, step: Step) -> None:
        with self._turn(step):
            self.transact(step, pretend=step.number == self.sabotaged)
        with self._lock:
            self.tally.rows += 1

    def _turn(self, step: Step) -> AbstractContextManager[object]:
        if step.do != LAND:
            return nullcontext()
        with self._lock:
            return self._airports[step.row.destination]

    # --- a step ---

    def work(self, tx: Transaction, step: Step) -> None:
        """Its writes are what is noted; where there is nothing to change, what there is to do is done otherwise."""
        row, writes = step.row, list[Write]()
        found = tx.find(Departure, *row.key)
        saw = "" if found is None else departure_state(_fields(found))
        if step.do == DROP:
            if found is not None:
                tx.delete(found)
            left = ""
        else:
            left = self._leave(tx, step, found)
        key = departure_key(row._asdict())
        if saw != left:
            writes.append(Write(DEPARTURE, key, saw, left))
        if step.do == LAND and row.status is Status.LANDED:
            writes += self._count(tx, step)
        self._written.writes = tuple(writes)

    def _leave(self, tx: Transaction, step: Step, found: Departure | None) -> str:
        number = int(step.by.rpartition("-")[2])
        gate, status = f"{step.row.origin[0]}{number % GATES}", _status(step)
        if found is None:
            tx.create(Departure(*step.row.key, gate, status, step.by))
        else:
            found.gate, found.status, found.by = gate, status, step.by
        return departure_state({"gate": gate, "status": status, "by": step.by})

    def _count(self, tx: Transaction, step: Step) -> list[Write]:
        """Its aircraft and its airport have one landing more; mostly they are in two partitions."""
        row = step.row
        added = (1, row.miles, row.minutes or 0)
        aircraft = tx.find(Aircraft, row.tail) or tx.create(Aircraft(tail=row.tail))
        aircraft.land(row.miles, row.minutes or 0)
        airport = tx.find(Airport, row.destination) or tx.create(Airport(code=row.destination))
        airport.arrivals += 1
        airport.miles += row.miles
        airport.minutes += row.minutes or 0
        return [Write(AIRCRAFT, row.tail, added=added), Write(AIRPORT, row.destination, added=added)]

    def note(self, step: Step, partition: str, tx: bytes, outcome: str) -> None:
        """In the journal."""
        self.journal.write(Note(step.number, tx.hex(), outcome, self._written.writes))
        if self.first is None:
            self.first = time.monotonic()


def _fields(found: Departure) -> dict[str, str]:
    return {"gate": found.gate, "status": found.status, "by": found.by}


def _status(step: Step) -> str:
    if step.do == LAND:
        return step.row.status.value
    return "announced" if step.do == ANNOUNCE else "moved"


# --- the process ---


def main() -> int:
    """Entry point of the process."""
    order = msgspec.json.decode(sys.argv[1], type=Order)
    try:
        with halog.node(order.config, name=f"{order.site}-client") as node:
            _do(node, order)
    except HalogError as error:
        _say({"error": f"{type(error).__name__}: {error}"})
        return 1
    return 0


def _do(node: Node, order: Order) -> None:
    tables = node.runtime.router.tables

    def epochs() -> dict[str, int]:
        return {name: table.epoch.number for name, (_, table) in tables.items()}

    journal = Journal(Path(order.journal))
    traffic = Traffic(node, node.runtime.operators, epochs, journal, order.sabotaged)
    gate, ended = Gate(0), threading.Event()
    for target in (lambda: _obey(gate), lambda: _report(traffic, ended)):
        threading.Thread(target=target, daemon=True).start()
    found = plan(list(rows.parse(dataset.records(Path(order.flights), order.rows))), order.seed)
    try:
        traffic.run(found.west if order.site == WEST else found.east, gate)
    finally:
        ended.set()
        journal.close()
    _say({**_told(traffic), "done": True})


def _obey(gate: Gate) -> None:
    """Orders of the parent."""
    for line in sys.stdin:
        word, _, number = line.partition(" ")
        if word == "allow":
            gate.open_to(int(number))


def _report(traffic: Traffic, ended: threading.Event) -> None:
    while not ended.wait(REPORT_S):
        _say(_told(traffic))


def _told(traffic: Traffic) -> dict[str, Any]:
    return {**asdict(traffic.tally), "first": traffic.first}


def _say(message: dict[str, Any]) -> None:
    os.write(1, msgspec.json.encode(message) + b"\n")


if __name__ == "__main__":
    sys.exit(main())
