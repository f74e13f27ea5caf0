"""A site gives its log away: one of its nodes compares it with the other one's, and the others leave that to it (F3).

Each that began would fence the log anew, and what the first one had compared would be of an epoch that is over.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from halog.adapters.memory.coordinator import MemoryCoordinator, MemoryTree
from halog.core.sites.mirror import Checkpoint
from halog.core.table.table import PartitionTable
from halog.metadata.mirrors import COMPARES, MirrorStatus, standing
from halog.ports import TopicPartition
from halog.runtime.sites import mirror_assignment as mirroring, mirror_link as line
from halog.runtime.sites.mirror_assignment import MirrorAssignment, MirrorDuties
from halog.runtime.sites.mirror_link import MirrorLink
from halog.runtime.sites.owner_tracking import OwnerTracker
from halog.runtime.sites.site_paces import PACES, SitePaces
from halog.runtime.support.adapters import nowhere

pytestmark = pytest.mark.feature("M1", "M5")
TABLE = PartitionTable("p", bytes(16).hex(), "t", 0, "policy", ("A", "B", "C"), 0, owner="east")
DEFINITIONS = TopicPartition("definitions", 0)
ALWAYS = SitePaces(report_s=0.0)
"""Whoever compares says so at every look."""


@pytest.fixture
def coordinator() -> MemoryCoordinator:
    made = MemoryCoordinator(MemoryTree())
    made.connect(lambda state: None)
    return made


class Node:
    """One of site west, and its copy."""

    def __init__(self, coordinator: MemoryCoordinator, name: str) -> None:
        self.coordinator = coordinator
        self.me = SimpleNamespace(node=name)
        self.site = "west"
        chain = SimpleNamespace(state=TABLE.beginning("west"))
        state = SimpleNamespace(me=self.me, table=TABLE, chain=chain)
        self.copy: Any = SimpleNamespace(name="p", core=SimpleNamespace(state=state))


def compares(node: Any) -> None:
    """It has been at it for some time."""
    MirrorLink(node, OwnerTracker(node, "east", nowhere, ()), DEFINITIONS, ALWAYS)._compares(node.copy)


def test_whoever_compares_says_so_and_the_others_wait(
    coordinator: MemoryCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = Node(coordinator, "A"), Node(coordinator, "B")
    now = [100.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], time_ns=lambda: int(now[0] * 1e9))
    monkeypatch.setattr(mirroring, "time", clock)
    monkeypatch.setattr(line, "time", clock)
    host: Any = other
    waiting = MirrorAssignment(host, MirrorDuties(coordinator, "B"), nowhere, DEFINITIONS, ())
    for _ in range(10):
        compares(first)
        now[0] += PACES.stale_s / 3
        assert not waiting._is_left(other.copy)
    for _ in range(5):  # it is dead, or hangs
        now[0] += PACES.stale_s / 3
        left = waiting._is_left(other.copy)
    assert left


def test_what_was_told_of_a_split_stays_told(coordinator: MemoryCoordinator) -> None:
    node, checkpoint = Node(coordinator, "A"), Checkpoint(7, TABLE.beginning("east"))
    compares(node)
    found = standing(coordinator, "p")
    assert found is not None
    assert (found.error, found.parted, found.by) == (COMPARES, False, "A")
    before = MirrorStatus(site="east", by="B", at_ms=1, checkpoint=checkpoint, error="parted at 5", parted=True)
    there = coordinator.get("mirrors/p")
    assert there is not None
    coordinator.set("mirrors/p", msgspec.json.encode(before), there.version)
    compares(node)
    found = standing(coordinator, "p")
    assert found is not None
    assert (found.error, found.parted, found.by, found.checkpoint) == ("parted at 5", True, "A", checkpoint)
