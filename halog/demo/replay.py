"""This module replays rows as transactions, from several threads, and notes every answer in the journal.

A row is one transaction: a landing changes `Flight`, `Aircraft` and `Airport`, mostly in two partitions. Rows are never
batched.
"""

from __future__ import annotations

from halog.demo.journal import Note
from halog.demo.model import Airport, Flight, FlightStatus
from halog.demo.ordered_work import OrderedWork, WorkPlace
from halog.demo.rows import FlightRow
from halog.transactions import Transaction

WORKERS = 32
"""Threads: a commit waits for logs and replicas, not for a processor, and some wait for their airport. More in flight
also means more records per produce request and fetch, which is most of what a broker's processor is used for."""


class Replay(OrderedWork[FlightRow]):
    """A `Replay` does one client's rows."""

    def place(self, what: FlightRow) -> WorkPlace:
        """Return where the row stands; only a landing changes its airport."""
        return WorkPlace(what.number, what.tail, what.destination if what.status is FlightStatus.LANDED else None)

    def work(self, tx: Transaction, what: FlightRow) -> None:
        """Create the flight; if it landed, change its aircraft and its airport, too."""
        flight = tx.create(Flight(*what.key, what.origin, what.destination, what.status, what.miles, what.minutes))
        if what.status is FlightStatus.LANDED:
            flight.land()
            airport = tx.find(Airport, what.destination) or tx.create(Airport(code=what.destination))
            airport.arrivals += 1
            airport.miles += what.miles
            airport.minutes += what.minutes or 0

    def note(self, what: FlightRow, partition: str, tx: bytes, outcome: str) -> None:
        """Note the answer in the journal."""
        self.journal.write(Note(what.number, tx.hex(), outcome, partition))
