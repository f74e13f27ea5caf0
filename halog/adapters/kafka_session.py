"""One idempotent producer: the LogSession port on confluent-kafka.

Law (W3, W4): the first bad delivery, or a fatal error, fails the session and everything it holds; a delivery without an
offset (DUPLICATE_SEQUENCE) is bad. Never retries under another producer, never drops an append silently: each `done` is
called exactly once, by `poll`, or by `abandon`. What was sent before an `abandon` may still land (fact 1).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from confluent_kafka import KafkaException, Producer

from halog.adapters import kafka_conf
from halog.adapters.gathering import Gathering
from halog.errors import OverloadedError, RecordTooLargeError
from halog.ports import Delivery, TopicPartition

log = logging.getLogger("halog.kafka")
WARM_S = 5.0


class KafkaSession:
    """Several threads may append; whoever polls runs the deliveries."""

    def __init__(self, bootstrap: str, topics: Iterable[str] = ()) -> None:
        self._failed: str | None = None
        self._pending: dict[int, Delivery] = {}
        self._gathering = Gathering[tuple[TopicPartition, bytes, int]]()
        self._count = 0
        self._lock = threading.Lock()
        self._users = 0  # threads inside the producer: it is destroyed when the last has left
        self._bootstrap = bootstrap
        self._producer: Any = Producer({**kafka_conf.producer(bootstrap), "error_cb": self._on_error})
        self._known: set[str] = set()
        self.learn(topics)

    def learn(self, topics: Iterable[str]) -> None:
        """Warm: connections and leaders are known before the first append."""
        try:
            for topic in sorted(set(topics) - self._known):
                self._producer.list_topics(topic, timeout=WARM_S)
                self._known.add(topic)
        except KafkaException as e:
            self.abandon()
            raise kafka_conf.unreachable(self._bootstrap, e.args[0]) from None

    @property
    def failed(self) -> str | None:
        return self._failed

    def append(self, tp: TopicPartition, data: bytes, done: Delivery) -> None:
        if len(data) > kafka_conf.MAX_BYTES:  # far above what a commit record may have (R8)
            size, limit = len(data), kafka_conf.MAX_BYTES
            raise RecordTooLargeError(f"a record of {size} bytes exceeds the log's {limit}", size=size)
        with self._lock:
            if len(self._pending) >= kafka_conf.MAX_QUEUED:
                raise OverloadedError(f"{kafka_conf.MAX_QUEUED} appends are in flight", limit=kafka_conf.MAX_QUEUED)
            self._count += 1
            self._pending[self._count] = done
            self._gathering.add((tp, data, self._count))
            self._send_if_ready()

    def _send_if_ready(self) -> None:
        """Under the lock, so that the order in here is the order in the log."""
        producer = self._producer if self._failed is None else None
        if producer is None or self._gathering.waits(time.monotonic()) != 0:
            return
        try:
            for tp, data, number in self._gathering.take(time.monotonic()):
                producer.produce(tp[0], value=data, partition=tp[1], on_delivery=partial(self._delivered, number))
        except BufferError:
            self._failed = self._failed or "the producer's queue is full"
        except KafkaException as e:
            error = e.args[0]
            self._failed = self._failed or f"{error.name()}: {error.str()}"
        except Exception as e:  # part of a request is lost
            self._failed = self._failed or f"{type(e).__name__}: {e}"

    def _delivered(self, number: int, error: Any, message: Any) -> None:
        """librdkafka's callback, inside `poll`; must never raise (fact 7)."""
        self._gathering.back(time.monotonic())
        done = self._pending.pop(number, None)
        if done is None:
            return  # failed or abandoned meanwhile
        offset = None if error is not None else message.offset()
        why = None
        if offset is None or offset < 0 or self._failed is not None:
            said = "acknowledged without offset" if error is None else f"{error.name()}: {error.str()}"
            why = self._failed = self._failed or said
            offset = None
        _call(done, offset, why)

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            log.warning("a log session ended: %s", error)
            self._failed = self._failed or f"{error.name()}: {error.str()}"
        else:
            kafka_conf.heard(error)

    def poll(self, timeout_s: float) -> int:
        producer = self._enter()
        if producer is None:
            if not self._pending:
                time.sleep(min(timeout_s, 0.05))  # a dead session: nothing will ever come
            return self._fail_pending(self._failed or "the session has ended")
        try:
            waits = self._gathering.waits(time.monotonic())
            count = int(producer.poll(timeout_s if waits is None else min(timeout_s, waits)))
            if self._gathering:
                with self._lock:
                    self._send_if_ready()
        finally:
            self._leave()
        if self._failed is not None:
            count += self._end(self._failed)
        return count

    def _enter(self) -> Any:
        with self._lock:
            if self._producer is not None:
                self._users += 1
            return self._producer

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1

    def abandon(self) -> None:
        with self._lock:
            self._failed = self._failed or "abandoned"
        self._end(self._failed)

    def _end(self, why: str) -> int:
        """Fail what is held, and let go of the producer without waiting for it."""
        with self._lock:
            producer, self._producer = self._producer, None
        if producer is not None:
            box = [producer]
            del producer  # the thread's must be the last reference: the destructor waits for librdkafka's threads
            threading.Thread(target=self._destroy, args=(box,), name="halog-kafka-destroy", daemon=True).start()
        return self._fail_pending(why)

    def _destroy(self, box: list[Any]) -> None:
        try:
            box[0].purge(in_queue=True, in_flight=True, blocking=False)
        except Exception as e:
            log.debug("purge: %s", e)
        while self._users:
            time.sleep(0.005)
        box.clear()

    def _fail_pending(self, why: str) -> int:
        with self._lock:
            held, self._pending = self._pending, {}
        count = 0
        for number in sorted(held):
            done = held.pop(number, None)  # a delivery on another thread may be taking its own out just now
            if done is not None:
                _call(done, None, why)
                count += 1
        return count


def _call(done: Callable[[int | None, str | None], None], offset: int | None, why: str | None) -> None:
    try:
        done(offset, why)
    except Exception:
        log.exception("a delivery callback raised")
