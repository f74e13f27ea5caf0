"""A consumer that has lost every broker for good is replaced (librdkafka #5301: told "no brokers" once, it asks nobody
ever again, though the broker is there)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from halog.adapters.kafka.access import KafkaAccess
from halog.adapters.kafka.tail import KafkaTail
from halog.ports import Entry, TopicPartition

P0 = TopicPartition("t", 0)


class Message:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def error(self) -> None:
        return None

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes:
        return b"v"

    def timestamp(self) -> tuple[int, int]:
        return 1, 2


class Clients:
    """Stands for confluent's Consumer class; the first one made dies when told to."""

    def __init__(self) -> None:
        self.made: list[Client] = []
        self.broker_is_there = True

    def __call__(self, conf: dict[str, Any]) -> Client:
        self.made.append(Client(self))
        return self.made[-1]


class Client:
    def __init__(self, all_: Clients) -> None:
        self.all = all_
        self.dead = self.closed = False
        self.assigned: list[int] = []
        self.waiting: list[Message] = []

    def list_topics(self, topic: str = "", timeout: float = 0) -> SimpleNamespace:
        if self.dead or not self.all.broker_is_there:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=range(8), error=None)})

    def incremental_assign(self, seats: list[Any]) -> None:
        self.assigned += [s.offset for s in seats]

    def incremental_unassign(self, seats: list[Any]) -> None: ...

    def poll(self, timeout: float) -> Message | None:
        return self.waiting.pop(0) if self.waiting and self.assigned else None

    def consume(self, n: int, timeout: float) -> list[Message]:
        return []

    def get_watermark_offsets(self, seat: Any, cached: bool) -> None:
        """Nothing is known."""

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def clients() -> Clients:
    return Clients()


def test_a_consumer_that_finds_no_broker_is_replaced_and_goes_on_where_it_was(clients: Clients) -> None:
    tail = KafkaTail(KafkaAccess("b"), make=clients, quiet_s=0.0)
    tail.follow(P0, 5)
    first = clients.made[0]
    first.waiting = [Message(5)]
    assert tail.poll(0.05) == [Entry(P0, 5, b"v", 2)]
    first.dead = True
    tail.poll(0.05)
    assert first.closed
    second = clients.made[-1]
    second.waiting = [Message(6)]
    assert tail.poll(0.05) == [Entry(P0, 6, b"v", 2)]
    assert second.assigned == [6]


def test_while_the_broker_is_away_the_consumer_is_kept(clients: Clients) -> None:
    tail = KafkaTail(KafkaAccess("b"), make=clients, quiet_s=0.0)
    tail.follow(P0, 5)
    tail.poll(0.05)
    clients.broker_is_there = False
    tail.poll(0.05)
    assert not clients.made[0].closed
    assert all(c.closed for c in clients.made[1:])
    clients.broker_is_there = True
    clients.made[0].waiting = [Message(5)]
    assert tail.poll(0.05) == [Entry(P0, 5, b"v", 2)]
