"""A thread reads the log for a node's copies: each copy's entries in runs, acknowledgements behind them.

Order within a partition is never changed. This module decides nothing.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence

from halog.core import events as ev
from halog.errors import HalogError, LogError
from halog.ports import Entry, LogTail, OutOfRange, TopicPartition
from halog.runtime.replica.driver import Copy

logger = logging.getLogger("halog.host")

WAIT_S = 0.1
"""One wait for entries; the thread looks at what else there is that often."""

AT_ONCE = 2_000
"""Entries a reader that is in no way held back takes at once."""

RETRY_S = 0.05
"""Pause after an error that is nobody's in particular."""

Run = list[Entry | OutOfRange]


class LogReader:
    """A `LogReader` gives copies what the log has. `flush` is called after every batch: acknowledgements found
    meanwhile leave together. Then `took` is told of each copy, and how many bytes it was given; it may take its time:
    nothing of the batch is left by then."""

    def __init__(
        self,
        tail: LogTail,
        copy_at: Callable[[TopicPartition], Copy | None],
        flush: Callable[[], None] = lambda: None,
        took: Callable[[Copy, int], None] | None = None,
        at_once: int = AT_ONCE,
        retry_s: float = RETRY_S,
    ) -> None:
        self._retry_s = retry_s
        self._tail = tail
        self._copy_at = copy_at
        self._flush = flush
        self._took = took
        self._at_once = at_once

    def turn(self) -> None:
        """Wait for entries, and hand them out."""
        try:
            batch = self._tail.poll(WAIT_S, self._at_once)
        except HalogError as e:
            self._unreadable(e)
            return
        for tp, run in itertools.groupby(batch, key=_tp):
            copy = self._copy_at(tp)
            if copy is not None:
                _deliver(copy, list(run))
        self._flush()
        if self._took is not None:
            self._tell(batch, self._took)

    def _tell(self, batch: Sequence[Entry | OutOfRange], took: Callable[[Copy, int], None]) -> None:
        sizes: Counter[TopicPartition] = Counter()
        for item in batch:
            sizes[item.tp] += len(item.value) if isinstance(item, Entry) else 0
        for tp, size in sizes.items():
            copy = self._copy_at(tp)
            if copy is not None:
                took(copy, size)

    def _unreadable(self, error: HalogError) -> None:
        """A damaged entry stops the copy it belongs to; anything else is tried again."""
        logger.error("reading the log: %s", error)
        where = error.evidence
        copy = self._copy_at(TopicPartition(where.get("topic", ""), where.get("partition", -1)))
        if isinstance(error, LogError) and copy is not None:
            copy.fail(error)
        else:
            time.sleep(self._retry_s)


def _deliver(copy: Copy, run: Run) -> None:
    entries: list[Entry] = []
    for item in run:
        if isinstance(item, OutOfRange):
            why = f"the log begins at {item.start} and ends at {item.end}, this copy needs {item.offset}"
            copy.post(ev.LogLost(why))
            return
        entries.append(item)
    copy.read(entries)


def _tp(item: Entry | OutOfRange) -> TopicPartition:
    return item.tp
