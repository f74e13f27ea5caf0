"""Moments that scans of this node have given up, told to the node that keeps them (R5).

A scan that comes to its end has nothing to tell: its last page lets go of its moment. One that nobody goes on with ends
whenever Python frees it, in any thread, perhaps in the middle of anything: then nothing may be asked of anybody, so it
is written down, and a thread of its own says it. What is not told in time is let go of by itself, so it is not told any
more then, and little waits where a partition gives no answer. Decides nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from queue import SimpleQueue
from typing import Final

from halog.errors import HalogError
from halog.runtime.client.caller import Asker
from halog.runtime.replica.named_moments import KEPT_MS
from halog.runtime.rpc import frames

logger = logging.getLogger("halog.service")

ASKED_S: Final = 1.0
"""How long it is tried: somebody else may be active by now, and has nothing to let go of."""


class LettingGo:
    """Of one node."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._given_up: SimpleQueue[tuple[str, bytes, float] | None] = SimpleQueue()
        """With the time until which it is kept there. The only queue into which may be put at any moment."""
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def begin(self) -> None:
        """A scan has a moment elsewhere, and may be given up."""
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="halog-letting-go", daemon=True)
                    self._thread.start()

    def given_up(self, partition: str, moment: bytes) -> None:
        """Nobody asks for it any more."""
        self._given_up.put((partition, moment, time.monotonic() + KEPT_MS / 1000))

    def close(self) -> None:
        """Nothing is told any more."""
        self._given_up.put(None)

    def _run(self) -> None:
        while (one := self._given_up.get()) is not None and not self._asker.closed:
            partition, moment, until = one
            if time.monotonic() < until:
                self._tell(partition, moment)

    def _tell(self, partition: str, moment: bytes) -> None:
        try:
            self._asker.ask(partition, frames.LetGo(partition, moment), time.monotonic() + ASKED_S)
        except HalogError:
            pass
        except Exception:  # the next ones are told all the same
            logger.exception("a moment of partition %s is let go of by itself, after an error", partition)


class Passing:
    """One scan of a partition elsewhere. `moment`: what the node that is asked calls it, and keeps; b"": nothing."""

    __slots__ = ("_letting_go", "_partition", "moment")

    def __init__(self, letting_go: LettingGo, partition: str) -> None:
        self._letting_go = letting_go
        self._partition = partition
        self.moment = b""

    def take_up(self, moment: bytes) -> None:
        """As the page that has come says; the last one says that nothing is kept any more."""
        self.moment = moment
        if moment:
            self._letting_go.begin()

    def end(self) -> None:
        """It has come to its end, or nobody goes on with it."""
        if self.moment:
            self._letting_go.given_up(self._partition, self.moment)
