"""Transactions over several partitions that this node drives and that take long: their participants hear that it lives.

A participant that has voted holds objects, and asks for the abort when it has heard nothing of the initiator for
`timing.doubt_timeout_ms` (D5): that is what frees what a dead one left. A living one asks for the same vote again, well
before that, as long as it waits for another participant; the law is that such a request changes nothing else. What
takes some ms, as nearly all do, never gets there. Decides nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import msgspec

from halog.errors import ConflictError, HalogError
from halog.runtime.rpc import frames
from halog.runtime.support.keyed_executor import Errands

logger = logging.getLogger("halog.node")

SHARE: Final = 4
"""Asked so often in the time in which nobody is doubted: one request may be lost, and one be late."""

EACH, THREADS = 4, 32
"""Such requests at once, to one partition and to all."""

IDLE_TICKS: Final = 20
"""A thread that is woken for each transaction would cost more than one that looks twice a second for a while."""


class Living:
    """One transaction, until it is decided."""

    def __init__(self, every_s: float) -> None:
        self.every_s = every_s
        self.due = time.monotonic() + every_s
        self.voted: list[frames.Prepare] = []
        """Whoever has."""
        self.aborted: ConflictError | None = None
        """A participant says that it was given up: nothing of it happened or will."""

    def check(self) -> None:
        """Raises that it was given up."""
        if self.aborted is not None:
            raise self.aborted


class Initiating:
    """Of one node. `ask`: asks for a vote until then."""

    def __init__(self, ask: Callable[[frames.Prepare, float], int], tick_s: float) -> None:
        self._ask = ask
        self._tick_s = tick_s
        self._live: dict[bytes, Living] = {}
        self._errands = Errands("halog-living", EACH, THREADS)
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Nobody hears of it any more."""
        self._closed = True
        self._wake.set()
        self._errands.close()

    @contextmanager
    def living(self, tx: bytes, every_s: float) -> Iterator[Living]:
        """While this lasts the initiator lives."""
        one = self._live[tx] = Living(every_s)
        if self._thread is None:
            self._begin()
        if not self._wake.is_set():
            self._wake.set()
        try:
            yield one
        finally:
            self._live.pop(tx, None)

    def _begin(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="halog-living", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        idle = 0
        while not self._closed:
            idle = 0 if self._live else idle + 1
            if idle > IDLE_TICKS:
                self._wake.clear()
                if not self._live and not self._closed:
                    self._wake.wait()
                idle = 0
            time.sleep(self._tick_s)
            self._turn(time.monotonic())

    def _turn(self, now: float) -> None:
        for tx, one in list(self._live.items()):
            if now >= one.due:
                one.due = now + one.every_s
                for vote in list(one.voted):
                    self._errands.go(vote.partition, tx, partial(self._say, one, vote))

    def _say(self, one: Living, vote: frames.Prepare) -> bool:
        try:
            self._ask(msgspec.structs.replace(vote), time.monotonic() + one.every_s)
        except ConflictError as error:
            if error.evidence.get("given_up"):
                one.aborted = error
        except HalogError as error:
            logger.debug("partition %s was not told that an initiator lives: %s", vote.partition, error)
        return True
