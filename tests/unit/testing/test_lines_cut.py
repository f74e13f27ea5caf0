"""A line that is cut is cut for all connections, also for one that is just being made."""

from __future__ import annotations

from typing import Any

import pytest

from halog.adapters.memory import MemoryCoordinator
from halog.errors import UnreachableError
from halog.schema import Registry
from halog.testing.cluster import Cluster

pytestmark = pytest.mark.feature("M5")


def test_a_connection_that_is_made_while_the_line_is_cut_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    west = Cluster(1, partitions=1, registry=Registry(), site="west", others=("east",))
    east = Cluster(1, partitions=1, registry=Registry(), site="east", home=west)
    real = MemoryCoordinator.connect

    def connect(self: MemoryCoordinator, heard: Any) -> None:
        real(self, heard)
        east.cut()

    monkeypatch.setattr(MemoryCoordinator, "connect", connect)
    with pytest.raises(UnreachableError, match="site west cannot be reached"):
        east._reach("west")
    monkeypatch.setattr(MemoryCoordinator, "connect", real)
    east.mend()
    assert east._reach("west") is not None
