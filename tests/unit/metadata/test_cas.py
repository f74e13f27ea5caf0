"""A znode that is changed by compare-and-set while the connection breaks (O3)."""

from __future__ import annotations

import pytest

from halog.adapters.memory import MemoryCoordinator
from halog.errors import UnreachableError
from halog.metadata import cas
from halog.ports import UnknownResult


def added(coordinator: MemoryCoordinator) -> None:
    """One more, once."""
    for attempt in cas.attempts(coordinator, "n"):
        assert attempt.found is not None
        if attempt.found.data == b"1" or attempt.write(b"1"):
            return


@pytest.fixture
def coordinator() -> MemoryCoordinator:
    made = MemoryCoordinator()
    made.connect(lambda state: None)
    made.create("n", b"0")
    return made


@pytest.mark.feature("O3")
@pytest.mark.parametrize("lands", [True, False])
def test_a_connection_that_broke_under_a_write_is_waited_for(coordinator: MemoryCoordinator, lands: bool) -> None:
    with (
        coordinator.faults.fail("set", UnknownResult("no answer"), lands=lands, times=1),
        coordinator.faults.fail("sync", UnreachableError("not connected"), times=3),
    ):
        added(coordinator)
    found = coordinator.get("n")
    assert found is not None
    assert (found.data, found.version) == (b"1", 1)


@pytest.mark.feature("O3")
def test_one_that_stays_away_is_told(coordinator: MemoryCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cas, "BACK_S", 0.1)
    with (
        coordinator.faults.fail("set", UnknownResult("no answer"), lands=False, times=1),
        coordinator.faults.fail("sync", UnreachableError("not connected")),
        pytest.raises(UnreachableError),
    ):
        added(coordinator)
