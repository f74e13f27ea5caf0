"""This module keeps places of a log that was followed, to go on from behind a fork that is known later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spark_jobs.history import HistoryState

WAYPOINTS: Final = 8
"""How many places are kept of each log: whenever there are more, every second one is dropped."""


def thinned(places: list[bytes]) -> list[bytes]:
    """Return not more than `WAYPOINTS` places, always with the first one; the older, the farther apart."""
    return places if len(places) <= WAYPOINTS else places[::2]


def last_before(lsn: int, places: Sequence[bytes]) -> bytes | None:
    """Return the last of these places that has not got to this lsn."""
    some = (p for p in places if HistoryState.unpack(p).state.lsn < lsn)
    return max(some, key=lambda p: HistoryState.unpack(p).next_offset, default=None)
