"""This module asks the first question: do the objects add up to what the CSV says?

It reads every object through the application's own verbs, as any program would, from the nodes that are active now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from halog.demo.complaints import Complaints
from halog.demo.model import Aircraft, Airport, Flight
from halog.demo.totals import FlightKey, Sums, Totals
from halog.transactions import Node

K = TypeVar("K")
V = TypeVar("V")


class ObjectCheck(Complaints):
    """An `ObjectCheck` counts objects that were read, and those that are wrong."""

    most_examples = 5

    def __init__(self) -> None:
        super().__init__()
        self.objects = 0


def check_objects(node: Node, totals: Totals) -> ObjectCheck:
    """Check every flight, aircraft and airport against the totals."""
    check = ObjectCheck()
    with node.transaction():
        compare("flight", {flight_key(f): f.status.value for f in node.extent(Flight)}, totals.flights, check)
    with node.transaction():
        compare("aircraft", {a.tail: sums(a.landings, a) for a in node.extent(Aircraft)}, totals.aircraft, check)
        compare("airport", {a.code: sums(a.arrivals, a) for a in node.extent(Airport)}, totals.airports, check)
    return check


def compare(kind: str, found: Mapping[K, V], expected: Mapping[K, V], check: ObjectCheck) -> None:
    """Compare both ways: nothing missing, nothing different, nothing more."""
    check.objects += len(found)
    for key, want in expected.items():
        have = found.get(key)
        if have is None:
            check.complain(f"{kind} {key} is missing")
        elif have != want:
            check.complain(f"{kind} {key} is {have}, should be {want}")
    for key in found.keys() - expected.keys():
        check.complain(f"{kind} {key} should not exist")


class MilesAndMinutes(Protocol):
    """Has miles and minutes."""

    miles: int
    minutes: int


def sums(landings: int, of: MilesAndMinutes) -> Sums:
    """Return the sums as the totals have them."""
    return landings, of.miles, of.minutes


def flight_key(flight: Flight) -> FlightKey:
    """Return the flight's key as the CSV writes it."""
    return flight.time_hour.strftime("%Y-%m-%dT%H:%M:%SZ"), flight.carrier, flight.flight, flight.tail
