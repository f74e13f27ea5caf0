"""This module looks after a running process's security: certificates that are renewed, and plain text whose day is
over."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable
from typing import Final

from halog.config import Config
from halog.config.security import plaintext_problem
from halog.events import CERTIFICATES, CERTIFICATES_BAD, PLAINTEXT
from halog.ports import Channel
from halog.runtime.events.history import History

LOOK_S: Final = 2.0
"""How often files are looked at: three calls to the kernel."""
AGAIN_S: Final = 24 * 3600.0
"""How often it is told that plain text should have ended."""


def today() -> datetime.date:
    """Return the day that counts for plain text, the same everywhere."""
    return datetime.datetime.now(datetime.UTC).date()


class SecurityWatch:
    """A `SecurityWatch` has a thread of its own, from `begin` to `close`, where there is anything to look after."""

    def __init__(
        self,
        config: Config,
        node: str,
        channel: Channel,
        history: History,
        clock: Callable[[], float] = time.monotonic,
        day: Callable[[], datetime.date] = today,
    ) -> None:
        self._config = config
        self._node = node
        self._channel = channel
        self._history = history
        self._clock = clock
        self._day = day
        self._told: float | None = None
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Begin to look."""
        security = self._config.security
        if security.node_tls != "off" or security.plaintext_until:
            self._thread = threading.Thread(target=self._run, name="halog-security", daemon=True)
            self._thread.start()

    def look(self) -> None:
        """Look once."""
        renewal = self._channel.renew()
        if renewal is not None and renewal.error:
            self._history.tell(CERTIFICATES_BAD, renewal.error, more={"files": renewal.files})
        elif renewal is not None:
            self._history.tell(CERTIFICATES, "their files changed", more={"files": renewal.files})
        problem = plaintext_problem(self._config, self._node, self._day())
        now = self._clock()
        if problem is not None and (self._told is None or now - self._told >= AGAIN_S):
            self._told = now
            self._history.tell(PLAINTEXT, f"{problem[0]}: {problem[1]}")

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(LOOK_S)

    def _run(self) -> None:
        while not self._closing.wait(LOOK_S):
            self.look()
