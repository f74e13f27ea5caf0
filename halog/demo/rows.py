"""This module reads a row of the CSV as the client replays it. Pure; the judge reads the same CSV by itself
(`totals`)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from halog.demo.model import NO_TAIL, FlightStatus

MISSING = frozenset(("", "NA"))
"""The data set writes "no value" so."""


class FlightRow(NamedTuple):
    """Holds one scheduled departure. `minutes` is set for a landing only."""

    number: int
    time_hour: dt.datetime
    carrier: str
    flight: int
    tail: str
    origin: str
    destination: str
    status: FlightStatus
    miles: int
    minutes: int | None

    @property
    def key(self) -> tuple[dt.datetime, str, int, str]:
        """Return the key of its `Flight`."""
        return self.time_hour, self.carrier, self.flight, self.tail


def parse(records: Iterable[Mapping[str, str]]) -> Iterator[FlightRow]:
    """Yield rows in file order, numbered from 0."""
    for number, r in enumerate(records):
        minutes = None if r["air_time"] in MISSING else int(r["air_time"])
        yield FlightRow(
            number,
            dt.datetime.fromisoformat(r["time_hour"]),
            r["carrier"],
            int(r["flight"]),
            NO_TAIL if r["tailnum"] in MISSING else r["tailnum"],
            r["origin"],
            r["dest"],
            status_of(minutes, r["arr_time"]),
            int(r["distance"]),
            minutes,
        )


def status_of(minutes: int | None, arr_time: str) -> FlightStatus:
    """Return how the flight ended. A diverted flight arrived, but not after a measured time in the air."""
    if minutes is not None:
        return FlightStatus.LANDED
    return FlightStatus.CANCELLED if arr_time in MISSING else FlightStatus.DIVERTED
