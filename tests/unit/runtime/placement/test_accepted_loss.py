"""A loss that an operator accepts is accepted once, whatever becomes of the answer (R6)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from halog.adapters.memory import MemoryCoordinator, MemoryTree
from halog.core.ids import EpochId, Member
from halog.core.table.table import ASYNC, SYNC, PartitionTable, Replica
from halog.errors import RefusedError
from halog.metadata.groups import UnloggedSurrender
from halog.metadata.partition_tables import change_table
from halog.ports import UnknownResult


class Silent(MemoryCoordinator):
    """Its first set lands, and no answer comes; somebody may be quick meanwhile."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.meanwhile: PartitionTable | None = None
        self.sets = 0

    def set(self, path: str, data: bytes, version: int) -> int:
        self.sets += 1
        done = super().set(path, data, version)
        if self.sets > 1:
            return done
        if self.meanwhile is not None:
            super().set(path, self.meanwhile.to_bytes(), done)
        raise UnknownResult


@pytest.mark.feature("R6")
@pytest.mark.parametrize("led", [False, True], ids=["nobody leads yet", "somebody leads by then"])
def test_a_loss_that_was_accepted_without_an_answer_is_not_accepted_again(*, led: bool) -> None:
    """Nor refused: the holders it has given up are none any more, and who did it has yet to be told."""
    held = PartitionTable(
        "p-0",
        "00" * 16,
        "t",
        0,
        "q",
        ("A", "B", "C"),
        1,
        epoch=EpochId(3, "s", 0),
        active=Member("A", 1),
        replicas=(Replica("B", 2, SYNC), Replica("C", 3, ASYNC)),
    )
    tree = MemoryTree()
    coordinator = Silent(tree)
    coordinator.connect(lambda state: None)
    try:
        coordinator.create("partitions/p-0", held.to_bytes())
        if led:
            next_ = (Replica("B", 9, SYNC),)
            coordinator.meanwhile = msgspec.structs.replace(
                held, epoch=EpochId(4, "s", 0), active=Member("C", 3), replicas=next_
            )
        giving_up = UnloggedSurrender({"B": 9, "C": 3})
        found = change_table(coordinator, "p-0", giving_up)
    finally:
        coordinator.close()
    assert coordinator.sets == 1
    assert found.active == (Member("C", 3) if led else None)
    assert (giving_up.names, giving_up.epoch) == (["A", "B"], 3)
    with pytest.raises(RefusedError, match="is up: wait for it" if led else "has nothing to give up"):
        UnloggedSurrender({"B": 9, "C": 3})(found)
