"""This module writes to a topic that may be away for a while: what it does not take is to be tried again.

It is used by one thread, and says in the log file when the topic is away for the first time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from halog.ports import JournalResult, LogJournal


class RetriedJournal:
    """A `RetriedJournal` opens its topic when it is first needed, and again after it could not."""

    def __init__(self, what: str, opened: Callable[[], LogJournal], logger: logging.Logger) -> None:
        """Take what it is called in the log file, as "the audit"."""
        self._what = what
        self._opened = opened
        self._logger = logger
        self._journal: LogJournal | None = None
        self._away = False

    def note(self, values: Sequence[bytes]) -> JournalResult:
        """Write values in their order, as far as the log takes them. Never raises."""
        try:
            if self._journal is None:
                self._journal = self._opened()
            noted, why = self._journal.note(values), "the log did not acknowledge"
        except Exception as error:
            noted, why = JournalResult(len(values)), str(error)
        if noted.left and not self._away:
            self._logger.warning("%s cannot be written, and is tried again: %s", self._what, why)
        self._away = noted.left > 0
        return noted

    def close(self) -> None:
        """Close the topic, if it was opened."""
        if self._journal is not None:
            self._journal.close()
