"""This module counts what the objects must add up to, from the CSV's own text: no row, model or transaction takes part.

The judge must not repeat a mistake of the client, so this shares no code with `rows`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

FlightKey = tuple[str, str, int, str]
"""time_hour as in the CSV, carrier, flight, tail."""
Sums = tuple[int, int, int]
"""Landings, miles, minutes."""


@dataclass
class Totals:
    """Holds the sums that are true."""

    flights: dict[FlightKey, str] = field(default_factory=dict)
    """Key → landed, cancelled or diverted."""
    aircraft: dict[str, Sums] = field(default_factory=dict)
    airports: dict[str, Sums] = field(default_factory=dict)
    rows: int = 0
    no_tail: int = 0

    @property
    def by_status(self) -> Counter[str]:
        """Return the number of flights per status."""
        return Counter(self.flights.values())

    @property
    def transactions(self) -> int:
        """Return the number of transactions: each row is one."""
        return self.rows


def count(records: Iterable[Mapping[str, str]]) -> Totals:
    """Count the rows of the CSV."""
    totals = Totals()
    aircraft: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    airports: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for r in records:
        tail = r["tailnum"] if r["tailnum"] not in ("", "NA") else "NONE"
        totals.rows += 1
        totals.no_tail += tail == "NONE"
        totals.flights[r["time_hour"], r["carrier"], int(r["flight"]), tail] = _status(r)
        if r["air_time"].isdigit():
            for sums in (aircraft[tail], airports[r["dest"]]):
                sums[0] += 1
                sums[1] += int(r["distance"])
                sums[2] += int(r["air_time"])
    totals.aircraft = {tail: (s[0], s[1], s[2]) for tail, s in aircraft.items()}
    totals.airports = {code: (s[0], s[1], s[2]) for code, s in airports.items()}
    return totals


def _status(r: Mapping[str, str]) -> str:
    if r["air_time"].isdigit():
        return "landed"
    return "diverted" if r["arr_time"].isdigit() else "cancelled"
