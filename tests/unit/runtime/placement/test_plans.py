"""The plan as its znode has it: however many partitions move."""

from __future__ import annotations

import pytest

from halog.adapters.memory import MemoryCoordinator
from halog.core.table.table import Target
from halog.errors import CoordinatorError
from halog.ports import MAX_ZNODE_BYTES
from halog.runtime.placement import plan as plans

pytestmark = pytest.mark.feature("P13")


def of(moves: int) -> plans.Plan:
    target = Target(("warehouse-2.example.com", "warehouse-3.example.com"), 1)
    why = "node warehouse-1.example.com has more than its share"
    before = ("warehouse-1.example.com", "warehouse-2.example.com")
    moved = (plans.PlannedMove(f"p-{i}", before, target, i, why) for i in range(moves))
    return plans.new(tuple(moved), {"p-x": "it is down"})


@pytest.mark.parametrize("moves", [0, 1, 1_000, 20_000])
def test_a_plan_of_any_number_of_moves_fits_its_znode(moves: int) -> None:
    """And is read as it was made, kept, and cancelled."""
    coordinator, plan = MemoryCoordinator(), of(moves)
    coordinator.connect(lambda state: None)
    plans.store(coordinator, plan, [])
    assert plans.read(coordinator) == plan
    found = coordinator.get(plans.PATH)
    assert found is not None
    assert len(found.data) <= MAX_ZNODE_BYTES
    assert plans.cancel(coordinator).moves == plan.moves
    assert plans.known(coordinator)[0].cancelled
    coordinator.close()


def test_a_small_plan_is_text() -> None:
    """As it always was, also for an older halog."""
    assert of(1_000).to_bytes().startswith(b'{"id":')


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"x\x9c", of(20_000).to_bytes()[:-9]])
def test_what_is_no_plan_is_said(data: bytes) -> None:
    """Whatever stands there."""
    with pytest.raises(CoordinatorError, match="holds no plan"):
        plans.Plan.from_bytes(data)
