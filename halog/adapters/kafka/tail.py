"""This module implements the LogTail port on confluent-kafka: one consumer, assigned by hand.

confluent's consumer serves one caller at a time: an assignment beside a waiting `poll` waits for it, and may starve. So
only the polling thread touches the consumer. `follow` and `unfollow` note what is wanted. The next poll, at most one
slice later, seats it (at once where it followed nothing); what arrives of a place that is not seated yet is dropped.
The tail never resets an offset: out of range is an `OutOfRange`, told once. Nor does it trust the consumer to deliver
all: after a hole, or where nothing comes although there is more, the place is seated again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition as Seat

from halog.adapters.kafka import conf as kafka_conf, refusals
from halog.adapters.kafka.access import KafkaAccess
from halog.errors import ClosedError, LogError
from halog.ports import Entry, OutOfRange, TopicPartition

log = logging.getLogger("halog.kafka")
SLICE_S = 0.02  # a waiting consumer cannot be woken: a move takes effect within one slice; an idle one costs 20 µs
BOUNDS_S = 2.0
QUIET_S = 2.0  # a tail that hears nothing for that long is looked after: one small request
REACH_S = 1.0
_OUT_OF_RANGE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION}
_DAMAGED = {KafkaError._BAD_MSG, KafkaError.INVALID_MSG, KafkaError._BAD_COMPRESSION, KafkaError._INVALID_TYPE}


class _Place:
    """Says where a followed partition stands: the next offset wanted, and whether the consumer is assigned for it."""

    __slots__ = ("begun", "next", "seated", "stood_at")

    def __init__(self, offset: int) -> None:
        self.next = offset
        self.seated = self.begun = False
        """`begun`: something came since then. A hole before that is the log's, a hole after it the consumer's."""
        self.stood_at = -1
        """The offset it stood at when the log was last found to have more."""


class KafkaTail:
    """Follows partitions. One thread polls; `follow`, `unfollow` and `wake` come from any thread."""

    def __init__(
        self,
        access: KafkaAccess,
        settings: Callable[[KafkaAccess], dict[str, Any]] = kafka_conf.consumer,
        *,
        make: Callable[[dict[str, Any]], Any] = Consumer,
        quiet_s: float = QUIET_S,
    ) -> None:
        """Follow nothing yet; `make` makes the consumer by what `settings` gives."""
        self._make = make
        self._quiet_s = quiet_s
        self._access = access
        self._settings = settings
        self._consumer: Any = kafka_conf.client(make, access, settings)
        self._looked_at = time.monotonic()  # when the consumer last gave something, or was found to reach a broker
        self._counted_at = self._looked_at  # when it was last looked for what the consumer has lost
        self._known_topics: dict[str, int] = {}  # each with how many partitions it had when it was looked at
        self._assigned: set[TopicPartition] = set()  # the polling thread's
        self._inside = threading.Lock()  # held while a thread is in the consumer
        self._lock = threading.Lock()  # places, and which of them moved
        self._places: dict[TopicPartition, _Place] = {}
        self._moved: set[TopicPartition] = set()
        self._later: deque[LogError] = deque()
        self._woken = threading.Event()
        self._stirred = threading.Event()  # a place moved
        self._closed = False
        try:
            self._consumer.list_topics(timeout=kafka_conf.ADMIN_S)  # warm: a cold assign wastes 0.5 s
        except KafkaException as e:
            error = kafka_conf.unreachable(access, e.args[0], self._consumer)
            self._consumer.close()
            raise error from None

    # ---- places

    def follow(self, tp: TopicPartition, offset: int) -> None:
        with self._lock:
            self._check()
            self._places[tp] = _Place(offset)
            self._moved.add(tp)
        self._stirred.set()

    def unfollow(self, tp: TopicPartition) -> None:
        with self._lock:
            self._check()
            if self._places.pop(tp, None) is not None:
                self._moved.add(tp)

    def _seat(self) -> None:
        """Assign what moved. An unassign drops what the consumer had fetched for the old place."""
        with self._lock:
            moved = self._moved
            self._moved = set()
            wanted = {tp: self._places[tp] for tp in moved if tp in self._places}
        if not moved:
            return
        try:
            self._learn({tp.topic for tp in wanted if tp.partition >= self._known_topics.get(tp.topic, 0)})
        except BaseException:
            with self._lock:
                self._moved |= moved  # still to be done, by a later poll
            raise
        leave = moved & self._assigned
        if leave:
            self._consumer.incremental_unassign([Seat(tp[0], tp[1]) for tp in leave])
            self._assigned -= leave
        if wanted:
            self._consumer.incremental_assign([Seat(tp[0], tp[1], place.next) for tp, place in wanted.items()])
            self._assigned |= wanted.keys()
        for place in wanted.values():
            place.seated, place.begun = True, False

    def _learn(self, topics: set[str]) -> None:
        """Ask for a topic's metadata first: an assign to what is unknown waits for the next refresh."""
        for topic in topics:
            try:
                self._known_topics[topic] = kafka_conf.partitions_of(self._consumer, topic, kafka_conf.ADMIN_S)
            except KafkaException as e:
                raise kafka_conf.unreachable(self._access, e.args[0]) from None

    # ---- polling

    def poll(self, timeout_s: float, limit: int = 2000) -> Sequence[Entry | OutOfRange]:
        deadline = time.monotonic() + timeout_s
        while True:
            with self._inside:
                self._check()
                self._seat()
                messages = self._fetch(deadline, limit)
                self._look_after(bool(messages))
                found = self._sort(messages)
                if not messages:
                    self._look_for_lost()
            if self._later:
                found = self._recall(found)
            if found or self._woken.is_set() or time.monotonic() >= deadline:
                self._woken.clear()
                if not found:
                    self._check()
                return found

    def _fetch(self, deadline: float, limit: int) -> list[Any]:
        """Return one message, waited for a slice at most, and whatever else is there already."""
        wait = 0.0 if self._later else min(SLICE_S, max(0.0, deadline - time.monotonic()))
        if wait and not self._assigned:  # nothing can come: what is followed now is seated at once
            self._stirred.wait(wait)
            wait = 0.0
        self._stirred.clear()
        first = self._consumer.poll(wait)
        if first is None:
            return []
        return [first, *self._consumer.consume(limit - 1, 0)] if limit > 1 else [first]

    def _look_after(self, gave: bool) -> None:
        """Replace a quiet consumer that reaches no broker although one is there: told once that there are no brokers
        (a broker that was stopped is fenced for a moment), it asks nobody ever again (librdkafka #5301)."""
        now = time.monotonic()
        if gave or now - self._looked_at < self._quiet_s:
            self._looked_at = now if gave else self._looked_at
            return
        topic = next((tp.topic for tp in list(self._places)), "")
        if topic and not _reaches(self._consumer, topic):
            fresh = kafka_conf.client(self._make, self._access, self._settings)
            if _reaches(fresh, topic):
                log.warning("a consumer of the log that reaches no broker is replaced")
                self._consumer, fresh = fresh, self._consumer
                self._seat_anew()
            fresh.close()
        self._looked_at = time.monotonic()

    def _look_for_lost(self) -> None:
        """Look for places that are stuck; nothing waits in the consumer. A place that twice stands where the broker has
        said there is more will not move by itself: an assignment that another operation overtakes may be dropped
        (librdkafka #2190, #5591)."""
        now = time.monotonic()
        if now - self._counted_at < self._quiet_s:
            return
        self._counted_at = now
        with self._lock:
            for tp, place in self._places.items():
                if not place.seated or tp in self._moved:
                    continue
                end = _known_end(self._consumer, tp)
                if end <= place.next:
                    place.stood_at = -1
                elif place.stood_at != place.next:
                    place.stood_at = place.next
                else:
                    self._again(tp, place, f"nothing came although the log goes up to {end}")

    def known_end(self, tp: TopicPartition) -> int:
        with self._inside:
            self._check()
            return _known_end(self._consumer, tp)

    def _again(self, tp: TopicPartition, place: _Place, why: str) -> None:
        """Let a place be seated once more, where it stands. Called under the lock."""
        log.warning("%s/%s is read again from offset %d: %s", tp[0], tp[1], place.next, why)
        place.seated, place.stood_at = False, -1
        self._moved.add(tp)

    def _seat_anew(self) -> None:
        with self._lock:
            self._assigned = set()
            self._known_topics = {}
            for tp, place in self._places.items():
                place.seated = False
                self._moved.add(tp)

    def _recall(self, found: list[Entry | OutOfRange]) -> list[Entry | OutOfRange]:
        """Raise a damaged entry's error, at the poll behind the entries that came with it."""
        if not found:
            raise self._later.popleft()
        return found

    def _sort(self, messages: list[Any]) -> list[Entry | OutOfRange]:
        found: list[Entry | OutOfRange] = []
        with self._lock:
            for m in messages:
                tp = TopicPartition(m.topic(), m.partition())
                place = self._places.get(tp)
                if place is None or not place.seated:
                    continue
                if m.error() is not None:
                    found.extend(self._judge(tp, place, m.error()))
                elif m.offset() > place.next and place.begun:
                    self._again(tp, place, f"offset {m.offset()} came next")
                elif m.offset() >= place.next:
                    place.next, place.begun = m.offset() + 1, True
                    found.append(Entry(tp, m.offset(), m.value() or b"", m.timestamp()[1]))
        return found

    def _judge(self, tp: TopicPartition, place: _Place, error: Any) -> list[OutOfRange]:
        """Return what an error event of one partition means to its reader. Called under the lock."""
        if error.code() in _OUT_OF_RANGE:
            return self._out_of_range(tp, place)
        if error.code() in _DAMAGED:
            self._drop(tp)
            said = f"{tp.topic}/{tp[1]} cannot be read at offset {place.next}: {error.str()}"
            self._later.append(LogError(said, topic=tp.topic, partition=tp[1], offset=place.next))
        elif error.code() in refusals.DENIED:
            refusals.note_denied(self._access, error, f"{tp.topic}/{tp[1]} cannot be read")
        else:
            log.debug("tail of %s/%s: %s", tp[0], tp[1], error)  # librdkafka goes on by itself
        return []

    def _out_of_range(self, tp: TopicPartition, place: _Place) -> list[OutOfRange]:
        try:
            start, end = self._consumer.get_watermark_offsets(Seat(tp[0], tp[1]), timeout=BOUNDS_S, cached=False)
        except KafkaException:
            start = end = -1
        if start <= place.next <= end or start < 0:  # the broker was behind, or is away: ask again
            place.seated = False
            self._moved.add(tp)
            return []
        self._drop(tp)
        return [OutOfRange(tp, place.next, start, end)]

    def _drop(self, tp: TopicPartition) -> None:
        del self._places[tp]
        self._moved.add(tp)

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._woken.set()
        with self._inside:  # librdkafka must not be destroyed under a thread that is in it
            self._consumer.close()

    def _check(self) -> None:
        if self._closed:
            raise ClosedError("the tail is closed")


def _known_end(consumer: Any, tp: TopicPartition) -> int:
    """Return where the log ended when the broker answered last; -1: it is not known. Asks nobody."""
    try:
        found = consumer.get_watermark_offsets(Seat(tp[0], tp[1]), cached=True)
    except KafkaException:
        return -1
    return -1 if found is None else int(found[1])


def _reaches(consumer: Any, topic: str) -> bool:
    """Say whether any broker answers it."""
    try:
        consumer.list_topics(topic, timeout=REACH_S)
    except KafkaException:
        return False
    return True
