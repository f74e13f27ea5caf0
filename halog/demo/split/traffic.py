"""This module is one site's client: it does its steps, and notes what was said of each (`client_process` says how it is
spoken to). Its reports say, too, when the first step was acknowledged.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import msgspec

from halog.demo import dataset, rows
from halog.demo.client_process import epochs_of, reporting, run_client, say
from halog.demo.exactly import OutcomeSource
from halog.demo.journal import Journal, Note, ObjectWrite
from halog.demo.model import Aircraft, Airport, FlightStatus
from halog.demo.ordered_work import OrderedWork, RowGate, WorkPlace
from halog.demo.split.journal import AIRCRAFT, AIRPORT, DEPARTURE
from halog.demo.split.model import Departure, departure_key, departure_state
from halog.demo.split.steps import ANNOUNCE, DROP, LAND, WEST, FlightStep, plan
from halog.errors import AvailabilityError
from halog.runtime.node.open import RunningNode
from halog.transactions import Node as Verbs, Transaction

WORKERS = 16
"""Threads: a commit waits for logs and replicas, not for a processor."""
REPORT_S = 0.1
KNOCK_S = 0.05
"""Seconds between two tries at a site that does not serve yet: it refuses at once."""
GATES = 60
"""Gates of a terminal; the gate of a flight does not show who wrote it."""


class TrafficOrder(msgspec.Struct, frozen=True):
    """Tells a client what to do (JSON in argv): its site's part of the `plan` for so many flights."""

    site: str
    config: str
    flights: str
    journal: str
    rows: int
    seed: int
    sabotaged: int = -1


class Traffic(OrderedWork[FlightStep]):
    """A `Traffic` does one client's steps."""

    def __init__(
        self,
        node: Verbs,
        outcomes: OutcomeSource,
        epochs: Callable[[], Mapping[str, int]],
        journal: Journal,
        sabotaged: int,
    ) -> None:
        super().__init__(node, outcomes, epochs, journal, sabotaged)
        self.first: float | None = None
        """When the first step was answered, by the machine's clock."""
        self._written = threading.local()

    def place(self, what: FlightStep) -> WorkPlace:
        """Return where the step stands; only a landing changes its airport."""
        return WorkPlace(what.number, what.row.tail, what.row.destination if what.do == LAND else None)

    def before(self, what: FlightStep) -> None:
        """Wait before the first step until this site serves; it serves all partitions then, or the next step waits."""
        while not what.number:
            try:
                with self.node.transaction():
                    self.node.find(Aircraft, "")
                return
            except AvailabilityError:
                time.sleep(KNOCK_S)

    # --- a step ---

    def work(self, tx: Transaction, what: FlightStep) -> None:
        """Do the step, and keep its writes for the note. A step that finds nothing to move or land announces the
        flight."""
        row, writes = what.row, list[ObjectWrite]()
        found = tx.find(Departure, *row.key)
        saw = "" if found is None else departure_state(_fields(found))
        if what.do == DROP:
            if found is not None:
                tx.delete(found)
            left = ""
        else:
            left = self._leave(tx, what, found)
        key = departure_key(row._asdict())
        if saw != left:
            writes.append(ObjectWrite(DEPARTURE, key, saw, left))
        if what.do == LAND and row.status is FlightStatus.LANDED:
            writes += self._count(tx, what)
        self._written.writes = tuple(writes)

    def _leave(self, tx: Transaction, step: FlightStep, found: Departure | None) -> str:
        number = int(step.by.rpartition("-")[2])
        gate, status = f"{step.row.origin[0]}{number % GATES}", _status(step)
        if found is None:
            tx.create(Departure(*step.row.key, gate, status, step.by))
        else:
            found.gate, found.status, found.by = gate, status, step.by
        return departure_state({"gate": gate, "status": status, "by": step.by})

    def _count(self, tx: Transaction, step: FlightStep) -> list[ObjectWrite]:
        """Count one more landing of the aircraft and at the airport; mostly these are in two partitions."""
        row = step.row
        added = (1, row.miles, row.minutes or 0)
        aircraft = tx.find(Aircraft, row.tail) or tx.create(Aircraft(tail=row.tail))
        aircraft.land(row.miles, row.minutes or 0)
        airport = tx.find(Airport, row.destination) or tx.create(Airport(code=row.destination))
        airport.arrivals += 1
        airport.miles += row.miles
        airport.minutes += row.minutes or 0
        return [ObjectWrite(AIRCRAFT, row.tail, added=added), ObjectWrite(AIRPORT, row.destination, added=added)]

    def note(self, what: FlightStep, partition: str, tx: bytes, outcome: str) -> None:
        """Note the answer in the journal, with the step's writes."""
        self.journal.write(Note(what.number, tx.hex(), outcome, partition, self._written.writes))
        if self.first is None:
            self.first = time.monotonic()


def _fields(found: Departure) -> dict[str, str]:
    return {"gate": found.gate, "status": found.status, "by": found.by}


def _status(step: FlightStep) -> str:
    if step.do == LAND:
        return step.row.status.value
    return "announced" if step.do == ANNOUNCE else "moved"


# --- the process ---


def main() -> int:
    """Run the process; return its exit code."""
    order = msgspec.json.decode(sys.argv[1], type=TrafficOrder)
    return run_client(order.config, f"{order.site}-client", lambda node: _do(node, order))


def _do(node: RunningNode, order: TrafficOrder) -> None:
    gate = RowGate(0)
    with closing(Journal(Path(order.journal))) as journal:
        traffic = Traffic(node, node.runtime.operators, epochs_of(node), journal, order.sabotaged)
        with reporting(gate, lambda: _report(traffic), REPORT_S):
            found = plan(list(rows.parse(dataset.records(Path(order.flights), order.rows))), order.seed)
            traffic.run(found.west if order.site == WEST else found.east, gate, WORKERS)
    say({**_report(traffic), "done": True})


def _report(traffic: Traffic) -> Mapping[str, object]:
    return {**asdict(traffic.tally), "first": traffic.first}


if __name__ == "__main__":
    sys.exit(main())
