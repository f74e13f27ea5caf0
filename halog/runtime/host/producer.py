"""This module keeps the one producer session of a node: all copies write through it, and its end ends their epochs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from halog.ports import Log, LogSession
from halog.runtime.host.threads import ERROR_PAUSE_S, HostThreads

logger = logging.getLogger("halog.host")


class Producer:
    """A `Producer` has the session of a node, and makes the next one when a session ends."""

    def __init__(
        self, log: Log, threads: HostThreads, closing: threading.Event, ended: Callable[[LogSession, str], None]
    ) -> None:
        """`ended` is told of each session that has ended, and why, twice: a copy may have begun with it meanwhile."""
        self._log = log
        self._threads = threads
        self._closing = closing
        self._ended = ended
        self._session: LogSession
        self._lock = threading.Lock()
        self._ending: LogSession | None = None
        """Let go of, while its successor is being made."""

    def start(self) -> None:
        """Make the first session."""
        self._session = self._log.session()

    def session(self) -> LogSession:
        """Return the newest session."""
        return self._session

    def is_whole(self) -> bool:
        """Is the newest session one that nobody has let go of?"""
        return self._session is not self._ending

    def end(self, session: LogSession, why: str) -> None:
        """Let go of a session; every epoch bound to it ends. The log may be away: the next session is made elsewhere,
        and an epoch begun meanwhile fails at once."""
        with self._lock:
            if session is not self._session or session is self._ending:
                return
            self._ending = session
        logger.warning("the producer session ends: %s", why)
        self._threads.spawn("session", lambda: self._renew(session, why))

    def _renew(self, session: LogSession, why: str) -> None:
        self._ended(session, why)
        said = ""
        while not self._closing.is_set():
            try:
                self._session = self._log.session()
                break
            except Exception as e:
                if str(e) != said:  # an attempt that fails as the one before it is not news
                    logger.warning("no producer session yet, going on trying: %s", e)
                said = str(e)
                self._closing.wait(ERROR_PAUSE_S)
        self._ended(session, why)  # for whoever took it for the current one until now
