"""This module implements the LogSession port on confluent-kafka: one idempotent producer.

Law (W3, W4): the first bad delivery, or a fatal error, fails the session and everything it holds; a delivery without an
offset (DUPLICATE_SEQUENCE) is bad. The session never retries under another producer, and never drops an append
silently: each `done` is called exactly once, by `poll`, or by `abandon`. What was sent before an `abandon` may still
land (fact 1).

A run is the appends to one partition that leave together. They land one behind the other or fail from some point on
(idempotence, gap-less), so only the first and the last of them ask for a report. If their offsets are as far apart as
they were sent, all between are there, and nobody else's. Every report is a hand-over of the GIL: with many committers
that cost more than anything else here.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from confluent_kafka import KafkaException, Producer

from halog.adapters.kafka import conf as kafka_conf
from halog.adapters.kafka.access import KafkaAccess
from halog.adapters.kafka.group_commit import GroupCommit
from halog.errors import OverloadedError, RecordTooLargeError
from halog.ports import Delivery, TopicPartition

log = logging.getLogger("halog.kafka")
WARM_S = 5.0


class _Run:
    """Holds appends to one partition that leave together."""

    __slots__ = ("dones", "first", "number", "values")

    def __init__(self, number: int) -> None:
        self.number = number
        self.values: list[bytes] = []
        self.dones: list[Delivery] = []
        self.first = -1
        """Offset of the first, as reported."""


class KafkaSession:
    """Takes appends from several threads; whoever polls runs the deliveries."""

    def __init__(
        self, access: KafkaAccess, topics: Iterable[str] = (), *, make: Callable[[dict[str, Any]], Any] = Producer
    ) -> None:
        """Open the session; `make` makes its producer by settings."""
        self._failed: str | None = None
        self._gathering = GroupCommit[tuple[TopicPartition, bytes, Delivery]]()
        self._runs: dict[int, _Run] = {}
        """Runs under way, in the order they left; who takes a run out answers it."""
        self._numbers = itertools.count(1)
        self._held = self._answered = 0
        """Appends taken on and answered, ever: each is written by one thread at a time."""
        self._lock = threading.Lock()
        self._users = 0  # threads inside the producer: it is destroyed when the last has left
        self._access = access
        self._producer: Any = kafka_conf.client(make, access, self._settings)
        self._known: dict[str, int] = {}
        """Topics, each with how many partitions it had when it was looked at. A topic with a partition beyond that is
        looked at first, since an append to an unknown one fails."""
        self.learn(topics)

    def _settings(self, access: KafkaAccess) -> dict[str, Any]:
        return {**kafka_conf.producer(access), "error_cb": self._on_error}

    def learn(self, topics: Iterable[str]) -> None:
        """Learn topics: connections and leaders are known before the first append."""
        try:
            for topic in sorted(set(topics) - self._known.keys()):
                self._learn(topic)
        except KafkaException as e:
            error = kafka_conf.unreachable(self._access, e.args[0], self._producer)
            self.abandon()
            raise error from None

    def _learn(self, topic: str) -> None:
        self._known[topic] = kafka_conf.partitions_of(self._producer, topic, WARM_S)

    @property
    def failed(self) -> str | None:
        return self._failed

    def append(self, tp: TopicPartition, data: bytes, done: Delivery, *, patience_s: float = 0.0) -> None:
        if len(data) > kafka_conf.MAX_BYTES:  # far above what a commit record may have (R8)
            size, limit = len(data), kafka_conf.MAX_BYTES
            raise RecordTooLargeError(f"a record of {size} bytes exceeds the log's {limit}", size=size)
        with self._lock:
            if self._held - self._answered >= kafka_conf.MAX_QUEUED:
                raise OverloadedError(f"{kafka_conf.MAX_QUEUED} appends are in flight", limit=kafka_conf.MAX_QUEUED)
            self._held += 1
            self._gathering.add((tp, data, done), leaves_at=time.monotonic() + patience_s if patience_s else None)
            self._send_if_ready()

    def _send_if_ready(self) -> None:
        """Send what gathered, if it may leave. Called under the lock, so that the order in here is the order in the
        log."""
        now = time.monotonic()
        if self._failed is not None or self._producer is None or self._gathering.waits(now) != 0:
            return
        runs: dict[TopicPartition, _Run] = {}
        for tp, data, done in self._gathering.take(now):
            run = runs.get(tp)
            if run is None:
                run = runs[tp] = _Run(next(self._numbers))
                self._runs[run.number] = run
            run.values.append(data)
            run.dones.append(done)
        try:
            for tp, run in runs.items():
                self._send(tp, run)
        except BufferError:
            self._failed = "the producer's queue is full"
        except KafkaException as e:
            error = e.args[0]
            self._failed = f"{error.name()}: {error.str()}"
        except Exception as e:  # part of a request is lost
            self._failed = f"{type(e).__name__}: {e}"

    def _send(self, tp: TopicPartition, run: _Run) -> None:
        topic, partition = tp
        if partition >= self._known.get(topic, 0):
            self._learn(topic)
        values, run.values = run.values, []
        last = partial(self._last, run)
        if len(values) == 1:
            self._producer.produce(topic, value=values[0], partition=partition, on_delivery=last)
            return
        messages: list[dict[str, Any]] = [{"value": value} for value in values]
        messages[0]["callback"], messages[-1]["callback"] = partial(self._first, run), last
        if self._producer.produce_batch(topic, messages, partition=partition) != len(messages):
            raise KafkaException(next(m["_error"] for m in messages if "_error" in m))

    def _first(self, run: _Run, error: Any, message: Any) -> None:
        """Note where the first append landed. This and the next one are librdkafka's callbacks, inside `poll`: they
        must never raise (fact 7)."""
        offset = self._landed(error, message)
        if offset is not None:
            run.first = offset

    def _last(self, run: _Run, error: Any, message: Any) -> None:
        count = len(run.dones)
        self._gathering.back(count, time.monotonic())
        offset = self._landed(error, message)
        if offset is None or self._failed is not None:
            return  # the end of this poll fails everything
        first = offset if count == 1 else run.first
        if offset - first != count - 1:
            self._failed = f"{count} appends lie between the offsets {first} and {offset}: others wrote in between"
        elif self._runs.pop(run.number, None) is not None:  # else abandoned meanwhile
            self._answer(run, first)

    def _answer(self, run: _Run, first: int) -> None:
        dones = run.dones
        try:
            for i, done in enumerate(dones):
                run.dones = dones[i + 1 :]
                self._answered += 1
                _call(done, first + i, None)
        except BaseException:  # Ctrl-C in the thread that polls: the rest is failed like everything the session holds
            self._failed = "interrupted"
            self._runs[run.number] = run
            raise

    def _landed(self, error: Any, message: Any) -> int | None:
        """Return the offset of a good delivery; a bad one fails the session."""
        offset = -1 if error is not None else message.offset()
        if offset is not None and offset >= 0:
            return int(offset)
        said = "acknowledged without offset" if error is None else f"{error.name()}: {error.str()}"
        self._failed = self._failed or said
        return None

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            log.warning("a log session ended: %s", error)
            self._failed = self._failed or f"{error.name()}: {error.str()}"
        else:
            kafka_conf.heard(self._access, error)

    def poll(self, timeout_s: float) -> int:
        producer = self._enter()
        if producer is None:
            if self._held == self._answered:
                time.sleep(min(timeout_s, 0.05))  # a dead session: nothing will ever come
            return self._fail_held(self._failed or "the session has ended")
        before = self._answered
        try:
            waits = self._gathering.waits(time.monotonic())
            producer.poll(timeout_s if waits is None else min(timeout_s, waits))
            if self._gathering:
                with self._lock:
                    self._send_if_ready()
        except KafkaException as e:  # what was under way when the session was abandoned was purged, which is fatal
            self._failed = self._failed or f"{e.args[0].name()}: {e.args[0].str()}"
        finally:
            self._leave()
        if self._failed is not None:
            self._end(self._failed)
        return self._answered - before

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
            producer = self._producer
            self._producer = None
        if producer is not None:
            box = [producer]
            del producer  # the thread's must be the last reference: the destructor waits for librdkafka's threads
            threading.Thread(target=self._destroy, args=(box,), name="halog-kafka-destroy", daemon=True).start()
        return self._fail_held(why)

    def _destroy(self, box: list[Any]) -> None:
        try:
            box[0].purge(in_queue=True, in_flight=True, blocking=False)
        except Exception as e:
            log.debug("purge: %s", e)
        while self._users:
            time.sleep(0.005)
        box.clear()

    def _fail_held(self, why: str) -> int:
        with self._lock:
            left = [done for number in list(self._runs) for done in self._taken_out(number)]
            left += [done for _, _, done in self._gathering.take(time.monotonic())]
            self._answered += len(left)
        for done in left:
            _call(done, None, why)
        return len(left)

    def _taken_out(self, number: int) -> list[Delivery]:
        run = self._runs.pop(number, None)  # a delivery on another thread may be taking it out just now
        return [] if run is None else run.dones


def _call(done: Callable[[int | None, str | None], None], offset: int | None, why: str | None) -> None:
    try:
        done(offset, why)
    except Exception:
        log.exception("a delivery callback raised")
