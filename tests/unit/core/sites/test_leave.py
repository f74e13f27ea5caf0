"""An active node whose partition another site is to serve: it ends its epoch with all logged, and never stands (F1)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from halog.core import effects as fx, events as ev, results as res
from halog.core.ids import EpochId
from halog.core.log import records
from halog.core.roles import Role
from tests.unit.core.kit import B, Core, Script, create, epoch

pytestmark = pytest.mark.feature("M5")


def given(core: Core, site: str = "east", **changes: Any) -> None:
    """The znode says which site is to serve."""
    now = core.p.state.table
    core.step(ev.TableSeen(core.p.state.version + 1, msgspec.structs.replace(now, owner=site, **changes)))
    core.step(ev.Ticked())


def last_record(core: Core) -> records.Record:
    return records.decode(core.of(fx.Append)[-1].data)


def test_it_hands_over_to_the_site_with_everything_logged() -> None:
    core = Core().with_sync_replica()
    core.submit(1, create(b"pending"))
    given(core)
    assert core.is_now(Role.DRAINING)
    assert not core.of(fx.Append)
    core.acked_by(B, 2)
    core.acknowledge()
    assert core.is_now(Role.HANDING)
    record = last_record(core)
    assert isinstance(record, records.HandedOver)
    assert record.to == "east"
    core.acknowledge()
    assert core.is_now(Role.FOLLOWING)
    assert core.one(fx.SetTable).table.active is None


def test_new_commits_go_nowhere_meanwhile() -> None:
    core = Core().with_sync_replica()
    core.submit(1, create(b"pending"))
    given(core)
    core.submit(2, create(b"late"))
    assert [type(r) for r in core.replies()] == [res.InactiveCopy]


def test_nobody_stands_for_what_another_site_is_to_serve() -> None:
    core = Core().loaded()
    given(core)
    core.step(ev.Ticked(), after_ms=60_000)
    assert core.is_now(Role.FOLLOWING)
    given(core, "")
    core.step(ev.Ticked(), after_ms=60_000)
    assert not core.is_now(Role.FOLLOWING)


def test_what_cannot_be_drained_is_tried_again() -> None:
    core = Core().with_sync_replica()
    core.submit(1, create(b"pending"))
    given(core)
    core.step(ev.Ticked(), after_ms=core.p.state.settings.drain_ms)
    assert core.is_now(Role.ACTIVE)
    core.step(ev.Ticked())
    assert core.is_now(Role.DRAINING)


def test_a_lost_answer_of_leaving_the_znode_is_made_up_for() -> None:
    """Somebody else changed it in that very moment: nobody else would ever take this node's name out."""
    core = Core().with_sync_replica()
    given(core)
    core.acknowledge()
    lost = core.one(fx.SetTable)
    core.step(ev.CasDone(lost.round, ev.Cas.CONFLICT))
    core.step(ev.TableSeen(core.p.state.version + 1, core.p.state.table))
    core.step(ev.Ticked(), after_ms=1_000)
    assert core.one(fx.SetTable).table.active is None
    core.step(ev.Ticked())
    assert not core.of(fx.SetTable)


def test_an_election_goes_above_what_was_mirrored_whatever_the_own_fence_was() -> None:
    """Positions grow over both sites (decision 32): the other one's epoch 7 was mirrored, the own ones go to 2."""
    core = Core()
    core.p.state.chain.state = msgspec.structs.replace(core.p.state.chain.state, epoch=epoch(2), led=7)
    core.claiming()
    assert core.p.campaign.epoch.number == 8


def test_an_epoch_below_what_was_mirrored_since_it_was_claimed_is_not_opened() -> None:
    core = Core()
    core.p.state.chain.state = msgspec.structs.replace(core.p.state.chain.state, owner="east")
    core.starting()
    started = core.one(fx.Append).data
    core.land(Script().opened(EpochId(core.p.campaign.epoch.number + 3, "east", 1)))
    core.land(started)
    assert core.is_now(Role.FOLLOWING)
    assert not core.of(fx.Append)
