"""The thread that reads the log for all copies of a node, each copy's entries in runs, acknowledgements behind them.

Copies that no commit and no election waits for get theirs a few ms later, many at once: their share of the CPU is then
small, and it is not taken from a commit under way elsewhere on the machine. Order within a partition is never changed.
This module decides nothing.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable

from halog.core import events as ev
from halog.errors import HalogError, LogError
from halog.ports import Entry, LogTail, OutOfRange, TopicPartition
from halog.runtime.copy import Copy

logger = logging.getLogger("halog.host")

WAIT_S = 0.1
"""One wait for entries; the thread looks at what else there is that often."""

PATIENCE_S = 0.005
"""How long an async replica's entries may lie: five commits' time, and far below what anyone notices as lag."""

PATIENT_ENTRIES = 500
"""More than this is a burst: a batch of its own is worth while."""

RETRY_S = 0.05
"""Pause after an error that is nobody's in particular."""

Run = list[Entry | OutOfRange]


class LogReader:
    """`flush` is called after every batch: acknowledgements found meanwhile leave together."""

    def __init__(
        self, tail: LogTail, copy_at: Callable[[TopicPartition], Copy | None], flush: Callable[[], None]
    ) -> None:
        self._tail, self._copy_at, self._flush = tail, copy_at, flush
        self._held: dict[TopicPartition, tuple[Copy, Run]] = {}
        """Entries of a copy that was rebuilt meanwhile are dropped: the new one reads from where it begins."""
        self._due = 0.0

    def turn(self) -> None:
        """Wait for entries, and hand out what is due."""
        left = self._due - time.monotonic() if self._held else WAIT_S
        try:
            batch = self._tail.poll(max(0.0, left))
        except HalogError as e:
            self._unreadable(e)
            return
        for tp, run in itertools.groupby(batch, key=_tp):
            self._take(tp, list(run))
        if self._held and time.monotonic() >= self._due:
            self._release()
        self._flush()

    def _take(self, tp: TopicPartition, run: Run) -> None:
        """To the copy now, behind what is held for it, or held a moment longer."""
        copy = self._copy_at(tp)
        held = self._held.pop(tp, None)
        if copy is None:
            return
        if held is not None and held[0] is copy:
            run = [*held[1], *run]
        if copy.core.unhurried and len(run) < PATIENT_ENTRIES:
            if not self._held:
                self._due = time.monotonic() + PATIENCE_S
            self._held[tp] = copy, run
        else:
            _deliver(copy, run)

    def _release(self) -> None:
        held, self._held = self._held, {}
        for tp, (copy, run) in held.items():
            if self._copy_at(tp) is copy:
                _deliver(copy, run)

    def _unreadable(self, error: HalogError) -> None:
        """A damaged entry stops the copy it belongs to; anything else is tried again."""
        logger.error("reading the log: %s", error)
        where = error.evidence
        copy = self._copy_at(TopicPartition(where.get("topic", ""), where.get("partition", -1)))
        if isinstance(error, LogError) and copy is not None:
            copy.fail(error)
        else:
            time.sleep(RETRY_S)


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
