"""This module has librdkafka's settings, each with its reason. It never opens a connection."""

from __future__ import annotations

import logging
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from halog.errors import HalogError, UnreachableError

log = logging.getLogger("halog.kafka")
MAX_BYTES = 6 << 20  # R8 allows 5 MB a commit record; the rest is the batch's and the protocol's overhead
MAX_QUEUED = 100_000  # appends a session holds before it says Overloaded
ADMIN_S = 10.0  # creating a topic on a busy broker takes one second, on a dead one for ever

JOURNAL_S = 3.0  # one attempt at writing events: longer than a leader's move


class _KafkaLogger:
    """Logs librdkafka's own lines at DEBUG: it calls things critical that halog expects (a fenced writer)."""

    def log(self, level: int, message: str, *args: object) -> None:
        log.debug(message, *args)


def common(bootstrap: str) -> dict[str, Any]:
    """Return the settings of every client."""
    return {
        "bootstrap.servers": bootstrap,
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
        "error_cb": heard,
    }


def producer(bootstrap: str) -> dict[str, Any]:
    """Return the settings of a log session: idempotent, gap-less, no timeout of its own (W4)."""
    return {
        **common(bootstrap),
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


def keyed(bootstrap: str) -> dict[str, Any]:
    """Return the settings for definitions and snapshots: throughput before latency, and an answer within ADMIN_S."""
    return {
        **producer(bootstrap),
        "enable.gapless.guarantee": False,
        "linger.ms": 1,
        "message.timeout.ms": int(ADMIN_S * 1000),
    }


def journal(bootstrap: str) -> dict[str, Any]:
    """Return the settings for events: they come in bursts and may come twice. What a broker that is away does not take
    in JOURNAL_S is given back to the writer, who keeps a bounded number of them."""
    return {
        **common(bootstrap),
        "acks": "all",
        "linger.ms": 5,
        "batch.size": 65_536,  # a broker that finds a batch too large refuses all of it: only a single value may be
        "message.timeout.ms": int(JOURNAL_S * 1000),
        "enable.metrics.push": False,
    }


def transactional(bootstrap: str, transactional_id: str) -> dict[str, Any]:
    """Return the settings of a snapshot writer. Transactions are short: an open one stops all read_committed readers
    (fact 8)."""
    return {
        **keyed(bootstrap),
        "transactional.id": transactional_id,
        "transaction.timeout.ms": int(ADMIN_S * 1000),
        "linger.ms": 5,
    }


def consumer(bootstrap: str) -> dict[str, Any]:
    """Return the settings of a tail or reader: assigned by hand, nothing committed to Kafka, offsets never reset (fact
    12)."""
    return {
        **common(bootstrap),
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


def patient(bootstrap: str) -> dict[str, Any]:
    """Return the settings of a tail that nobody waits for: it is told of what came every 10 ms, or at once where much
    came. Every single answer costs broker and client about 0.3 ms of CPU."""
    return {**consumer(bootstrap), "fetch.min.bytes": 1 << 20, "fetch.wait.max.ms": 10}


def slow(bootstrap: str) -> dict[str, Any]:
    """Return the settings of a tail that is polled no faster than somebody allows: what waits here was fetched all the
    same."""
    return {
        **consumer(bootstrap),
        "queued.min.messages": 1_000,
        "queued.max.messages.kbytes": 1_024,
        "fetch.message.max.bytes": 1 << 20,  # a larger record comes whole: the broker's answer has one at least
        "fetch.max.bytes": MAX_BYTES,
    }


def reader(bootstrap: str) -> dict[str, Any]:
    """Return the settings of a bounded read: it is told where the end is, and is free again soon after (it fetches only
    while it reads)."""
    return {**consumer(bootstrap), "enable.partition.eof": True, "fetch.wait.max.ms": 5}


def answer(future: Any) -> Any:
    """Return the answer to an administrator's request. Raises KafkaException, also if nothing is said in time:
    librdkafka tells that with some delay, or never."""
    try:
        return future.result(ADMIN_S)
    except TimeoutError:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None


def heard(error: Any) -> None:
    """Log an error event of librdkafka: connections come and go, and it reconnects by itself."""
    log.debug("kafka client: %s", error)


LEADERLESS = {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError._UNKNOWN_PARTITION}
"""What is told of a partition whose leader is still to be elected: a broker that answers says so, or librdkafka."""


def unreachable(bootstrap: str, error: object) -> HalogError:
    """Return the error for a broker that does not answer. `evidence["leaderless"]`: one did, and what it was asked for
    has no leader yet."""
    why = error.str() if isinstance(error, KafkaError) else error
    if isinstance(error, KafkaError) and error.code() in LEADERLESS:
        said = f"Kafka at {bootstrap} has no leader yet for what it was asked: {why}"
        return UnreachableError(said, address=bootstrap, leaderless=True)
    return UnreachableError(f"Kafka at {bootstrap} does not answer: {why}", address=bootstrap)
