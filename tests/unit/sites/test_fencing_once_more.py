"""A log that must be fenced once more waits for its turn, too: each fence has a producer of its own (F1, M5)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from halog.adapters.memory.coordinator import MemoryCoordinator, MemoryTree
from halog.core.ids import EpochId
from halog.core.log.chain import ChainState
from halog.core.sites.mirror import Checkpoint
from halog.core.table.table import PartitionTable
from halog.metadata.mirrors import COMPARES, MirrorStatus, write
from halog.runtime.sites.catch_up import AGAIN_S, CatchUp
from halog.runtime.support.adapters import SiteAccess

pytestmark = pytest.mark.feature("M5")

TABLE = PartitionTable("p", bytes(16).hex(), "t", 0, "policy", ("A",), 0, epoch=EpochId(9, "west", 1), owner="east")


class Fenced(CatchUp):
    """The fence of epoch 5 stands in west's log, which was given to east, at offset 3."""

    def __init__(self, standing: MirrorStatus, again_s: float = 0.0) -> None:
        here, there = MemoryCoordinator(MemoryTree()), MemoryCoordinator(MemoryTree())
        for coordinator in (here, there):
            coordinator.connect(lambda state: None)
        there.create("partitions/p", TABLE.to_bytes())
        write(here, "p", standing)
        log: Any = None
        super().__init__(here, SiteAccess("west", log, there), "p", again_s=again_s)
        self._there = TABLE
        self._number = 5
        self.fenced = 3
        self.fences = 0

    def _fence(self, there: PartitionTable, highest: int) -> None:
        self.fences += 1


def stands(error: str, state: ChainState) -> MirrorStatus:
    return MirrorStatus(site="west", by="E", at_ms=0, checkpoint=Checkpoint(7, state), error=error)


GIVEN_BACK = stands(COMPARES, TABLE.beginning("west"))
"""Somebody has begun an epoch above the fence since: each site waits for the other one."""
OPENED = stands("", msgspec.structs.replace(TABLE.beginning("west"), owner="", opened=True, epoch=TABLE.epoch))
"""An epoch above the fence stands open."""


@pytest.mark.parametrize("standing", [GIVEN_BACK, OPENED])
def test_it_is_not_fenced_while_as_many_others_are_as_may_be(standing: MirrorStatus) -> None:
    """And as soon as it is its turn."""
    one = Fenced(standing)
    assert not one.step(may_fence=False)
    assert one.fences == 0
    assert not one.step(may_fence=True)
    assert one.fences == 1


def test_waiting_for_its_turn_is_no_look() -> None:
    """Else the next one would be two seconds later. The machine has been up for longer than that."""
    one = Fenced(GIVEN_BACK, AGAIN_S)
    one.step(may_fence=False)
    one.step(may_fence=True)
    assert one.fences == 1
