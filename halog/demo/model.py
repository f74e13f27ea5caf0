"""This module holds the demo's managed classes. Node processes import it because `[application] modules` names it.

A flight and its aircraft are both partitioned by the tail number, so a method of the one can change the other. Airports
live elsewhere: a transaction that changes all three is over two partitions. Methods run on the node that is active for
the object.
"""

from __future__ import annotations

import datetime as dt
import enum

import halog

NO_TAIL = "NONE"
"""Flights cancelled before an aircraft was assigned have no tail number."""


class FlightStatus(enum.Enum):
    """Says how a flight ended."""

    LANDED = "landed"
    CANCELLED = "cancelled"
    DIVERTED = "diverted"


@halog.managed(key=("time_hour", "carrier", "flight", "tail"), partition_by="tail")
class Flight:
    """A `Flight` is one row. Date, carrier and number alone are not unique: a number may depart twice a day."""

    time_hour: dt.datetime
    carrier: str
    flight: int
    tail: str
    origin: str
    destination: str
    status: FlightStatus
    miles: int
    minutes: int | None = None

    def land(self) -> None:
        """Land the aircraft, too: both are in one partition, so one transaction changes both."""
        here = halog.current()
        aircraft = here.find(Aircraft, self.tail) or here.create(Aircraft(tail=self.tail))
        aircraft.land(self.miles, self.minutes or 0)


@halog.managed(key="tail")
class Aircraft:
    """An `Aircraft` holds what one aircraft has done."""

    tail: str
    landings: int = 0
    miles: int = 0
    minutes: int = 0

    def land(self, miles: int, minutes: int) -> None:
        """Count one landing."""
        self.landings += 1
        self.miles += miles
        self.minutes += minutes


@halog.managed(key="code")
class Airport:
    """An `Airport` holds what has arrived there. The client fetches and changes it itself: the other way to change an
    object."""

    code: str
    arrivals: int = 0
    miles: int = 0
    minutes: int = 0


@halog.managed(key="name")
class Probe:
    """A `Probe` is written to again and again, to see when its partition takes writes. There is one per partition."""

    name: str
    writes: int = 0

    def write(self) -> None:
        """Count one more write."""
        self.writes += 1
