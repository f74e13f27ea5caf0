"""A row of the CSV as the client replays it. Pure; the judge reads the same CSV by itself (`totals`)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from halog.demo.model import NO_TAIL, Status

MISSING = frozenset(("", "NA"))
"""How the data set writes "no value"."""


class Row(NamedTuple):
    """One scheduled departure. `minutes` is set for a landing only."""

    number: int
    time_hour: dt.datetime
    carrier: str
    flight: int
    tail: str
    origin: str
    destination: str
    status: Status
    miles: int
    minutes: int | None

    @property
    def key(self) -> tuple[dt.datetime, str, int, str]:
        """Of its `Flight`."""
        return self.time_hour, self.carrier, self.flight, self.tail


def parse(records: Iterable[Mapping[str, str]]) -> Iterator[Row]:
    """Rows in file order, numbered from 0."""
    for number, r in enumerate(records):
        minutes = None if r["air_time"] in MISSING else int(r["air_time"])
        yield Row(
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


def status_of(minutes: int | None, arr_time: str) -> Status:
    """A diverted flight arrived, but not after a measured time in the air."""
    if minutes is not None:
        return Status.LANDED
    return Status.CANCELLED if arr_time in MISSING else Status.DIVERTED
