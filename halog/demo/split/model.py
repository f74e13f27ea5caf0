"""This module holds what the two sites manage, and what stands where both have counted.

A departure is as the last one to touch it left it: nothing is declared for it, so the manual's defaults hold. An
aircraft and an airport are sums, and what both sites added must be in them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import halog
from halog.demo.model import Aircraft, Airport
from restore.compensation import Conflict, Replace, Verdict, by_default, merged_fields
from restore.merge import Kind

COUNTERS = ("landings", "arrivals", "miles", "minutes")


@halog.managed(key=("time_hour", "carrier", "flight", "tail"), partition_by="tail")
class Departure:
    """A `Departure` is a scheduled flight, shown at both sites' desks. `by` names the write that left it so."""

    time_hour: dt.datetime
    carrier: str
    flight: int
    tail: str
    gate: str
    status: str
    by: str


def added_up(conflict: Conflict) -> Verdict:
    """Add up what both sites counted, if both met the object for the first time while they were apart."""
    ours, theirs = conflict.source, conflict.initiating
    if conflict.kind is not Kind.KEY_CONFLICT or conflict.base is not None or ours is None or theirs is None:
        return by_default(conflict)
    return Replace({name: ours[name] + theirs[name] if name in COUNTERS else ours[name] for name in ours})


@halog.on_conflict(Aircraft, Airport)
def totals(conflict: Conflict) -> Verdict:
    """Add what both sites added since they parted to what was there."""
    return _merged(conflict)


_merged = merged_fields(counters=COUNTERS, otherwise=added_up)


def departure_key(fields: Mapping[str, Any]) -> str:
    """Return the key of a departure, by its live fields or those a report shows."""
    when = fields["time_hour"]
    hour = dt.datetime.fromisoformat(when) if isinstance(when, str) else when
    return f"{hour:%Y-%m-%dT%H:%M} {fields['carrier']} {fields['flight']} {fields['tail']}"


def departure_state(fields: Mapping[str, Any] | None) -> str:
    """Return everything except the key in one line; "" for no departure. No two writes leave the same."""
    return "" if fields is None else f"{fields['gate']} {fields['status']} {fields['by']}"
