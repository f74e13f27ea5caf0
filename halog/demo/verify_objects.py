"""The first question: do the objects add up to what the CSV says?

Reads every object through the application's own verbs, as any program would, from the nodes that are active now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from halog.demo.model import Aircraft, Airport, Flight
from halog.demo.totals import FlightKey, Sums, Totals
from halog.transactions import Node

K = TypeVar("K")
V = TypeVar("V")


@dataclass
class Check:
    """What was read, and what is wrong with it in words (the first few) and number."""

    objects: int = 0
    wrong: int = 0
    examples: list[str] = field(default_factory=list)

    def complain(self, text: str) -> None:
        """One more object that is not as it should be."""
        self.wrong += 1
        if len(self.examples) < 5:
            self.examples.append(text)


def check_objects(node: Node, totals: Totals) -> Check:
    """Every flight, aircraft and airport against the totals."""
    check = Check()
    with node.transaction():
        compare("flight", {flight_key(f): f.status.value for f in node.extent(Flight)}, totals.flights, check)
    with node.transaction():
        compare("aircraft", {a.tail: sums(a.landings, a) for a in node.extent(Aircraft)}, totals.aircraft, check)
        compare("airport", {a.code: sums(a.arrivals, a) for a in node.extent(Airport)}, totals.airports, check)
    return check


def compare(kind: str, found: Mapping[K, V], expected: Mapping[K, V], check: Check) -> None:
    """Both ways: nothing missing, nothing different, nothing more."""
    check.objects += len(found)
    for key, want in expected.items():
        have = found.get(key)
        if have is None:
            check.complain(f"{kind} {key} is missing")
        elif have != want:
            check.complain(f"{kind} {key} is {have}, should be {want}")
    for key in found.keys() - expected.keys():
        check.complain(f"{kind} {key} should not exist")


class Counted(Protocol):
    """Miles and minutes."""

    miles: int
    minutes: int


def sums(landings: int, of: Counted) -> Sums:
    """As the totals have them."""
    return landings, of.miles, of.minutes


def flight_key(flight: Flight) -> FlightKey:
    """As the CSV writes it."""
    return flight.time_hour.strftime("%Y-%m-%dT%H:%M:%SZ"), flight.carrier, flight.flight, flight.tail
