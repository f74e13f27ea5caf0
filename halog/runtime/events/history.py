"""This module writes a node's events: to its log file at once, to the cluster's topic by a thread of its own (O2).

Whoever reports an event never waits: the event goes into a bounded queue. The thread writes what is there in one go,
and tries again while the log is away. Events that the queue cannot hold meanwhile are counted, and the history itself
tells of the gap once there is room. What waits is encoded already, so that no event can keep the rest from being
written. Nothing here is on the path of a commit or an election, and nothing depends on it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from halog.events import LOST, Event, EventPlace, Kind, event, lean
from halog.ports import JournalResult, LogJournal
from halog.runtime.events.retried_journal import RetriedJournal

logger = logging.getLogger("halog.events")

MAX_WAITING = 1_000
"""Events kept while the log is away, including those that are being written, about 0.5 MB: two failovers of a hundred
partitions, with the states of each."""

MAX_WAITING_BYTES = 32 << 20
"""Bytes kept, once some events carry records. Beyond that an event is kept without the records it carries; none is
lost."""

GATHER_S = 0.05
"""How long the thread gathers events: they come in bursts, when nodes have other work to do."""

AGAIN_S = 0.5
"""Pause after a write that failed."""

_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class _QueuedEvent(NamedTuple):
    """Holds an encoded event. `lean` is the same event without the records it carries, if any: it is written where the
    log finds the whole too large."""

    data: bytes
    lean: bytes | None = None


class History:
    """A `History` writes the events of one run of a node. Thread-safe; only `close` ever waits. `gather_s`, `again_s`,
    `room`: see GATHER_S, AGAIN_S and MAX_WAITING_BYTES."""

    def __init__(
        self,
        cluster: str,
        node: str,
        run: int,
        journal: Callable[[], LogJournal],
        *,
        gather_s: float = GATHER_S,
        again_s: float = AGAIN_S,
        room: int = MAX_WAITING_BYTES,
    ) -> None:
        self.cluster = cluster
        self.node = node
        self.run = run
        self.dropped = 0
        """Events that the history does not hold: the log was away for longer than the queue could bridge, or found them
        too large."""
        self._gather_s = gather_s
        self._again_s = again_s
        self._room = room
        self._journal = RetriedJournal("the event history", journal, logger)
        self._changed = threading.Condition()
        self._waiting: deque[_QueuedEvent] = deque()
        self._under_way = 0
        """Events that the thread is writing."""
        self._bytes = 0
        """Bytes of what waits and is being written."""
        self._count = 0
        self._gap = 0
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the thread that writes: the topic exists."""
        self._thread = threading.Thread(target=self._work, name="halog-events", daemon=True)
        self._thread.start()

    def tell(
        self,
        kind: Kind,
        cause: str,
        *,
        node: str = "",
        more: Mapping[str, Any] | None = None,
        partition: str | None = None,
        epoch: int | None = None,
        lsn: int | None = None,
        once: str = "",
        logged: bool = False,
    ) -> None:
        """Report that something happened to `node` (default: this one). Never blocks and never raises.

        `once` is the id under which other nodes report the same. `logged`: the history has the event from others, so it
        goes to the log file alone.
        """
        try:
            at = EventPlace(self.cluster, self.node, partition, epoch, lsn)
            with self._changed:
                told = self._made(kind, at, node or self.node, cause, more, once)
                if not logged:
                    self._keep(told)
            logger.log(_LEVELS[kind.severity], "%s %s", told.code, told.text)
        except Exception:  # a text that cannot be made must not fail the caller
            logger.exception("an event of code %s could not be reported", kind.code)

    def _keep(self, told: Event) -> None:
        waits = self._encoded(told)
        if len(self._waiting) + self._under_way < MAX_WAITING and not self._closing.is_set():
            self._waiting.append(waits)
            self._bytes += len(waits.data)
        else:
            self._lose(1)
        self._changed.notify()

    def _encoded(self, told: Event) -> _QueuedEvent:
        data, without = told.to_bytes(), lean(told)
        if without == told:
            return _QueuedEvent(data)
        room = self._bytes + len(data) <= self._room
        return _QueuedEvent(data, without.to_bytes()) if room else _QueuedEvent(without.to_bytes())

    def _lose(self, count: int) -> None:
        self.dropped += count
        self._gap += count

    def _made(
        self, kind: Kind, at: EventPlace, node: str, cause: str, more: Mapping[str, Any] | None, once: str
    ) -> Event:
        self._count += 1
        name = once or f"{self.node}/{self.run}/{self._count}"
        now = time.time_ns() // 1_000_000
        return event(kind, at, name=name, time_ms=now, node=node, cause=cause, more=more)

    # --- the thread ---

    def _work(self) -> None:
        while batch := self._next():
            left, refused = self._write(batch)
            with self._changed:
                self._under_way = 0
                self._lose(refused)
                self._waiting.extendleft(reversed(batch[len(batch) - left :]))
                self._bytes = sum(len(waits.data) for waits in self._waiting)
                if left and self._closing.is_set():
                    self.dropped += len(self._waiting)
                    return
            if left:
                self._closing.wait(self._again_s)
            else:
                self._tell_gap()

    def _next(self) -> Sequence[_QueuedEvent]:
        """Return what waits; nothing if the node closes and all is written."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing.is_set())
        self._closing.wait(self._gather_s)
        with self._changed:
            batch = list(self._waiting)
            self._waiting.clear()
            self._under_way = len(batch)
            return batch

    def _write(self, batch: Sequence[_QueuedEvent]) -> JournalResult:
        """Write a batch. An event that carries records goes alone, so that it is known which of them the log does not
        take."""
        left, refused = len(batch), 0
        for alone, group in groupby(batch, lambda waits: waits.lean is not None):
            items = list(group)
            for run in [[item] for item in items] if alone else [items]:
                noted = self._journal.note([waits.data for waits in run])
                if noted.refused and run[0].lean is not None:
                    noted = self._journal.note([run[0].lean])
                left, refused = left - len(run) + noted.left, refused + noted.refused
                if noted.left:
                    return JournalResult(left, refused)
        return JournalResult(left, refused)

    def _tell_gap(self) -> None:
        """Report the gap behind what was written, once there is room again."""
        with self._changed:
            if self._gap and not self._waiting:
                count = self._gap
                self._gap = 0
                why = "the log was away for longer than events can wait, or refused them as too large"
                self.tell(LOST, why, more={"count": count})

    def close(self, timeout_s: float = 1.0) -> None:
        """Write what waits, if the log takes it in time, and end the thread."""
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)
        self._journal.close()
        if self.dropped:
            logger.warning("%d events are not in the history", self.dropped)
