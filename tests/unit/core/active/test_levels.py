"""The level in a log: an active node states it before it writes anything of it, and nothing lowers it (U1)."""

from __future__ import annotations

import msgspec
import pytest

from halog.core import effects as fx, events as ev
from halog.core.log import records
from halog.core.log.records import Header, LevelStated
from halog.core.roles import Role
from tests.unit.core.kit import LOG_ID, Core, epoch, replica

pytestmark = pytest.mark.feature("U1")


@pytest.fixture(autouse=True)
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """This halog knows level 2."""
    monkeypatch.setattr(records, "LEVEL", 2)


def stated(core: Core) -> list[int]:
    """The levels that are on their way to the log with the last step."""
    sent = [records.decode(e.data) for e in core.of(fx.Append)]
    return [r.level for r in sent if isinstance(r, LevelStated)]


def test_at_the_first_level_nothing_is_said() -> None:
    core = Core()
    core.step(ev.LevelSeen(1))
    core.active()
    assert stated(core) == []
    core.step(ev.Ticked(), after_ms=50)
    assert stated(core) == []


def test_who_begins_to_serve_says_the_level_first() -> None:
    core = Core()
    core.step(ev.LevelSeen(2))
    core.active()
    assert stated(core) == [2]
    core.submit(1)
    assert stated(core) == []
    assert [type(records.decode(e.data)) for e in core.of(fx.Append)] == [records.Commit]


def test_a_level_that_rises_is_said_at_once_and_once() -> None:
    core = Core().active()
    assert stated(core) == []
    core.step(ev.LevelSeen(2))
    assert stated(core) == [2]
    core.acknowledge()
    assert core.p.state.chain.state.level == 2
    core.step(ev.LevelSeen(2))
    core.step(ev.Ticked(), after_ms=50)
    assert stated(core) == []


@pytest.mark.parametrize("role", ["draining", "handing", "verifying"])
def test_it_is_not_said_where_an_epoch_may_be_over(role: str) -> None:
    core: Core = getattr(Core(), role)()
    core.step(ev.LevelSeen(2))
    assert stated(core) == []


def test_it_is_said_once_the_gap_was_read() -> None:
    core = Core().verifying()
    core.step(ev.LevelSeen(2))
    assert core.p.leading is not None
    own = core.p.leading.writer.queue[0].record
    core.land(records.encode(records.EpochStarted(Header(LOG_ID, epoch(1, 9)), epoch(0), 0)))
    core.land(records.encode(own))
    assert core.role is Role.ACTIVE
    core.step(ev.Ticked(), after_ms=50)
    assert stated(core) == [2]


def test_a_level_of_the_log_that_the_coordinator_does_not_say_is_to_be_raised() -> None:
    """It was put back to older data: nothing lowers a level."""
    core, script = replica()
    core.land(script.level(epoch(1), 2))
    assert core.of(fx.LevelStands) == [fx.LevelStands(2)]
    assert core.p.state.chain.state.level == 2


def test_each_epoch_says_it_whatever_the_coordinator_says_by_then() -> None:
    """Behind a merge readers come from a branch that may not have stated it; and the coordinator may be put back."""
    core = Core().opening()
    core.p.state.level = 2
    core.p.state.chain.state = msgspec.structs.replace(core.p.state.chain.state, level=2)
    core.land()
    assert core.role is Role.ACTIVE
    assert stated(core) == [2]


def test_a_coordinator_that_says_less_than_it_did_is_to_be_raised_again() -> None:
    core = Core().loaded()
    core.step(ev.LevelSeen(2))
    assert core.of(fx.LevelStands) == []
    core.step(ev.LevelSeen(1))
    assert core.of(fx.LevelStands) == [fx.LevelStands(2)]
    assert core.p.state.level == 2
