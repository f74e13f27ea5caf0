"""This module holds logs for a job while it runs, and for a time after it was killed (`halog.metadata.log_holds`)."""

from __future__ import annotations

import time
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

from halog.errors import HalogError
from halog.metadata import log_holds as retention
from halog.ports import Coordinator, KeyedLog, TopicPartition, UnknownResult
from spark_jobs.snapshot import Place


class HeldSite(Protocol):
    """A `HeldSite` is a site, as far as its logs are held there."""

    @property
    def coordinator(self) -> Coordinator: ...
    @property
    def log(self) -> KeyedLog: ...


def hold_name(job: str, policy: str, checkpoint: Path) -> str:
    """Return a name that differs for each checkpoint directory: a job that ends must not release what another one
    holds."""
    return f"{job}-{policy[:80]}-{blake2b(str(checkpoint.absolute()).encode(), digest_size=4).hexdigest()}"


class Holds:
    """`Holds` are the job's holds of the partitions' logs; they are renewed while it runs."""

    def __init__(self, site: HeldSite, name: str, places: dict[int, Place], hold_ms: int, why: str) -> None:
        self._site = site
        self._name = name
        self._places = places
        self._hold_ms = hold_ms
        self._why = why
        self._offsets: dict[int, int] = {}
        self._renewed = 0.0

    def everything(self) -> None:
        """Hold everything that the logs have."""
        for index, place in self._places.items():
            first = self._site.log.bounds(TopicPartition(place.log, place.index))[0]
            self._offsets[index] = retention.hold_the_rest(
                self._site.coordinator, place.name, self._name, first, self._why, self._until()
            )
        self._renewed = time.monotonic()

    def keep(self, offsets: dict[int, int]) -> None:
        """Hold the logs from these offsets on. RefusedError if one is trimmed beyond."""
        for index, offset in offsets.items():
            place = self._places[index]
            first = self._site.log.bounds(TopicPartition(place.log, place.index))[0]
            wanted = retention.Hold(offset, self._until(), self._why)
            retention.hold(self._site.coordinator, place.name, self._name, wanted, first)
        self._offsets = dict(offsets)
        self._renewed = time.monotonic()

    def move_to(self, offsets: dict[int, int]) -> None:
        """Note that what is before these offsets is not needed any more; the next renewal tells it."""
        self._offsets = dict(offsets)

    def renew(self) -> None:
        """Renew the holds after a third of their time."""
        if time.monotonic() - self._renewed > self._hold_ms / 3_000:
            self.keep(self._offsets)

    def release(self) -> None:
        """Let go of the logs: the job is done."""
        for place in self._places.values():
            with suppress(HalogError, UnknownResult):  # the hold ends by itself
                retention.release(self._site.coordinator, place.name, self._name)

    def _until(self) -> int:
        return retention.now_ms() + self._hold_ms
