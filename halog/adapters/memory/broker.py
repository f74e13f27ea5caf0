"""This module is the shared half of the memory log: partitions as lists, and the faults a real broker can show.

An append travels as a `Wire`: it lands (is appended) and is answered, two separate events. `hold` keeps wires from
landing until `release`; a wire whose session was abandoned meanwhile still lands, unanswered: exactly what a Kafka
broker may do to us. The broker never loses what landed, except by `truncate`, which plays a broker restored from a
backup.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from halog.adapters.memory.faults import Faults
from halog.errors import LogError, RefusedError
from halog.ports import TopicPartition

Answer = Callable[[int | None, str | None], None]


class TopicRow(NamedTuple):
    """Holds one log entry. `value` None with `key` None is a transaction marker: it takes an offset, nobody reads
    it."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]
    timestamp_ms: int

    @property
    def is_marker(self) -> bool:
        return self.key is None and self.value is None


@dataclass
class Wire:
    """A `Wire` is an append on its way; `answer` is called at most once, by whoever lands or loses it."""

    tp: TopicPartition
    data: bytes
    answer: Answer


@dataclass
class Shelf:
    """Holds one partition: rows of consecutive offsets from `start` on."""

    start: int = 0
    rows: list[TopicRow] = field(default_factory=list)
    held: deque[Wire] | None = None
    lose_replies: int = 0

    @property
    def end(self) -> int:
        return self.start + len(self.rows)

    def add(self, key: bytes | None, value: bytes | None, headers: dict[str, bytes]) -> int:
        offset = self.end
        self.rows.append(TopicRow(offset, key, value, headers, time.time_ns() // 1_000_000))
        return offset

    def since(self, offset: int, limit: int) -> list[TopicRow]:
        at = offset - self.start
        return self.rows[at : at + limit]


class MemoryBroker:
    """Holds what several `MemoryLog`s of one process share. Thread-safe; it calls back outside its lock."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.faults = Faults()
        """Holds the faults of what is done by a `MemoryLog`: `append`, `put`, `read`, `bounds`, …"""
        self._topics: dict[str, tuple[bool, list[Shelf]]] = {}
        self._listeners: dict[TopicPartition, set[Callable[[], None]]] = {}
        self._writers: dict[str, int] = {}

    # ---- topics

    def ensure(self, topic: str, partitions: int, compacted: bool) -> None:
        with self.lock:
            have = self._topics.setdefault(topic, (compacted, [Shelf() for _ in range(partitions)]))
        if have[0] != compacted:
            raise RefusedError(f"topic {topic}: cleanup.policy is not what halog needs; use another topic", topic=topic)
        if len(have[1]) < partitions:
            raise RefusedError(
                f"topic {topic} has {len(have[1])} partitions, {partitions} are configured",
                topic=topic,
                partitions=partitions,
                found=len(have[1]),
            )

    def grow(self, topic: str, partitions: int) -> None:
        with self.lock:
            shelves = self._topics[topic][1]
            shelves.extend(Shelf() for _ in range(partitions - len(shelves)))

    def partitions(self, topic: str) -> int:
        with self.lock:
            return len(self._topics[topic][1]) if topic in self._topics else 0

    def shelf(self, tp: TopicPartition) -> Shelf:
        try:
            return self._topics[tp.topic][1][tp[1]]
        except LookupError:
            raise LogError(f"no such log partition: {tp.topic}/{tp.partition}", topic=tp.topic) from None

    # ---- writing

    def send(self, wire: Wire) -> None:
        """Let a wire land, and answer it, or hold it."""
        with self.lock:
            shelf = self.shelf(wire.tp)
            if shelf.held is not None:
                shelf.held.append(wire)
                return
            answer = self._land(shelf, wire)
        self._tell(wire.tp)
        answer()

    def _land(self, shelf: Shelf, wire: Wire) -> Callable[[], None]:
        offset = shelf.add(b"", wire.data, {})
        if shelf.lose_replies:
            shelf.lose_replies -= 1
            return lambda: wire.answer(None, "the reply was lost")
        return lambda: wire.answer(offset, None)

    def write(
        self, tp: TopicPartition, items: Iterable[tuple[bytes, bytes | None, dict[str, bytes]]], *, marker: bool
    ) -> None:
        """Append keyed rows in one step, and a transaction's marker behind them."""
        with self.lock:
            shelf = self.shelf(tp)
            for key, value, headers in items:
                shelf.add(key, value, dict(headers))
            if marker:
                shelf.add(None, None, {})
        self._tell(tp)

    def fence(self, transactional_id: str) -> int:
        """Register a new writer of this id: older ones are refused from now on."""
        with self.lock:
            self._writers[transactional_id] = self._writers.get(transactional_id, 0) + 1
            return self._writers[transactional_id]

    def is_current(self, transactional_id: str, number: int) -> bool:
        return self._writers.get(transactional_id) == number

    # ---- readers

    def listen(self, tp: TopicPartition, wake: Callable[[], None]) -> None:
        with self.lock:
            self._listeners.setdefault(tp, set()).add(wake)

    def unlisten(self, tp: TopicPartition, wake: Callable[[], None]) -> None:
        with self.lock:
            self._listeners.get(tp, set()).discard(wake)

    def _tell(self, tp: TopicPartition) -> None:
        with self.lock:
            wakes = list(self._listeners.get(tp, ()))
        for wake in wakes:
            wake()

    # ---- faults

    def hold(self, tp: TopicPartition) -> None:
        """Keep appends that are sent from now on on the wire."""
        with self.lock:
            shelf = self.shelf(tp)
            shelf.held = shelf.held or deque()

    def release(self, tp: TopicPartition) -> None:
        """Let what was held land now, in order, behind whatever landed meanwhile."""
        self._let_go(tp, land=True)

    def drop_held(self, tp: TopicPartition) -> None:
        """Lose what was held: it never lands, and its sender is told nothing but that the outcome is unknown."""
        self._let_go(tp, land=False)

    def _let_go(self, tp: TopicPartition, *, land: bool) -> None:
        with self.lock:
            shelf = self.shelf(tp)
            wires, shelf.held = shelf.held or deque(), None
            answers = [self._land(shelf, w) if land else _lost(w) for w in wires]
        self._tell(tp)
        for answer in answers:
            answer()

    def lose_reply(self, tp: TopicPartition, count: int = 1) -> None:
        """Let the next `count` appends land, but tell their sender (None, why)."""
        with self.lock:
            self.shelf(tp).lose_replies += count

    def overtake(self, tp: TopicPartition, data: bytes) -> int:
        """Append as a foreign producer, past any hold; return the offset."""
        with self.lock:
            offset = self.shelf(tp).add(b"", data, {})
        self._tell(tp)
        return offset

    def trim(self, tp: TopicPartition, before: int) -> None:
        with self.lock:
            shelf = self.shelf(tp)
            cut = max(0, min(before, shelf.end) - shelf.start)
            del shelf.rows[:cut]
            shelf.start += cut
        self._tell(tp)

    def truncate(self, tp: TopicPartition, end: int) -> None:
        """Lose the tail from `end` on, like a broker restored from a backup (reliability fact 4)."""
        with self.lock:
            shelf = self.shelf(tp)
            del shelf.rows[max(0, end - shelf.start) :]
        self._tell(tp)


def _lost(wire: Wire) -> Callable[[], None]:
    return lambda: wire.answer(None, "the append was lost on its way")
