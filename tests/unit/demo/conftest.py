from __future__ import annotations

from collections.abc import Iterator

import pytest

from halog.testing.memory import MemoryBackend, MemoryCluster
from halog.transactions import Node


@pytest.fixture
def cluster() -> Iterator[MemoryCluster]:
    """Shared memory, and a node that is active for all of it."""
    shared = MemoryCluster()
    with Node(MemoryBackend(shared)) as active:
        shared.execute = active.executor
        yield shared
