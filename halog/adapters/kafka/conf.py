"""This module has librdkafka's settings, each with its reason. It never opens a connection."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from halog.adapters.kafka import passwords, refusals
from halog.adapters.kafka.access import KafkaAccess
from halog.errors import ConfigError, HalogError, UnreachableError

T = TypeVar("T")
log = logging.getLogger("halog.kafka")
MAX_BYTES = 6 << 20  # R8 allows 5 MB a commit record; the rest is the batch's and the protocol's overhead
MAX_QUEUED = 100_000  # appends a session holds before it says Overloaded
ADMIN_S = 10.0  # creating a topic on a busy broker takes one second, on a dead one for ever

JOURNAL_S = 3.0  # one attempt at writing events: longer than a leader's move


class _KafkaLogger:
    """Logs librdkafka's own lines at DEBUG: it calls things critical that halog expects (a fenced writer)."""

    def log(self, level: int, message: str, *args: object) -> None:
        log.debug(message, *args)


def common(access: KafkaAccess) -> dict[str, Any]:
    """Return the settings of every client. ConfigError for a file or a secret that cannot be read."""
    return {
        **access.librdkafka(),
        "socket.nagle.disable": True,  # one small request at a time: never wait for more
        "socket.keepalive.enable": True,
        "socket.timeout.ms": 10_000,  # a broker silent this long is reconnected to; outcomes stay unknown meanwhile
        "socket.connection.setup.timeout.ms": 2_000,
        "reconnect.backoff.ms": 10,  # a restarted broker is found at once …
        "reconnect.backoff.max.ms": 200,  # … and a dead one not hammered
        "retry.backoff.ms": 10,  # default 100: a leader that moved costs that much per attempt
        "retry.backoff.max.ms": 200,
        "topic.metadata.refresh.fast.interval.ms": 20,  # a new topic's leader is known after one or two of these
        "metadata.max.age.ms": 60_000,
        "message.max.bytes": MAX_BYTES,
        "log_level": 2,  # what matters comes through error_cb and the calls' own results
        "logger": _KafkaLogger(),  # librdkafka would write to stderr
        "error_cb": partial(heard, access),
    }


def producer(access: KafkaAccess) -> dict[str, Any]:
    """Return the settings of a log session: idempotent, gap-less, no timeout of its own (W4)."""
    return {
        **common(access),
        "enable.idempotence": True,
        "enable.gapless.guarantee": True,  # one append lost for good makes everything behind it fail
        "acks": "all",
        # While one request is under way the others gather for the next: fewer and larger requests, half the CPU of
        # broker and client at 16 committers, nothing lost with one (measured against 5, the most idempotence allows).
        "max.in.flight.requests.per.connection": 1,
        "linger.ms": 0,  # measured: produce → ack p50 0.5 ms; any linger is added to it
        "message.timeout.ms": 0,  # the core's commit deadline ends the epoch, never a silent drop in here
        "queue.buffering.max.messages": MAX_QUEUED,
        "queue.buffering.max.kbytes": 2_000_000,  # never the limit: the core bounds each partition's bytes in flight
        "batch.size": MAX_BYTES,
        "compression.type": "none",  # latency; Avro of small commits hardly shrinks
        "enable.metrics.push": False,
    }


def keyed(access: KafkaAccess) -> dict[str, Any]:
    """Return the settings for definitions and snapshots: throughput before latency, and an answer within ADMIN_S."""
    return {
        **producer(access),
        "enable.gapless.guarantee": False,
        "linger.ms": 1,
        "message.timeout.ms": int(ADMIN_S * 1000),
    }


def journal(access: KafkaAccess) -> dict[str, Any]:
    """Return the settings for events: they come in bursts and may come twice. What a broker that is away does not take
    in JOURNAL_S is given back to the writer, who keeps a bounded number of them."""
    return {
        **common(access),
        "acks": "all",
        "linger.ms": 5,
        "batch.size": 65_536,  # a broker that finds a batch too large refuses all of it: only a single value may be
        "message.timeout.ms": int(JOURNAL_S * 1000),
        "enable.metrics.push": False,
    }


def transactional(access: KafkaAccess, transactional_id: str) -> dict[str, Any]:
    """Return the settings of a snapshot writer. Transactions are short: an open one stops all read_committed readers
    (fact 8)."""
    return {
        **keyed(access),
        "transactional.id": transactional_id,
        "transaction.timeout.ms": int(ADMIN_S * 1000),
        "linger.ms": 5,
    }


