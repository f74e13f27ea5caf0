"""How many brokers hold a topic."""

from __future__ import annotations

import pytest

from halog.adapters.kafka.topics import TopicReplicas


@pytest.mark.feature("R1", "O3")
@pytest.mark.parametrize(
    ("copies", "brokers", "factor", "in_sync"),
    [
        (TopicReplicas(), 1, 1, 1),
        (TopicReplicas(), 2, 2, 1),
        (TopicReplicas(), 3, 3, 2),
        (TopicReplicas(), 5, 3, 2),
        (TopicReplicas(3), 2, 3, 2),
        (TopicReplicas(3, 3), 5, 3, 3),
        (TopicReplicas(1), 3, 1, 1),
    ],
)
def test_copies_go_by_the_brokers_unless_they_are_configured(
    copies: TopicReplicas, brokers: int, factor: int, in_sync: int
) -> None:
    """Three where there are three, all but one in sync; a configured number holds although a broker is down."""
    assert copies.among(brokers) == (factor, in_sync)
