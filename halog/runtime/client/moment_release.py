"""Tells other nodes to release moments of scans that this node has given up (R5).

A scan that comes to its end has nothing to release: its last page does so. An abandoned scan ends whenever Python frees
it, in any thread, perhaps in the middle of anything. Then no request may be made, so the moment is only queued, and a
thread of this module sends the request. A moment that is not released in time expires by itself, and no request is made
for it any more: so little waits where a partition gives no answer. This module decides nothing.
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
"""A release is tried for so long: by then another node may be active, which has no such moment."""


class MomentRelease:
    """A `MomentRelease` serves all scans of one node. `kept_ms`: so long a moment is kept elsewhere."""

    def __init__(self, asker: Asker, kept_ms: int = KEPT_MS) -> None:
        self._asker = asker
        self._kept_s = kept_ms / 1000
        self._given_up: SimpleQueue[tuple[str, bytes, float] | None] = SimpleQueue()
        """Holds partition, moment and the time until which it is kept there. Only this kind of queue may be put into at
        any moment."""
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Start the thread: a scan has a moment on another node, and may be given up."""
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="halog-letting-go", daemon=True)
                    self._thread.start()

    def given_up(self, partition: str, moment: bytes) -> None:
        """Put a moment into the queue that no scan needs any more."""
        self._given_up.put((partition, moment, time.monotonic() + self._kept_s))

    def close(self) -> None:
        """Stop: no moment is released any more."""
        self._given_up.put(None)

    def _run(self) -> None:
        while (one := self._given_up.get()) is not None and not self._asker.closed:
            partition, moment, until = one
            if time.monotonic() < until:
                self._tell(partition, moment)

    def _tell(self, partition: str, moment: bytes) -> None:
        try:
            self._asker.ask(partition, frames.MomentEnd(partition, moment), time.monotonic() + ASKED_S)
        except HalogError:
            pass
        except Exception:  # the next ones are released all the same
            logger.exception("a moment of partition %s was not released, and will expire", partition)


class RemoteScan:
    """A `RemoteScan` is one scan of a partition on another node. `moment` is that node's name for the moment which it
    keeps; b"" if it keeps none."""

    __slots__ = ("_letting_go", "_partition", "moment")

    def __init__(self, letting_go: MomentRelease, partition: str) -> None:
        self._letting_go = letting_go
        self._partition = partition
        self.moment = b""

    def take_up(self, moment: bytes) -> None:
        """Note the moment that a page names; the last page names none, as nothing is kept any more."""
        self.moment = moment
        if moment:
            self._letting_go.begin()

    def end(self) -> None:
        """Give up the moment: the scan has come to its end, or was abandoned."""
        if self.moment:
            self._letting_go.given_up(self._partition, self.moment)
