"""A new topic is waited for as long as its partitions get leaders, one after the other (R1)."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from halog.adapters.kafka.access import KafkaAccess
from halog.adapters.kafka.topics import TopicReplicas, Topics
from halog.errors import LogError

pytestmark = pytest.mark.feature("R1")


class Admin:
    """Each look at the topic takes a second of its clock; `led` says how many partitions have a leader at each."""

    def __init__(self, count: int, led: Iterator[int]) -> None:
        self.count = count
        self.led = led
        self.now = 0.0

    def list_topics(self, topic: str, timeout: float) -> Any:
        self.now += 1.0
        led = next(self.led)
        leaders = {i: SimpleNamespace(leader=1 if i < led else -1) for i in range(self.count)}
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=leaders, error=None)})


def topics(count: int, led: Iterator[int]) -> Topics:
    admin = Admin(count, led)
    return Topics(KafkaAccess("b:1"), admin, TopicReplicas(), now=lambda: admin.now, pause=lambda s: None)


def test_hundreds_of_leaders_that_come_slowly_are_waited_for() -> None:
    """400 partitions took a busy broker more than ten seconds; the start was given up, again and again."""
    slowly = (n // 5 * 10 for n in range(1_000))
    assert len(topics(400, slowly)._await_leaders("t", 400)) == 400


def test_a_broker_that_shows_none_until_it_has_them_all_is_waited_for() -> None:
    at_once = (0 if n < 40 else 400 for n in range(1_000))
    assert len(topics(400, at_once)._await_leaders("t", asked=400)) == 400


def test_leaders_that_do_not_come_are_given_up_and_counted() -> None:
    stuck = (min(n, 7) for n in range(10_000))
    with pytest.raises(LogError, match="topic t: 7 of its 12 partitions have a leader"):
        topics(12, stuck)._await_leaders("t", 12)
