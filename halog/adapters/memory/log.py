"""This module implements the Log port on a `MemoryBroker`. Read it to know what the Kafka adapter owes; it decides
nothing."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from halog.adapters.memory.broker import Answer, MemoryBroker, TopicRow, Wire
from halog.errors import ClosedError, DeadlineError, LogError, OverloadedError, RecordTooLargeError, RefusedError
from halog.ports import Delivery, Entry, JournalResult, OutOfRange, TopicPartition

T = TypeVar("T")
log = logging.getLogger("halog.memory")
MAX_QUEUED = 100_000  # as the Kafka adapter's produce queue
MAX_BYTES = 6 << 20  # as the Kafka adapter's message.max.bytes


class MemoryLog:
    """Shows a broker to one node; `MemoryLog()` alone has a broker of its own."""

    def __init__(self, broker: MemoryBroker | None = None) -> None:
        self.broker = broker or MemoryBroker()

    def ensure_topic(
        self, topic: str, partitions: int, *, compacted: bool = False, flushed: bool = False, keep_ms: int | None = None
    ) -> None:
        self._perform("ensure_topic", topic, lambda: self.broker.ensure(topic, partitions, compacted))

    def grow_topic(self, topic: str, partitions: int) -> None:
        self.broker.grow(topic, partitions)

    def partitions(self, topic: str) -> int:
        return self._perform("partitions", topic, lambda: self.broker.partitions(topic))

    def session(self) -> MemorySession:
        return self._perform("session", "", lambda: MemorySession(self.broker))

    def tail(self, *, patient: bool = False, slow: bool = False) -> MemoryTail:
        return MemoryTail(self.broker)

    def bounds(self, tp: TopicPartition, timeout_s: float = 5.0) -> tuple[int, int]:
        return self._perform("bounds", tp, lambda: self._bounds(tp))

    def _bounds(self, tp: TopicPartition) -> tuple[int, int]:
        with self.broker.lock:
            shelf = self.broker.shelf(tp)
            return shelf.start, shelf.end

    def read(self, tp: TopicPartition, start: int, end: int, timeout_s: float = 10.0) -> Iterator[Entry]:
        return self._perform("read", tp, lambda: self._read(tp, start, end, timeout_s))

    def _read(self, tp: TopicPartition, start: int, end: int, timeout_s: float) -> Iterator[Entry]:
        self._await_end(tp, end, timeout_s)
        with self.broker.lock:
            shelf = self.broker.shelf(tp)
            rows = shelf.since(max(start, shelf.start), max(0, end - max(start, shelf.start)))
        return (_entry(tp, row) for row in rows if not row.is_marker)

    def _await_end(self, tp: TopicPartition, end: int, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while self._bounds(tp)[1] < end:
            if time.monotonic() > deadline:
                raise DeadlineError(f"{tp.topic}/{tp.partition} did not reach offset {end} in {timeout_s} s", end=end)
            time.sleep(0.002)

    def read_keyed(self, tp: TopicPartition, start: int = 0) -> Iterator[tuple[bytes, bytes | None]]:
        return self._perform("read_keyed", tp, lambda: self._read_keyed(tp, start))

    def _read_keyed(self, tp: TopicPartition, start: int) -> Iterator[tuple[bytes, bytes | None]]:
        with self.broker.lock:
            shelf = self.broker.shelf(tp)
            rows = list(shelf.since(max(start, shelf.start), len(shelf.rows)))
        return ((row.key or b"", row.value) for row in rows if not row.is_marker)

    def read_headers(self, tp: TopicPartition) -> Iterator[tuple[bytes, dict[str, bytes]]]:
        with self.broker.lock:
            rows = list(self.broker.shelf(tp).rows)
        return ((row.key or b"", row.headers) for row in rows if not row.is_marker)

    def put(self, tp: TopicPartition, key: bytes, value: bytes | None) -> None:
        self._perform("put", tp, lambda: self.broker.write(tp, [(key, value, {})], marker=False))

    def journal(self, tp: TopicPartition) -> MemoryJournal:
        return MemoryJournal(self.broker, tp)

    def transaction(self, transactional_id: str) -> MemoryTransaction:
        return MemoryTransaction(self.broker, transactional_id)

    def trim(self, tp: TopicPartition, before: int) -> None:
        self._perform("trim", tp, lambda: self.broker.trim(tp, before))

    def close(self) -> None:
        """Do nothing: the broker is shared."""

    def _perform(self, operation: str, about: TopicPartition | str, land: Callable[[], T]) -> T:
        return self.broker.faults.perform(operation, about, land)


class MemoryJournal:
    """Writes at once; a held partition takes nothing."""

    def __init__(self, broker: MemoryBroker, tp: TopicPartition) -> None:
        self._broker = broker
        self._tp = tp

    def note(self, values: Sequence[bytes]) -> JournalResult:
        with self._broker.lock:
            if self._broker.shelf(self._tp).held is not None:
                return JournalResult(len(values))
        fit = [value for value in values if len(value) <= MAX_BYTES]
        self._broker.write(self._tp, [(b"", value, {}) for value in fit], marker=False)
        return JournalResult(0, len(values) - len(fit))

    def close(self) -> None:
        """Do nothing: the broker is shared."""


class MemoryTransaction:
    """A `MemoryTransaction` is a transactional writer; the marker it leaves takes an offset, as Kafka's does."""

    def __init__(self, broker: MemoryBroker, transactional_id: str) -> None:
        self._broker = broker
        self._id = transactional_id
        self._number = broker.fence(transactional_id)

    def write(self, tp: TopicPartition, items: Iterable[tuple[bytes, bytes | None, dict[str, bytes]]]) -> None:
        if not self._broker.is_current(self._id, self._number):
            raise RefusedError(f"a newer writer holds transactional id {self._id}", transactional_id=self._id)
        self._broker.write(tp, list(items), marker=True)  # items that raise half-way must leave nothing

    def close(self) -> None:
        """Do nothing: nothing is held."""


