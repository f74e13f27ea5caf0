"""This module reads a bounded part of a log: from here to there, then it is done. Consumers are kept and lent, one to a
read at a time.

It never resets an offset. What a trimmed log no longer has is not delivered, and the caller sees it by the first
offset.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition as Seat
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from halog.adapters.kafka import conf as kafka_conf, refusals
from halog.adapters.kafka.access import KafkaAccess
from halog.errors import ClosedError, DeadlineError, LogError
from halog.ports import Entry, TopicPartition

MAX_IDLE = 2  # reads run side by side in an election of several partitions, rarely more
BATCH = 300  # two of them stay below the 700 objects that wake the garbage collector: 40 of 500 ms of a restore
SLICE_S = 0.05
_PASSING = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    # A topic so new that the broker asked has not heard of it: brokers learn one after another, and each way to ask
    # says so in its own words.
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._NOENT,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError.GROUP_AUTHORIZATION_FAILED,  # librdkafka asks whose its group is, and nobody here uses one
}
_STUCK = {KafkaError._NOENT, KafkaError._TIMED_OUT}  # after all of ASK_S: this client may never see a leader
T = TypeVar("T")
ASK_S = 5.0  # several times what a broker takes that is just starting
KEYED_S = 30.0  # without progress: a dead writer's open transaction ends 10 s after it began, checked every 10 s


class Readers:
    """Keeps a little pool of consumers. `answer_s`: nobody waits longer than this for where a log begins and ends."""

    def __init__(
        self,
        access: KafkaAccess,
        admin: Callable[[], Any],
        admin_failed: Callable[[], None],
        answer_s: float = math.inf,
        *,
        make: Callable[[dict[str, Any]], Any] = Consumer,
    ) -> None:
        """Begin without consumers; `make` makes one by its settings."""
        self._make = make
        self._access = access
        self._admin = admin
        self._admin_failed = admin_failed
        self._answer_s = answer_s
        self._lock = threading.Lock()
        self._idle: list[Any] = []
        self._closed = False

    @contextmanager
    def _lent(self, topic: str) -> Iterator[Any]:
        with self._lock:
            if self._closed:
                raise ClosedError("the log is closed")
            consumer = self._idle.pop() if self._idle else None
        if consumer is None:
            consumer = kafka_conf.client(self._make, self._access, kafka_conf.reader)
        keep = False
        try:
            yield consumer
            keep = True
        except GeneratorExit:
            keep = True
            raise
        except KafkaException as e:
            raise kafka_conf.unreachable(self._access, e.args[0], consumer) from None
        finally:
            self._give_back(consumer, keep=keep)

    def _give_back(self, consumer: Any, *, keep: bool) -> None:
        consumer.unassign()
        with self._lock:
            if keep and not self._closed and len(self._idle) < MAX_IDLE:
                self._idle.append(consumer)
                return
        consumer.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle = self._idle
            self._idle = []
        for consumer in idle:
            consumer.close()

    def bounds(self, tp: TopicPartition, timeout_s: float) -> tuple[int, int]:
        with self._lent(tp[0]) as consumer:
            return _bounds(consumer, tp, min(timeout_s, self._answer_s))

    def read(self, tp: TopicPartition, start: int, end: int, timeout_s: float) -> Iterator[Entry]:
        for batch in self._messages(tp, start, end, timeout_s):
            for m in batch:
                yield Entry(tp, m.offset(), m.value() or b"", m.timestamp()[1])

    def read_keyed(self, tp: TopicPartition, start: int) -> Iterator[tuple[bytes, bytes | None]]:
        for batch in self._messages(tp, start, self._written(tp), KEYED_S, renew=True):
            for m in batch:  # once per record of a restore
                yield m.key() or b"", m.value()

    def read_headers(self, tp: TopicPartition) -> Iterator[tuple[bytes, dict[str, bytes]]]:
        for batch in self._messages(tp, 0, self._written(tp), KEYED_S, renew=True):
            for m in batch:
                yield m.key() or b"", {name: value or b"" for name, value in m.headers() or ()}

    def _written(self, tp: TopicPartition) -> int:
        """Return the end of all that was written. The end of what is *committed* lags behind a commit that has
        returned, since its marker is written afterwards; reading up to here waits for it."""
        asked, ask_s = Seat(tp[0], tp[1]), min(ASK_S, self._answer_s)

        def ask() -> int:
            admin = self._admin()
            try:
                # Without its metadata a client asks for the leader by itself; if the answer comes too soon it is
                # missed, and asked for again after 3 s: so it went for every fifth new client (librdkafka 2.16).
                admin.list_topics(tp[0], timeout=ask_s)
                found = admin.list_offsets(
                    {asked: OffsetSpec.latest()},  # type: ignore[no-untyped-call]
                    isolation_level=IsolationLevel.READ_UNCOMMITTED,
                    request_timeout=ask_s,
                )
                return int(kafka_conf.answer(found[asked]).offset)
            except KafkaException as e:
                if e.args[0].code() in _STUCK:
                    self._admin_failed()
                raise

        try:
            return patiently(ask, min(2 * kafka_conf.ADMIN_S, self._answer_s))
        except KafkaException as e:
            self._admin_failed()
            raise kafka_conf.unreachable(self._access, e.args[0]) from None

    def _messages(
        self, tp: TopicPartition, start: int, end: int, timeout_s: float, *, renew: bool = False
    ) -> Iterator[list[Any]]:
        """Yield messages in batches. With `renew` the time allowed begins anew at each progress."""
        deadline = time.monotonic() + timeout_s
        with self._lent(tp[0]) as consumer:
            consumer.list_topics(tp[0], timeout=timeout_s)  # a cold assign wastes 0.5 s
            at = max(start, _bounds(consumer, tp, timeout_s)[0])
            if at >= end:
                return
            consumer.assign([Seat(tp[0], tp[1], at)])
            while at < end:
                if time.monotonic() > deadline:
                    said = f"{tp[0]}/{tp[1]} was read up to {at} of {end} in {timeout_s:g} s"
                    raise DeadlineError(said, topic=tp[0], partition=tp[1], at=at, end=end)
                before, batch = at, _next(consumer)
                good = [m for m in batch if m.error() is None]
                if good:
                    at = good[-1].offset() + 1
                    yield good if at <= end else [m for m in good if m.offset() < end]
                if len(good) < len(batch):
                    at = max(at, *(self._position(m, tp) for m in batch if m.error() is not None))
                if at > before and renew:  # after the yield: the caller's own time does not count
                    deadline = time.monotonic() + timeout_s

    def _position(self, message: Any, tp: TopicPartition) -> int:
        """Return the offset that an event without a record stands for: end of partition (which also passes transaction
        markers)."""
        error = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            return int(message.offset())
        if error.retriable() or error.code() in _PASSING or error.code() == KafkaError._ALL_BROKERS_DOWN:
            return -1
        if error.code() in refusals.DENIED:
            raise refusals.access_error(self._access, error, f"{tp[0]}/{tp[1]} cannot be read")
        raise LogError(f"{tp[0]}/{tp[1]} cannot be read: {error.str()}", topic=tp[0], partition=tp[1])


def _bounds(consumer: Any, tp: TopicPartition, timeout_s: float) -> tuple[int, int]:
    asked = Seat(tp[0], tp[1])

    def ask() -> tuple[int, int]:
        try:
            start, end = consumer.get_watermark_offsets(asked, timeout=timeout_s, cached=False)
        except KafkaException as e:
            if e.args[0].code() == KafkaError._UNKNOWN_PARTITION:
                # So librdkafka says of a partition without a leader, too (a broker that stood still and is let in
                # again), and says it again from its cache, for minutes, until somebody asks for the metadata.
                kafka_conf.partitions_of(consumer, tp[0], timeout_s)
            raise
        return int(start), int(end)

    return patiently(ask, timeout_s)


def patiently(ask: Callable[[], T], timeout_s: float) -> T:
    """Ask, and ask again where a leader is only just elected (a new topic, a restarted broker)."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return ask()
        except KafkaException as e:
            if e.args[0].code() not in _PASSING or time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def _next(consumer: Any) -> list[Any]:
    first = consumer.poll(SLICE_S)
    return [] if first is None else [first, *consumer.consume(BATCH, 0)]
