"""This module writes what is rare: definitions one by one, snapshots in transactions, events for people. It is never
the commit path."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from halog.adapters.kafka import conf as kafka_conf, refusals
from halog.adapters.kafka.access import KafkaAccess
from halog.errors import HalogError, LogError, OutcomeUnknownError, RefusedError
from halog.ports import JournalResult, TopicPartition

log = logging.getLogger("halog.kafka")
_FENCED = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}
_SETTLED = {KafkaError.NO_ERROR, KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE}
"""Codes that say that a value is written, or that no repetition mends it."""
_IN_DOUBT = {KafkaError._TIMED_OUT, KafkaError._MSG_TIMED_OUT, KafkaError._TRANSPORT, KafkaError.REQUEST_TIMED_OUT}


class KeyedWriter:
    """Makes one acknowledged write at a time."""

    def __init__(self, access: KafkaAccess) -> None:
        self._access = access
        self._lock = threading.Lock()
        self._producer: Any = kafka_conf.client(Producer, access, kafka_conf.keyed)

    def put(self, tp: TopicPartition, key: bytes, value: bytes | None) -> None:
        answers: list[Any] = []
        with self._lock:
            self._producer.produce(
                tp[0], key=key, value=value, partition=tp[1], on_delivery=lambda error, m: answers.append(error)
            )
            while not answers:  # message.timeout.ms bounds it
                self._producer.poll(1.0)
        error = answers[0]
        if error is None:
            return
        if error.code() in refusals.DENIED:
            raise refusals.access_error(self._access, error, f"{tp[0]}/{tp[1]} cannot be written")
        said = f"{tp[0]}/{tp[1]}: {error.name()}: {error.str()}"
        raise OutcomeUnknownError(said) if error.code() in _IN_DOUBT else LogError(f"the log refused a write to {said}")

    def close(self) -> None:
        self._producer.flush(1.0)


class KafkaJournal:
    """Writes events with a producer of its own; the caller repeats what fails."""

    def __init__(self, access: KafkaAccess, tp: TopicPartition) -> None:
        self._tp = tp
        self._closed = threading.Event()
        self._producer: Any = kafka_conf.client(Producer, access, kafka_conf.journal)

    def note(self, values: Sequence[bytes]) -> JournalResult:
        """See LogJournal."""
        answers: dict[int, int] = {}  # position → error code

        def report(at: int, error: Any) -> None:
            answers[at] = KafkaError.NO_ERROR if error is None else error.code()

        for i, value in enumerate(values):
            try:
                self._producer.produce(
                    self._tp[0], value=value, partition=self._tp[1], on_delivery=lambda e, m, at=i: report(at, e)
                )
            except BufferError:
                answers[i] = KafkaError._QUEUE_FULL
            except KafkaException as e:
                report(i, e.args[0])
        while len(answers) < len(values) and not self._closed.is_set():  # message.timeout.ms bounds it
            self._producer.poll(0.1)
        done = next((i for i in range(len(values)) if answers.get(i) not in _SETTLED), len(values))
        refused = [i for i in range(done) if answers[i] != KafkaError.NO_ERROR]
        for i in refused:
            log.warning("%s takes no value of %d bytes: it is dropped", self._tp[0], len(values[i]))
        return JournalResult(len(values) - done, len(refused))

    def close(self) -> None:
        """See LogJournal."""
        self._closed.set()


class KafkaTransaction:
    """Writes with one `transactional.id`; after any error it is dead (fact 2: an unknown outcome must not be
    continued)."""

    def __init__(self, access: KafkaAccess, transactional_id: str) -> None:
        self._access = access
        self._id = transactional_id
        self._dead: str | None = None
        self._producer: Any = kafka_conf.client(
            Producer, access, lambda access: kafka_conf.transactional(access, transactional_id)
        )
        self._init()

    def _init(self) -> None:
        """Open the transactions, and try again while the coordinator is loading: after a broker's restart it does for a
        second or more."""
        deadline = time.monotonic() + kafka_conf.ADMIN_S
        while True:
            try:
                self._producer.init_transactions(kafka_conf.ADMIN_S)
                return
            except KafkaException as e:
                if not e.args[0].retriable():
                    raise self._error(e) from None
                if time.monotonic() > deadline:
                    raise kafka_conf.unreachable(self._access, e.args[0], self._producer) from None
            time.sleep(0.05)

    def write(self, tp: TopicPartition, items: Iterable[tuple[bytes, bytes | None, dict[str, bytes]]]) -> None:
        if self._dead is not None:
            raise RefusedError(f"transaction writer {self._id} is dead ({self._dead}): make a new one")
        try:
            self._producer.begin_transaction()
            for key, value, headers in items:
                self._produce(tp, key, value, headers)
            self._producer.commit_transaction(kafka_conf.ADMIN_S)
        except KafkaException as e:
            error = self._error(e)
            self._abort()
            raise error from None
        except BaseException as e:  # `items` raised
            self._dead = type(e).__name__
            self._abort()
            raise

    def _produce(self, tp: TopicPartition, key: bytes, value: bytes | None, headers: dict[str, bytes]) -> None:
        while True:
            try:
                self._producer.produce(
                    tp[0], key=key, value=value, partition=tp[1], headers=list(headers.items()), on_delivery=_ignore
                )
                return
            except BufferError:
                self._producer.poll(0.05)

    def _abort(self) -> None:
        """Abort, but flush first: an abort that purges what is in flight ends in a fatal error in five of six tries."""
        with contextlib.suppress(KafkaException):
            self._producer.flush(kafka_conf.ADMIN_S)
            self._producer.abort_transaction(kafka_conf.ADMIN_S)

    def _error(self, e: KafkaException) -> HalogError:
        error = e.args[0]
        self._dead = said = f"{error.name()}: {error.str()}"
        if error.code() in _FENCED:
            return RefusedError(f"a newer writer holds transactional id {self._id}", transactional_id=self._id)
        if error.code() in _IN_DOUBT or error.retriable():
            return OutcomeUnknownError(f"transaction {self._id}: {said}", transactional_id=self._id)
        if error.code() in refusals.DENIED:
            return refusals.access_error(self._access, error, f"transaction {self._id}")
        return LogError(f"transaction {self._id}: {said}", transactional_id=self._id)

    def close(self) -> None:
        self._producer = None
        self._dead = self._dead or "closed"


def _ignore(error: Any, message: Any) -> None:
    """Do nothing: a failed write fails the commit, and that is where it is told."""
