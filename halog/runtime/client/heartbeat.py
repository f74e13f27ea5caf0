"""Tells participants of long transactions over several partitions that this node, their initiator, lives.

A participant that has voted holds objects. It asks for the abort when it has heard nothing of the initiator for
`timing.doubt_timeout_ms` (D5): so what a dead initiator left is freed. A living initiator asks for the same vote again,
well before that, as long as it waits for another participant. By rule such a request changes nothing else. Nearly all
transactions take some ms, and are decided before that. This module decides nothing.
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
"""A vote is asked for again so often within the doubt timeout: one request may be lost, and one be late."""

EACH, THREADS = 4, 32
"""So many such requests are under way at once, to one partition and to all."""

IDLE_TICKS: Final = 20
"""The thread sleeps after so many turns without work. Waking it for each transaction would cost more than two looks a
second for a while."""


class LiveTransaction:
    """A `LiveTransaction` is a transaction over several partitions until it is decided."""

    def __init__(self, every_s: float) -> None:
        self.every_s = every_s
        self.due = time.monotonic() + every_s
        self.voted: list[frames.PrepareRequest] = []
        """Holds the requests of those participants that have voted."""
        self.aborted: ConflictError | None = None
        """Is set when a participant says that the transaction was given up: nothing of it has happened or will
        happen."""

    def check(self) -> None:
        """Raise the error that the transaction was given up, if it was."""
        if self.aborted is not None:
            raise self.aborted


class InitiatorHeartbeat:
    """An `InitiatorHeartbeat` repeats the votes of a node's live transactions. `ask` asks for a vote until the given
    time."""

    def __init__(self, ask: Callable[[frames.PrepareRequest, float], int], tick_s: float) -> None:
        self._ask = ask
        self._tick_s = tick_s
        self._live: dict[bytes, LiveTransaction] = {}
        self._errands = Errands("halog-living", EACH, THREADS)
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Stop: no participant hears of this node any more."""
        self._closed = True
        self._wake.set()
        self._errands.close()

    @contextmanager
    def living(self, tx: bytes, every_s: float) -> Iterator[LiveTransaction]:
        """Tell participants that the initiator lives, for as long as this context lasts."""
        one = self._live[tx] = LiveTransaction(every_s)
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

    def _say(self, one: LiveTransaction, vote: frames.PrepareRequest) -> bool:
        try:
            self._ask(msgspec.structs.replace(vote), time.monotonic() + one.every_s)
        except ConflictError as error:
            if error.evidence.get("given_up"):
                one.aborted = error
        except HalogError as error:
            logger.debug("partition %s was not told that an initiator lives: %s", vote.partition, error)
        return True
