"""What a reader does where Kafka's client is at a loss."""

from __future__ import annotations

import math
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from halog.adapters.kafka.access import KafkaAccess
from halog.adapters.kafka.read import Readers
from halog.errors import UnreachableError
from halog.ports import TopicPartition


class Admin:
    """Answers with an offset, or with an error, so many times or for ever."""

    def __init__(self, error: int | None = None, times: int = 1_000_000) -> None:
        self.error = error
        self.times = times
        self.asked = 0
        self.known: set[str] = set()

    def list_topics(self, topic: str, timeout: float) -> None:
        self.known.add(topic)

    def list_offsets(self, asked: dict[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        self.asked += 1
        assert {a.topic for a in asked} <= self.known, "it would look for the leader itself"
        answer: Future[Any] = Future()
        if self.error is None or self.asked > self.times:
            answer.set_result(SimpleNamespace(offset=7))
        else:
            answer.set_exception(KafkaException(KafkaError(self.error, "no")))
        return dict.fromkeys(asked, answer)


class Leaderless:
    """A consumer that was told, when it asked first, that the partition has no leader: what it knows it repeats."""

    def __init__(self, elected: int) -> None:
        self.elected = elected  # the metadata says who leads when asked so many times
        self.refreshed = 0

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        self.refreshed += 1
        return SimpleNamespace(topics={})

    def get_watermark_offsets(self, asked: Any, timeout: float, cached: bool) -> tuple[int, int]:
        if self.refreshed < self.elected:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION, "Unknown partition"))
        return 3, 9

    def unassign(self) -> None: ...

    def close(self) -> None: ...


def written(admins: list[Admin], answer_s: float = math.inf) -> int:
    readers = Readers(KafkaAccess("b:1"), lambda: admins[0], lambda: admins.append(admins.pop(0)), answer_s)
    return readers._written(TopicPartition("t", 0))


@pytest.mark.parametrize("code", [KafkaError._NOENT, KafkaError._TIMED_OUT])
@pytest.mark.feature("P11")
def test_a_client_that_finds_no_leader_is_replaced(code: int) -> None:
    """It may have looked when the topic was new, and never look again: a node ended with it on its first start."""
    stuck, fresh = Admin(code), Admin()
    assert written([stuck, fresh]) == 7
    assert (stuck.asked, fresh.asked) == (1, 1)


def test_a_client_knows_the_leader_before_it_is_asked_for_an_offset() -> None:
    """librdkafka's own look for it misses an answer that comes soon, and looks again 3 s later: so long a restore
    waited at its source, and every fifth node that started."""
    fresh = Admin()
    assert written([fresh]) == 7
    assert fresh.known == {"t"}


def test_a_broker_that_has_not_heard_of_a_topic_is_asked_again_by_the_same_client() -> None:
    """A client is two threads and a connection: not one for each of the many times that takes."""
    same, other = Admin(KafkaError.UNKNOWN_TOPIC_OR_PART, 5), Admin()
    assert written([same, other]) == 7
    assert (same.asked, other.asked) == (6, 0)


def test_what_no_client_can_do_is_told() -> None:
    with pytest.raises(UnreachableError, match="b:1"):
        written([Admin(KafkaError._NOENT)], answer_s=0.1)
    refused = Admin(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(UnreachableError):
        written([refused])
    assert refused.asked == 1


@pytest.mark.feature("P11")
def test_a_partition_without_a_leader_is_told_as_that() -> None:
    """The broker is there: it was killed, and leads again when its session has ended. Who starts waits for it."""
    readers = Readers(KafkaAccess("b:1"), Admin, lambda: None, make=lambda conf: Leaderless(1_000_000))
    with pytest.raises(UnreachableError, match="has no leader yet") as e:
        readers.bounds(TopicPartition("t", 0), 0.1)
    assert e.value.evidence["leaderless"]


@pytest.mark.feature("P11")
def test_a_partition_that_had_no_leader_is_looked_for_anew() -> None:
    """librdkafka repeats "unknown partition" from its cache for as long as nobody asks for the metadata (its
    rd_kafka_topic_partition_list_query_leaders): a broker that had stood still was told unreachable for it."""
    made: list[Leaderless] = []
    readers = Readers(KafkaAccess("b:1"), Admin, lambda: None, make=lambda conf: made.append(Leaderless(2)) or made[-1])
    assert readers.bounds(TopicPartition("t", 0), 5.0) == (3, 9)
    assert [c.refreshed for c in made] == [2]
