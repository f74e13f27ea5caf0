"""This module runs work for partitions, each in a lane of its own.

A partition that nobody serves holds up its own work only, and that within bounds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from halog.errors import ClosedError, OverloadedError
from halog.runtime.support.daemon_pool import Workers

T = TypeVar("T")

logger = logging.getLogger("halog.node")

QUEUED = 1_000
"""At most so many jobs wait for one partition: a second's work for it."""


class Lanes:
    """Runs at most `each` jobs of a partition at a time, in their order, on at most `most` threads for all partitions.
    At most `queued` wait for one partition."""

    def __init__(self, name: str, each: int, most: int, queued: int = QUEUED) -> None:
        self._each = each
        self._queued = queued
        self._workers = Workers(name, most)
        self._lock = threading.Lock()
        self._lanes: dict[str, _Lane] = {}
        """Partitions with work."""

    def submit(self, partition: str, work: Callable[[], T]) -> Future[T]:
        """Run `work` soon. Raises OverloadedError if too much waits for this partition, ClosedError after `close`."""
        job: Future[T] = Future()
        with self._lock:
            lane = self._lanes.get(partition) or _Lane()
            if lane.threads < self._each:
                self._workers.submit(partial(self._run, partition, lane))
                lane.threads += 1
                self._lanes[partition] = lane
            elif len(lane.jobs) >= self._queued:
                raise OverloadedError(
                    f"{self._queued:,} requests wait for partition {partition}; nothing happened; try again later",
                    partition=partition,
                )
            lane.jobs.append((job, work))
        return job

    def close(self) -> None:
        """Take no more jobs. What was submitted is still done, but nobody waits for it."""
        self._workers.close()

    def waiting(self, partition: str) -> int:
        """Return how many jobs of a partition have not begun."""
        with self._lock:
            lane = self._lanes.get(partition)
            return 0 if lane is None else len(lane.jobs)

    def _run(self, partition: str, lane: _Lane) -> None:
        """Run jobs of the lane on one of its threads, while there are any."""
        while True:
            with self._lock:
                if not lane.jobs:
                    lane.threads -= 1
                    if not lane.threads:
                        del self._lanes[partition]
                    return
                job, work = lane.jobs.popleft()
            try:
                result = work()
            except BaseException as error:
                job.set_exception(error)
            else:
                job.set_result(result)


class _Lane:
    def __init__(self) -> None:
        self.jobs: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self.threads = 0


class Errands:
    """Runs messages and questions to partitions that may be lost, since whoever needs them asks again.

    What is under way is not begun again. What waits behind a question that nobody answered is dropped.
    """

    def __init__(self, name: str, each: int, most: int) -> None:
        self._lanes = Lanes(name, each, most)
        self._lock = threading.Lock()
        self._pending: set[tuple[str, Hashable]] = set()
        self._silent: dict[str, float] = {}
        """By partition: when a question last came to nothing."""

    def close(self) -> None:
        """Take no more errands: whoever needs one asks again."""
        self._lanes.close()

    def go(self, partition: str, what: Hashable, work: Callable[[], bool]) -> None:
        """Run the errand `what` soon, unless it is pending. `work` returns False if nobody is there to answer."""
        errand = (partition, what)
        with self._lock:
            if errand in self._pending:
                return
            self._pending.add(errand)
        try:
            self._lanes.submit(partition, partial(self._do, errand, work, time.monotonic()))
        except (ClosedError, OverloadedError):
            self._done(errand)

    def pending(self) -> int:
        """Return how many errands are under way or wait."""
        with self._lock:
            return len(self._pending)

    def _do(self, errand: tuple[str, Hashable], work: Callable[[], bool], since: float) -> None:
        partition = errand[0]
        try:
            if self._silent.get(partition, 0.0) <= since and not work():
                self._silent[partition] = time.monotonic()
        except Exception:
            logger.exception("an errand to partition %s failed", partition)
        finally:
            self._done(errand)

    def _done(self, errand: tuple[str, Hashable]) -> None:
        with self._lock:
            self._pending.discard(errand)