def consumer(access: KafkaAccess) -> dict[str, Any]:
    """Return the settings of a tail or reader: assigned by hand, nothing committed to Kafka, offsets never reset (fact
    12)."""
    return {
        **common(access),
        "group.id": "halog-unused",  # librdkafka wants one; manual assignment joins no group
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "check.crcs": True,  # off by default: a flipped byte was delivered as good data (fact 5)
        "fetch.min.bytes": 1,
        # The broker answers as soon as there is a byte. But one fetch is in flight per broker, so a newly followed
        # partition waits for the idle one to end: 500 ms by default. 50 costs 20 empty fetches a second.
        "fetch.wait.max.ms": 50,
        "fetch.error.backoff.ms": 20,
        "fetch.queue.backoff.ms": 2,  # default 1,000: a full local queue would stop restore for a second
        "queued.min.messages": 100_000,
        "queued.max.messages.kbytes": 65_536,
        "fetch.message.max.bytes": MAX_BYTES,
        "fetch.max.bytes": 4 * MAX_BYTES,
        "enable.partition.eof": False,
        "allow.auto.create.topics": False,
        "enable.metrics.push": False,
    }


def patient(access: KafkaAccess) -> dict[str, Any]:
    """Return the settings of a tail that nobody waits for: it is told of what came every 10 ms, or at once where much
    came. Every single answer costs broker and client about 0.3 ms of CPU."""
    return {**consumer(access), "fetch.min.bytes": 1 << 20, "fetch.wait.max.ms": 10}


def slow(access: KafkaAccess) -> dict[str, Any]:
    """Return the settings of a tail that is polled no faster than somebody allows: what waits here was fetched all the
    same."""
    return {
        **consumer(access),
        "queued.min.messages": 1_000,
        "queued.max.messages.kbytes": 1_024,
        "fetch.message.max.bytes": 1 << 20,  # a larger record comes whole: the broker's answer has one at least
        "fetch.max.bytes": MAX_BYTES,
    }


def reader(access: KafkaAccess) -> dict[str, Any]:
    """Return the settings of a bounded read: it is told where the end is, and is free again soon after (it fetches only
    while it reads)."""
    return {**consumer(access), "enable.partition.eof": True, "fetch.wait.max.ms": 5}


def answer(future: Any) -> Any:
    """Return the answer to an administrator's request. Raises KafkaException, also if nothing is said in time:
    librdkafka tells that with some delay, or never."""
    try:
        return future.result(ADMIN_S)
    except TimeoutError:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None


def heard(access: KafkaAccess, error: Any) -> None:
    """Log an error event of librdkafka, and note a refusal: connections come and go, and it reconnects by itself."""
    if not refusals.note(access, error):
        log.debug("kafka client: %s", error)


def client(make: Callable[[dict[str, Any]], T], access: KafkaAccess, settings: Callable[[KafkaAccess], Any]) -> T:
    """Make a client. UnreachableError where it cannot be made: a file or a secret cannot be read, or used. A node that
    runs makes clients, too, and tries again."""
    try:
        if not passwords.may_change(access):
            return make(settings(access))
        state = passwords.state_of(access)
        found: T = passwords.followed(make)(settings(access))
        passwords.follow(access, found, state)
        return found
    except ConfigError as error:
        raise UnreachableError(f"Kafka at {access} cannot be asked: {error}", address=str(access)) from error
    except KafkaException as error:
        raise unreachable(access, error.args[0]) from None


def partitions_of(client: Any, topic: str, timeout_s: float) -> int:
    """Ask for a topic's metadata, and return how many partitions it has; 0: there is none. KafkaException: see
    `found_of`."""
    return len(found_of(client, topic, timeout_s))


def found_of(client: Any, topic: str, timeout_s: float) -> dict[int, Any]:
    """Ask for a topic's metadata, and return its partitions. KafkaException where nobody answers, or where this process
    may not know."""
    found = client.list_topics(topic, timeout=timeout_s).topics.get(topic)
    if found is not None and found.error is not None and found.error.code() in refusals.DENIED:
        raise KafkaException(found.error)
    return {} if found is None else found.partitions


LEADERLESS = {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError._UNKNOWN_PARTITION}
"""What is told of a partition whose leader is still to be elected: a broker that answers says so, or librdkafka."""


def unreachable(access: KafkaAccess, error: object, asked: Any = None) -> HalogError:
    """Return the error for a broker that does not answer, or that refuses. `asked`: the client that met it, if nobody
    polls it: only a poll tells why it was refused. `evidence["leaderless"]`: one did answer, and what it was asked for
    has no leader yet. `evidence["refused"]`: why it lets nobody in."""
    why, address = error.str() if isinstance(error, KafkaError) else error, str(access)
    if isinstance(error, KafkaError) and error.code() in LEADERLESS:
        said = f"Kafka at {address} has no leader yet for what it was asked: {why}"
        return UnreachableError(said, address=address, leaderless=True)
    if isinstance(error, KafkaError) and error.code() in refusals.DENIED:
        return UnreachableError(refusals.denied(access, error), address=address, refused=error.name())
    if asked is not None:
        asked.poll(0)
    refused = refusals.lately(access)
    if refused is not None:
        return UnreachableError(refused, address=address, refused=refused)
    return UnreachableError(f"Kafka at {address} does not answer: {why}", address=address)
