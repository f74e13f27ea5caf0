"""Only one command is at an upgrade, and it takes away no other command's mark (U1)."""

from __future__ import annotations

import pytest

from halog.adapters.memory import MemoryCoordinator
from halog.errors import RefusedError
from halog.metadata.upgrades import DRIVEN_PATH, alone, driven_by

pytestmark = pytest.mark.feature("U1")


@pytest.fixture
def coordinator() -> MemoryCoordinator:
    made = MemoryCoordinator()
    made.connect(lambda state: None)
    return made


def test_one_command_is_at_it(coordinator: MemoryCoordinator) -> None:
    with alone(coordinator, "me@here"):
        assert driven_by(coordinator) == "me@here"
        with pytest.raises(RefusedError, match="another command is at the upgrade"), alone(coordinator, "me@here"):
            pass
        assert driven_by(coordinator) == "me@here", "the same operator's other command did not take it away"
    assert driven_by(coordinator) == ""


def test_the_mark_of_a_command_that_began_after_the_session_ended_stays(coordinator: MemoryCoordinator) -> None:
    with alone(coordinator, "me@here"):
        coordinator.delete(DRIVEN_PATH)
        other = alone(coordinator, "me@here")
        other.__enter__()
    assert driven_by(coordinator) == "me@here"
    other.__exit__(None, None, None)
    assert driven_by(coordinator) == ""


def test_an_answer_that_is_lost_hides_nothing(coordinator: MemoryCoordinator) -> None:
    coordinator.lose_reply()
    with pytest.raises(RefusedError, match="what the command ended with"), alone(coordinator, "me@here"):
        coordinator.lose_reply()
        raise RefusedError("what the command ended with")
    assert driven_by(coordinator) == ""
