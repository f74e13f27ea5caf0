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
from halog.ports import Channel, Renewal
from halog.runtime.events.history import History
from halog.runtime.rpc import frames
from halog.runtime.support.clock import wall_ms

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
        self._since_ms = wall_ms()
        self._refused = Renewal("", "")
        """The files that could not be used when they were last tried, and why."""
        self._looking = threading.Lock()
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
        with self._looking:
            self._heed(self._channel.renew())
        problem = plaintext_problem(self._config, self._node, self._day())
        now = self._clock()
        if problem is not None and (self._told is None or now - self._told >= AGAIN_S):
            self._told = now
            self._history.tell(PLAINTEXT, f"{problem[0]}: {problem[1]}")

    def reload(self) -> frames.CertificatesReply:
        """Look at the files of the certificates now, and say what became of them. Files that were refused before are
        tried again: perhaps their time has come."""
        if self._channel.principal is None:
            return frames.CertificatesReply("off", "it takes plain text alone", "", self._since_ms)
        with self._looking:
            renewal = self._channel.renew(again=bool(self._refused.error))
            if renewal is None:
                return frames.CertificatesReply("unchanged", "", "", self._since_ms)
            self._heed(renewal)
            outcome = "refused" if renewal.error else "taken"
            return frames.CertificatesReply(outcome, renewal.error, renewal.files, self._since_ms)

    def _heed(self, renewal: Renewal | None) -> None:
        """Tell what became of files, if it is something new."""
        if renewal is None:
            return
        if renewal.error:
            if renewal != self._refused:
                self._history.tell(CERTIFICATES_BAD, renewal.error, more={"files": renewal.files})
            self._refused = renewal
            return
        self._refused, self._since_ms = Renewal("", ""), wall_ms()
        self._history.tell(CERTIFICATES, "their files changed", more={"files": renewal.files})

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(LOOK_S)

    def _run(self) -> None:
        while not self._closing.wait(LOOK_S):
            self.look()
