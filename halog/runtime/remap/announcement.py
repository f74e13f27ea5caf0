"""Announces a job that moves the objects of a change, and keeps the announcement fresh (S1, T8)."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Final

import msgspec

from halog.errors import HalogError, RefusedError, UnreachableError
from halog.metadata.cas import put
from halog.metadata.move_jobs import JobAnnouncement, parse, path_of
from halog.ports import Coordinator, UnknownResult

logger = logging.getLogger("halog.jobs")

RENEWALS: Final = 3
"""An announcement is renewed this often while it lasts: two renewals may be lost."""

SILENT_S: Final = 120.0
"""A driver that has done nothing for so long hangs: a micro-batch of Spark's takes seconds, a failover less."""


class Announcement:
    """An `Announcement` belongs to one job. Use it in a with-block: a thread renews it as long as `beat` is called now
    and then, and it is deleted at the end."""

    def __init__(
        self, coordinator: Coordinator, policy: str, announced: JobAnnouncement, silent_s: float = SILENT_S
    ) -> None:
        self._coordinator = coordinator
        self._policy = policy
        self._announced = announced
        self._silent_s = silent_s
        self._ended = threading.Event()
        self._beaten = time.monotonic()
        self._lost: RefusedError | None = None
        self._thread = threading.Thread(target=self._keep, name="announcement", daemon=True)

    def __enter__(self) -> Announcement:
        self._put(first=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        with suppress(HalogError, UnknownResult):  # otherwise it expires by itself
            self._take_back()

    def beat(self) -> None:
        """Say that the job is at work. RefusedError if another job has taken its place."""
        self._beaten = time.monotonic()
        if self._lost is not None:
            raise self._lost

    def _keep(self) -> None:
        while not self._ended.wait(self._announced.for_ms / 1_000 / RENEWALS):
            if time.monotonic() - self._beaten > self._silent_s:
                continue
            try:
                self._put(first=False)
            except RefusedError as error:
                self._lost = error
                return
            except HalogError as error:
                logger.warning("the announcement of the job of policy %s was not renewed: %s", self._policy, error)

    def _put(self, *, first: bool) -> None:
        """Write the announcement. RefusedError if it is not the `first` time and another job has taken this one's
        place."""
        path, data = path_of(self._policy), msgspec.json.encode(self._announced)

        def renewed(before: bytes | None) -> bytes:
            if not first and before != data:
                raise RefusedError(
                    f"policy {self._policy}: another job was started later and goes on with this one's work; its "
                    "checkpoint directory, not this one's, is the one to start again with",
                    policy=self._policy,
                )
            return data

        if not put(self._coordinator, path, renewed):
            raise UnreachableError(f"ZooKeeper did not say whether znode {path} was written; try again")

    def _take_back(self) -> None:
        found = self._coordinator.get(path_of(self._policy))
        if found is not None and parse(found) == self._announced:
            self._coordinator.delete(path_of(self._policy), found.version)
