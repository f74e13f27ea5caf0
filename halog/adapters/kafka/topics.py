"""This module makes or checks topics, with the settings that halog's promises rest on (reliability facts 4, 12, 13).

It never changes an existing topic: whoever set it so may have reasons; halog only refuses to build on it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, NewPartitions, NewTopic, ResourceType  # type: ignore[attr-defined]

from halog.adapters.kafka import conf as kafka_conf, refusals
from halog.adapters.kafka.access import KafkaAccess
from halog.adapters.kafka.read import ASK_S, patiently
from halog.errors import HalogError, LogError, RefusedError, UnauthorizedError

log = logging.getLogger("halog.kafka")
REPLICAS = 3  # where the cluster has as many brokers
LEADER_S = 10.0  # within which another partition of a new topic has its leader, also on a busy machine
EACH_S = 0.1  # and more for each of them
_COMMON = {
    "unclean.leader.election.enable": "false",  # a leader that lacks acknowledged records loses commits
    "message.timestamp.type": "LogAppendTime",  # one clock for replica lag, not the writers'
    "max.message.bytes": str(kafka_conf.MAX_BYTES),
}
_LOG = {
    "cleanup.policy": "delete",  # compaction would leave holes in the chain
    "retention.ms": "-1",  # halog trims behind its own markers
    "retention.bytes": "-1",
}
_COMPACTED = {"cleanup.policy": "compact"}
_FLUSHED = {"flush.messages": "1"}  # an append is on the brokers' disks when it is acknowledged (R6)


@dataclass(frozen=True)
class TopicReplicas:
    """Says how many brokers hold a topic, and how many of them must have a record before it counts. None: it depends on
    how many brokers answer when the topic is made. A broker that is down just then is not counted, so the configuration
    of three brokers says so."""

    factor: int | None = None
    in_sync: int | None = None

    def among(self, brokers: int) -> tuple[int, int]:
        factor = self.factor or min(REPLICAS, brokers)
        return factor, self.in_sync or max(1, factor - 1)


class Topics:
    """Makes topics with one admin client. It remembers that the brokers' own settings were checked."""

    def __init__(
        self,
        access: KafkaAccess,
        admin: Any,
        copies: TopicReplicas,
        answer_s: float = math.inf,
        *,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._now = now
        self._pause = pause
        self._access = access
        self._admin = admin
        self._copies = copies
        self._ask_s = min(ASK_S, answer_s)
        self._brokers: list[int] = []

    def ensure(self, topic: str, partitions: int, compacted: bool, flushed: bool, keep_ms: int | None) -> None:
        wanted = {**_COMMON, **(_COMPACTED if compacted else _LOG), **(_FLUSHED if flushed else {})}
        made = wanted if keep_ms is None else {**wanted, "retention.ms": str(keep_ms)}
        if keep_ms is not None:  # people say how long they want to read it
            wanted = {name: value for name, value in wanted.items() if not name.startswith("retention.")}
        try:
            self._check_brokers()
            created = self._create(topic, partitions, made)
            found = self._await_leaders(topic, asked=partitions)  # also of a topic that another node is just creating
            if not created:
                self._check(topic, partitions, wanted, found)
        except KafkaException as e:
            raise self._failure(e) from None

    def _create(self, topic: str, partitions: int, wanted: dict[str, str]) -> bool:
        """Create a topic; False if it exists."""
        copies, in_sync = self._copies.among(len(self._brokers))
        config = {**wanted, "min.insync.replicas": str(in_sync)}
        if topic in self._admin.list_topics(timeout=kafka_conf.ADMIN_S).topics:
            return False
        new = NewTopic(topic, partitions, copies, config=config)
        future = self._admin.create_topics([new], operation_timeout=LEADER_S, request_timeout=LEADER_S)[topic]
        try:
            kafka_conf.answer(future)
        except KafkaException as e:
            if e.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            if e.args[0].code() == KafkaError.TOPIC_EXCEPTION and "collides" in e.args[0].str():
                raise RefusedError(
                    f"topic {topic} cannot be created: {e.args[0].str()}: Kafka takes '.' and '_' for the same in "
                    "names; use another cluster or policy name",
                    topic=topic,
                ) from None
            if e.args[0].code() not in refusals.DENIED and not e.args[0].retriable() and e.args[0].code() > 0:
                raise LogError(f"topic {topic} cannot be created: {e.args[0].str()}", topic=topic) from None
            raise
        return True

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions, and wait until they have leaders."""
        try:
            if len(self._await_leaders(topic)) >= partitions:
                return
            future = self._admin.create_partitions([NewPartitions(topic, partitions)], operation_timeout=LEADER_S)[
                topic
            ]
            try:
                kafka_conf.answer(future)
            except KafkaException as e:
                if e.args[0].code() in refusals.DENIED:
                    raise
                if e.args[0].code() != KafkaError.INVALID_PARTITIONS:  # another node was quicker
                    raise LogError(f"topic {topic} cannot get {partitions} partitions: {e.args[0].str()}") from None
            self._await_leaders(topic, partitions)
        except KafkaException as e:
            raise self._failure(e) from None

    def _failure(self, e: KafkaException) -> HalogError:
        """Return the error for whoever wants a topic made: that he may not is told as such."""
        error = e.args[0]
        if error.code() in refusals.DENIED:
            return UnauthorizedError(refusals.denied(self._access, error), address=str(self._access))
        return kafka_conf.unreachable(self._access, error, self._admin)

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has; 0: there is none."""
        try:
            return kafka_conf.partitions_of(self._admin, topic, self._ask_s)
        except KafkaException as e:
            raise kafka_conf.unreachable(self._access, e.args[0], self._admin) from None

    def _check(self, topic: str, partitions: int, wanted: dict[str, str], found: dict[int, Any]) -> None:
        have = self._config(ConfigResource(ResourceType.TOPIC, topic))
        for name, value in wanted.items():
            has = have.get(name, "")
            if has != value and not (name == "max.message.bytes" and int(has or 0) >= int(value)):
                raise RefusedError(
                    f"topic {topic} has {name}={has}, halog needs {value}: change it, or use another topic",
                    topic=topic,
                    setting=name,
                    found=has,
                    wanted=value,
                )
        self._check_layout(topic, partitions, int(have.get("min.insync.replicas", "1")), found)

    def _check_layout(self, topic: str, partitions: int, in_sync: int, found: dict[int, Any]) -> None:
        if len(found) < partitions:
            raise RefusedError(
                f"topic {topic} has {len(found)} partitions, {partitions} are configured; see `halog rebalance`",
                topic=topic,
                partitions=partitions,
                found=len(found),
                wanted=partitions,
            )
        copies = min(len(p.replicas) for p in found.values())
        if copies < (self._copies.factor or 1):
            raise RefusedError(
                f"topic {topic} has {copies} replicas, site.replication_factor is {self._copies.factor}: "
                "reassign its partitions to more brokers, or configure what there is",
                topic=topic,
                found=copies,
                wanted=self._copies.factor,
            )
        if in_sync < (need := max(self._copies.in_sync or 1, copies - 1)):
            raise RefusedError(
                f"topic {topic} has min.insync.replicas={in_sync} with {copies} replicas: set it to {need}",
                topic=topic,
                setting="min.insync.replicas",
            )

    def _check_brokers(self) -> None:
        """Check the brokers, once: a broker that makes topics on demand makes them with settings halog would have to
        refuse."""
        if self._brokers:
            return
        brokers = sorted(self._admin.list_topics(timeout=kafka_conf.ADMIN_S).brokers)
        config = self._config(ConfigResource(ResourceType.BROKER, str(brokers[0]))) if brokers else {}
        if config.get("auto.create.topics.enable") == "true":
            raise RefusedError(
                "the Kafka brokers have auto.create.topics.enable=true: set it to false",
                setting="auto.create.topics.enable",
            )
        self._brokers = brokers

    def _config(self, resource: Any) -> dict[str, str]:
        def ask() -> dict[str, Any]:
            asked = self._admin.describe_configs([resource], request_timeout=kafka_conf.ADMIN_S)
            found: dict[str, Any] = kafka_conf.answer(asked[resource])
            return found

        return {name: str(entry.value) for name, entry in patiently(ask, kafka_conf.ADMIN_S).items()}

    def _await_leaders(self, topic: str, partitions: int = 1, *, asked: int = 0) -> dict[int, Any]:
        """Return the topic's partitions, so many at least, once a broker knows them all with their leaders.

        Hundreds take a busy broker long, and it may show none of them until it has them all. So it is given up only
        once no other one has come for `LEADER_S`, and longer where many were `asked` for.
        """
        patience_s = LEADER_S + EACH_S * max(partitions, asked)
        most, deadline = -1, 0.0
        while True:
            found = kafka_conf.found_of(self._admin, topic, kafka_conf.ADMIN_S)
            led = sum(p.leader >= 0 for p in found.values())
            if led == len(found) >= partitions:
                return found
            if led > most:
                most, deadline = led, self._now() + patience_s
            elif self._now() > deadline:
                break
            self._pause(0.01)
        raise LogError(
            f"topic {topic}: {most} of its {max(partitions, asked, len(found))} partitions have a leader, and no other "
            f"one has got one for {patience_s:g} s: the brokers are too busy for so many, or some are down",
            topic=topic,
        )
