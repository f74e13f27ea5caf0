"""An operator gives up those who may hold what the log lacks (R6, E3): what whoever takes over says of it (Q4)."""

from __future__ import annotations

import msgspec
import pytest

from halog.core import effects as fx, events as ev
from halog.core.ids import Member
from halog.core.roles import Role
from halog.core.table.table import ASYNC, SYNC, Replica
from halog.core.table.tell import Tell
from halog.metadata.groups import UnloggedSurrender
from tests.unit.core.kit import SETTINGS, A, C, Core
from tests.unit.core.table.test_holders import NO_SYNC, alone, follower

pytestmark = pytest.mark.feature("R6", "Q4")


def given_up(core: Core) -> str:
    """An operator gives up the holders; C takes over. Why, as it says."""
    core.step(ev.TableSeen(core.p.state.version + 1, UnloggedSurrender({"C": 3})(core.p.state.table)))
    core.step(ev.Ticked(), after_ms=NO_SYNC.stand_back_ms)
    assert core.is_now(Role.CLAIMING)
    assert not core.of(Tell), "the operator's command has told it"
    assert core.one(fx.SetTable).table.sync_set == frozenset()
    core.cas_ok()
    core.land()
    core.land()
    assert core.is_now(Role.ACTIVE)
    return core.one(fx.RoleChanged).why


def test_whoever_takes_over_when_an_operator_gave_the_holders_up_says_that() -> None:
    """Nobody gave up an epoch: those who led it were killed."""
    assert given_up(alone()) == "an operator gave up what A, B may have in memory"


def test_that_counts_for_more_than_that_the_active_had_given_up_before() -> None:
    """A gave up, as it did not reach the log, and died then."""
    core = alone()
    release = msgspec.structs.replace(
        core.p.state.table, active=None, replicas=(*core.p.state.table.replicas, Replica("A", 1, SYNC))
    )
    core.step(ev.TableSeen(core.p.state.version + 1, release))
    assert given_up(core) == "an operator gave up what A, B may have in memory"


@pytest.mark.parametrize("up", [(A,), ()], ids=["it is up", "it died since"])
def test_an_active_alone_that_gives_up_is_not_taken_for_an_operator(up: tuple[Member, ...]) -> None:
    """B had left its sync set, and C hears of both at once."""
    core, _ = follower(C)
    core.step(ev.AliveChanged(frozenset({C, *up}), "B was killed"))
    core.step(
        ev.TableSeen(2, msgspec.structs.replace(core.p.state.table, active=None, replicas=(Replica("C", 3, ASYNC),)))
    )
    core.step(ev.Ticked(), after_ms=NO_SYNC.stand_back_ms + SETTINGS.start_grace_ms)
    if core.is_now(Role.ELECTING):
        core.step(ev.Ticked(), after_ms=core.p.campaign.patience)
    assert core.is_now(Role.CLAIMING)
    assert core.p.campaign.why == "A gave up epoch 1"
