"""What a fresh eye found about stores that stand for holders (decision 38)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from halog.core import effects as fx, events as ev
from halog.core.ids import Member, Position
from halog.core.roles import Role
from halog.core.settings import Settings, Sync
from halog.core.table.table import SYNC, Replica
from halog.core.table.tell import Tell
from tests.unit.core.kit import SETTINGS, A, B, C, Core, Script, create, epoch, table

pytestmark = pytest.mark.feature("R6", "P1")

STORES_PUSHED = msgspec.structs.replace(SETTINGS, local_sync=Sync.NO_SYNC, remote_sync=Sync.WRITE_NO_SYNC)
NO_SYNC = msgspec.structs.replace(SETTINGS, local_sync=Sync.NO_SYNC)


def replica(settings: Settings, **t: Any) -> tuple[Core, Script]:
    core, script = Core(B, settings=settings), Script()
    core.loaded()
    core.alive(A, C)
    core.step(ev.TableSeen(1, table(epoch=epoch(1), active=A, replicas=(Replica("B", 2, SYNC),), **t)))
    core.land(script.started(epoch(1)))
    core.land(script.opened(epoch(1)))
    core.step(ev.Taken())
    return core, script


@pytest.mark.parametrize("settings", [NO_SYNC, STORES_PUSHED], ids=["memory", "stored"])
def test_a_shorter_tail_it_adopted_hides_nothing_of_what_it_acknowledged(settings: Settings) -> None:
    """B holds, and has acknowledged, lsn 2 and 3. It stands, hears of C, which holds lsn 2 only, and its claim meets
    with another set. Asked for its position by somebody else it tells all that it acknowledged."""
    core, script = replica(settings)
    two, three = script.commit(epoch(1), 1), script.commit(epoch(1), 2, create(b"l"))
    core.step(ev.Pushed(A, epoch(1), (two, three)))
    assert core.one(fx.SendAck).lsn == 3
    core.alive(C)
    assert core.role is Role.ELECTING
    core.step(ev.PositionTold("C", core.p.campaign.round, Position(1, 2), True, 3, (two,)))
    assert core.is_now(Role.CLAIMING)
    core.step(ev.CasDone(core.one(fx.SetTable).round, ev.Cas.CONFLICT))
    assert core.is_now(Role.FOLLOWING)
    core.step(ev.PositionAsked("C", 7))
    assert core.one(fx.TellPosition).tail == (two, three)


def test_a_node_whose_application_has_not_enabled_it_again_may_have_it_on_its_disk() -> None:
    """The application places the partition (P8), and all processes were killed. A is enabled first; B is up, and its
    store stands for the holder, but its application needs longer than a start may take."""
    a = Member("A", 10)
    core = Core(a, settings=STORES_PUSHED, admitted=("A",), epoch=epoch(1), active=A, replicas=(Replica("B", 2, SYNC),))
    core.loaded()
    core.alive(Member("B", 20))
    for _ in range(20):
        core.step(ev.Ticked(), after_ms=1_000)
        assert not [e for e in core.of(Tell) if e.kind.code == "HALOG-1019"], "given up"
