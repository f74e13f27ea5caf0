"""This module implements the Log port on one Kafka cluster: topics, sessions, tails; reads and rare writes through
small clients of its own.

It is never on the commit path itself: that is `halog.adapters.kafka.session` and `halog.adapters.kafka.tail`.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterator
from typing import Any

from confluent_kafka import KafkaException, TopicPartition as Seat
from confluent_kafka.admin import AdminClient

from halog.adapters.kafka import conf as kafka_conf, refusals
from halog.adapters.kafka.access import KafkaAccess
from halog.adapters.kafka.passwords import PasswordWatch, may_change
from halog.adapters.kafka.read import Readers
from halog.adapters.kafka.session import KafkaSession
from halog.adapters.kafka.tail import KafkaTail
from halog.adapters.kafka.topics import TopicReplicas, Topics
from halog.adapters.kafka.write import KafkaJournal, KafkaTransaction, KeyedWriter
from halog.config.kafka_security import PLAINTEXT
from halog.errors import HalogError, LogError, OutcomeUnknownError
from halog.ports import Entry, TopicPartition

log = logging.getLogger("halog.kafka")


class KafkaLog:
    """Makes everything at its first use. `close` closes what this object keeps, not the sessions it handed out.
    `answer_s`: for so long it is asked where a log begins and ends, whoever asks; an operator's command has no more."""

    def __init__(
        self,
        access: KafkaAccess,
        copies: TopicReplicas | None = None,
        *,
        answer_s: float = math.inf,
        tells_refusal: bool = False,
    ) -> None:
        """Connect to nothing yet. `tells_refusal`: at its first use it looks whether the brokers let this process in,
        and raises UnauthorizedError if not: for a process that starts. Without it that is an UnreachableError."""
        self.access = access
        self._copies = copies or TopicReplicas()
        self._answer_s = answer_s
        self._lock = threading.Lock()
        self._admin: Any = None
        self._topics: Topics | None = None
        self._writer: KeyedWriter | None = None
        self._unproven = tells_refusal and access.security.protocol != PLAINTEXT
        self._readers = Readers(access, self._client, self._client_failed, answer_s)
        self._known: set[str] = set()
        self._spare: KafkaSession | None = None
        self._closed = False
        self._password = PasswordWatch(access) if may_change(access) else None
        if self._password is not None:
            self._password.begin()

    def _client(self) -> Any:
        return self._clients()[0]

    def _clients(self) -> tuple[Any, Topics]:
        with self._lock:
            if self._admin is None or self._topics is None:
                admin = self._new_client()
                if self._unproven:
                    refusals.prove(self.access, admin, self._new_client)
                    self._unproven = False
                self._admin = admin
                self._topics = Topics(self.access, self._admin, self._copies, self._answer_s)
                self._prepare_soon()
            return self._admin, self._topics

    def _new_client(self) -> Any:
        return kafka_conf.client(AdminClient, self.access, kafka_conf.common)

    def _client_failed(self) -> None:
        """Let go of the client, so that the next caller gets a new one: one that lost every broker may never find one
        again."""
        with self._lock:
            self._admin = self._topics = None

    def ensure_topic(
        self, topic: str, partitions: int, *, compacted: bool = False, flushed: bool = False, keep_ms: int | None = None
    ) -> None:
        self._clients()[1].ensure(topic, partitions, compacted, flushed, keep_ms)
        if not compacted and keep_ms is None:
            self._known.add(topic)

    def grow_topic(self, topic: str, partitions: int) -> None:
        self._clients()[1].grow(topic, partitions)

    def partitions(self, topic: str) -> int:
        return self._clients()[1].partitions(topic)

    def session(self) -> KafkaSession:
        """Return the spare session, if it is ready, else a new one: librdkafka needs half a second from birth to its
        producer id."""
        with self._lock:
            session = self._spare
            self._spare = None
        if session is None or session.failed:
            session = KafkaSession(self.access)
        session.learn(self._known)
        self._prepare_soon()
        return session

    def _prepare_soon(self) -> None:
        threading.Thread(target=self._prepare, name="halog-kafka-spare", daemon=True).start()

    def _prepare(self) -> None:
        if not self._wants_spare():
            return
        try:
            spare = KafkaSession(self.access)
        except HalogError as error:  # whoever needs one is told
            log.debug("no spare session: %s", error)
            return
        with self._lock:
            if self._wants_spare():
                self._spare = spare
                return
        spare.abandon()

    def _wants_spare(self) -> bool:
        return self._spare is None and not self._closed

    def tail(self, *, patient: bool = False, slow: bool = False) -> KafkaTail:
        conf = kafka_conf.slow if slow else kafka_conf.patient if patient else kafka_conf.consumer
        return KafkaTail(self.access, conf)

    def bounds(self, tp: TopicPartition, timeout_s: float = 5.0) -> tuple[int, int]:
        return self._readers.bounds(tp, timeout_s)

    def read(self, tp: TopicPartition, start: int, end: int, timeout_s: float = 10.0) -> Iterator[Entry]:
        return self._readers.read(tp, start, end, timeout_s)

    def read_keyed(self, tp: TopicPartition, start: int = 0) -> Iterator[tuple[bytes, bytes | None]]:
        return self._readers.read_keyed(tp, start)

    def read_headers(self, tp: TopicPartition) -> Iterator[tuple[bytes, dict[str, bytes]]]:
        return self._readers.read_headers(tp)

    def put(self, tp: TopicPartition, key: bytes, value: bytes | None) -> None:
        with self._lock:
            if self._writer is None:
                self._writer = KeyedWriter(self.access)
            writer = self._writer
        try:
            writer.put(tp, key, value)
        except OutcomeUnknownError:
            with self._lock:
                self._writer = None if self._writer is writer else self._writer
            raise

    def journal(self, tp: TopicPartition) -> KafkaJournal:
        return KafkaJournal(self.access, tp)

    def transaction(self, transactional_id: str) -> KafkaTransaction:
        return KafkaTransaction(self.access, transactional_id)

    def trim(self, tp: TopicPartition, before: int) -> None:
        futures = self._client().delete_records(
            [Seat(tp[0], tp[1], before)], request_timeout=kafka_conf.ADMIN_S, operation_timeout=kafka_conf.ADMIN_S
        )
        for future in futures.values():
            try:
                kafka_conf.answer(future)
            except KafkaException as e:
                self._client_failed()
                if e.args[0].code() in refusals.DENIED:
                    where = f"{tp[0]}/{tp[1]} cannot be trimmed before {before}"
                    raise refusals.access_error(self.access, e.args[0], where) from None
                said = f"{tp[0]}/{tp[1]} cannot be trimmed before {before}: {e.args[0].str()}"
                raise LogError(said, topic=tp[0], partition=tp[1], before=before) from None

    def close(self) -> None:
        if self._password is not None:
            self._password.close()
        self._readers.close()
        with self._lock:
            self._closed = True
            writer = self._writer
            self._writer = None
            spare = self._spare
            self._spare = None
            self._admin = self._topics = None
        if writer is not None:
            writer.close()
        if spare is not None:
            spare.abandon()
