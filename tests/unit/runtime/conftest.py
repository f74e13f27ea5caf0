"""A coordinator, and clusters that commit over several partitions. Who wants another one makes his own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from halog.adapters.memory import MemoryCoordinator, MemoryTree
from halog.runtime.node.paces import PACES, Paces
from halog.testing.cluster import Cluster
from tests.unit.counting import REGISTRY


def started(doubt_ms: int, paces: Paces = PACES) -> Cluster:
    made = Cluster(3, partitions=4, registry=REGISTRY, paces=paces)
    timing = replace(made.config.timing, doubt_timeout_ms=doubt_ms)
    made.config = replace(made.config, timing=timing).validate()
    return made.start()


@pytest.fixture
def coordinator() -> Iterator[MemoryCoordinator]:
    made = MemoryCoordinator(MemoryTree())
    made.connect(lambda state: None)
    yield made
    made.close()


@pytest.fixture
def doubt_ms() -> int:
    return 300


@pytest.fixture
def cluster(doubt_ms: int) -> Iterator[Cluster]:
    with started(doubt_ms) as made:
        yield made


@pytest.fixture
def patient() -> Iterator[Cluster]:
    """Nobody is in doubt before the test ends."""
    with started(60_000) as made:
        yield made