class MemorySession:
    """Keeps answers in `_due` until somebody polls; the first bad one fails the session and all it still holds."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._ready = threading.Condition(threading.Lock())
        self._pending: dict[int, Delivery] = {}
        self._due: deque[tuple[Delivery, int | None, str | None]] = deque()
        self._count = 0
        self._failed: str | None = None

    @property
    def failed(self) -> str | None:
        return self._failed

    def append(self, tp: TopicPartition, data: bytes, done: Delivery, *, patience_s: float = 0.0) -> None:
        if len(data) > MAX_BYTES:
            raise RecordTooLargeError(f"a record of {len(data)} bytes exceeds the log's {MAX_BYTES}", size=len(data))
        with self._ready:
            if self._failed is not None:
                self._due.append((done, None, self._failed))
                self._ready.notify()
                return
            if len(self._pending) >= MAX_QUEUED:
                raise OverloadedError(f"{MAX_QUEUED} appends are in flight", limit=MAX_QUEUED)
            self._count += 1
            number = self._count
            self._pending[number] = done
        answer = self._answer(number)
        try:
            self._broker.faults.perform("append", tp, lambda: self._broker.send(Wire(tp, data, answer)))
        except LogError as e:
            answer(None, str(e))

    def _answer(self, number: int) -> Answer:
        def answer(offset: int | None, why: str | None) -> None:
            with self._ready:
                done = self._pending.pop(number, None)
                if done is None:
                    return  # abandoned or failed meanwhile: it landed, and nobody is told
                self._due.append((done, offset, why))
                if offset is None:
                    self._fail(why or "failed")
                self._ready.notify_all()

        return answer

    def _fail(self, why: str) -> None:
        self._failed = self._failed or why
        self._due.extend((done, None, self._failed) for done in self._pending.values())
        self._pending.clear()

    def poll(self, timeout_s: float) -> int:
        with self._ready:
            if not self._due:
                self._ready.wait(timeout_s)
            due = list(self._due)
            self._due.clear()
        for done, offset, why in due:
            try:
                done(offset, why)
            except Exception:
                log.exception("a delivery callback raised")
        return len(due)

    def abandon(self) -> None:
        with self._ready:
            self._fail("abandoned")
        while self.poll(0):
            pass


class MemoryTail:
    """Follows shelves; what it delivers is read at the poll, so nothing stale can be queued."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._places: dict[TopicPartition, int] = {}
        self._lock = threading.Lock()
        self._signal = threading.Event()
        self._woken = False
        self._closed = False

    def _check(self) -> None:
        if self._closed:
            raise ClosedError("the tail is closed")

    def follow(self, tp: TopicPartition, offset: int) -> None:
        self._check()
        self._broker.shelf(tp)
        with self._lock:
            self._places[tp] = offset
        self._broker.listen(tp, self._signal.set)
        self._signal.set()

    def unfollow(self, tp: TopicPartition) -> None:
        with self._lock:
            self._places.pop(tp, None)
        self._broker.unlisten(tp, self._signal.set)

    def poll(self, timeout_s: float, limit: int = 2000) -> Sequence[Entry | OutOfRange]:
        deadline = time.monotonic() + timeout_s
        while True:
            self._check()
            self._signal.clear()
            found = self._collect(limit)
            left = deadline - time.monotonic()
            if found or self._woken or left <= 0:
                self._woken = False
                return found
            self._signal.wait(left)

    def _collect(self, limit: int) -> list[Entry | OutOfRange]:
        found: list[Entry | OutOfRange] = []
        with self._broker.lock, self._lock:
            for tp in list(self._places):
                if len(found) < limit:
                    found.extend(self._take(tp, limit - len(found)))
        return found

    def _take(self, tp: TopicPartition, limit: int) -> Sequence[Entry | OutOfRange]:
        shelf, offset = self._broker.shelf(tp), self._places[tp]
        if not shelf.start <= offset <= shelf.end:
            del self._places[tp]  # said once; whoever follows decides where to go on
            return [OutOfRange(tp, offset, shelf.start, shelf.end)]
        rows = shelf.since(offset, limit)
        self._places[tp] = offset + len(rows)
        return [_entry(tp, row) for row in rows if not row.is_marker]

    def known_end(self, tp: TopicPartition) -> int:
        self._check()
        with self._broker.lock:
            return self._broker.shelf(tp).end

    def wake(self) -> None:
        self._woken = True
        self._signal.set()

    def close(self) -> None:
        self._closed = True
        for tp in list(self._places):
            self.unfollow(tp)
        self._signal.set()


def _entry(tp: TopicPartition, row: TopicRow) -> Entry:
    return Entry(tp, row.offset, row.value or b"", row.timestamp_ms)
