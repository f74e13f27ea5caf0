"""The demo's managed classes. Node processes import this module because `[application] modules` names it.

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


class Status(enum.Enum):
    """How a flight ended."""

    LANDED = "landed"
    CANCELLED = "cancelled"
    DIVERTED = "diverted"


@halog.managed(key=("time_hour", "carrier", "flight", "tail"), partition_by="tail")
class Flight:
    """One row. Date, carrier and number alone are not unique: a number may depart twice a day."""

    time_hour: dt.datetime
    carrier: str
    flight: int
    tail: str
    origin: str
    destination: str
    status: Status
    miles: int
    minutes: int | None = None

    def land(self) -> None:
        """Its aircraft has landed, too: both are in one partition, so one transaction changes both."""
        here = halog.current()
        aircraft = here.find(Aircraft, self.tail) or here.create(Aircraft(tail=self.tail))
        aircraft.land(self.miles, self.minutes or 0)


@halog.managed(key="tail")
class Aircraft:
    """What an aircraft has done."""

    tail: str
    landings: int = 0
    miles: int = 0
    minutes: int = 0

    def land(self, miles: int, minutes: int) -> None:
        """It has arrived somewhere."""
        self.landings += 1
        self.miles += miles
        self.minutes += minutes


@halog.managed(key="code")
class Airport:
    """What has arrived at an airport. The client fetches and changes it itself: the other way to change an object."""

    code: str
    arrivals: int = 0
    miles: int = 0
    minutes: int = 0


@halog.managed(key="name")
class Probe:
    """One per partition: written to again and again to see when the partition takes writes. Counts nothing real."""

    name: str
    writes: int = 0

    def write(self) -> None:
        """Once more."""
        self.writes += 1
