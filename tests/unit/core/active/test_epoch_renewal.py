"""An active node whose replicas hold nothing of its epoch any more begins another one, where that helps (R6, E1)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from halog.core import effects as fx, events as ev
from halog.core.active.epoch_renewal import MOST_PATIENCE, EpochRenewal
from halog.core.ids import Member
from halog.core.log.records import HandedOver, decode
from halog.core.roles import Role
from halog.core.settings import Sync
from halog.core.table.tell import Tell
from tests.unit.core.kit import SETTINGS, A, B, C, Core, replica

STAY = SETTINGS.drain_ms
UNLOGGED = msgspec.structs.replace(SETTINGS, local_sync=Sync.NO_SYNC)


def leader(**changes: Any) -> Core:
    """A is active with B, for commits that do not wait for the log."""
    return Core(settings=msgspec.structs.replace(UNLOGGED, **changes)).with_sync_replica()


def sealed(core: Core, member: Member = B) -> None:
    """It has told a candidate its position."""
    epoch = core.p.state.table.epoch
    core.step(ev.ReplicaAck(member, epoch, 1, sealed=True))


def lived(core: Core, ms: int) -> None:
    """Time in which replicas say how far they are."""
    for _ in range(ms // 100):
        core.step(ev.ReplicaAck(B, core.p.state.table.epoch, 1))
        core.step(ev.ReplicaAck(C, core.p.state.table.epoch, 1))
        core.step(ev.Ticked(), after_ms=100)
        if core.role is not Role.ACTIVE:
            return


def renewed(core: Core) -> bool:
    """Does it end its epoch in favour of itself?"""
    last = [decode(e.data) for e in core.of(fx.Append)]
    return bool(last) and isinstance(last[-1], HandedOver) and last[-1].to == "A"


@pytest.mark.feature("R6")
def test_it_ends_its_epoch_in_favour_of_itself_and_says_why() -> None:
    core = leader()
    sealed(core)
    lived(core, STAY + 200)
    assert renewed(core)
    assert core.role is Role.HANDING
    (told,) = core.of(Tell)
    assert told.cause == "B took this node for down, and holds nothing that is pushed in epoch 1 any more"
    assert told.more == {"to": "A"}
    core.acknowledge()
    assert core.is_now(Role.CLAIMING)
    assert core.one(fx.SetTable).table.active == A


@pytest.mark.feature("R6")
def test_a_young_epoch_goes_on() -> None:
    core = leader()
    sealed(core)
    lived(core, STAY - 200)
    assert core.role is Role.ACTIVE


@pytest.mark.feature("R6")
@pytest.mark.parametrize("changes", [{"local_sync": Sync.WRITE_NO_SYNC}, {"local_sync": Sync.SYNC}])
def test_where_commits_wait_for_the_log_anyway_it_goes_on(changes: dict[str, Any]) -> None:
    core = leader(**changes)
    sealed(core)
    lived(core, 3 * STAY)
    assert core.role is Role.ACTIVE


@pytest.mark.feature("R6", "N4")
def test_while_the_log_stands_still_it_goes_on() -> None:
    """To end an epoch takes a record, and so does to begin one: till the log has both nobody would be active."""
    core = leader()
    sealed(core)
    core.submit(1)
    lived(core, STAY + 400)
    assert core.role is Role.ACTIVE
    core.acknowledge()
    core.acked_by(B, 2)
    lived(core, 200)
    assert renewed(core)


@pytest.mark.feature("R6")
def test_who_is_not_waited_for_is_no_reason() -> None:
    core = leader()
    sealed(core, C)
    lived(core, 3 * STAY)
    assert core.role is Role.ACTIVE


@pytest.mark.feature("R6")
def test_another_hand_over_goes_first() -> None:
    core = leader()
    sealed(core)
    core.submit(1)
    core.step(ev.HandOverAsked(7, "B"))
    assert core.role is Role.DRAINING
    lived(core, STAY + 200)
    assert not renewed(core)


@pytest.mark.feature("R6")
def test_what_is_sealed_again_and_again_is_given_up_ever_more_rarely_until_all_is_calm() -> None:
    state = leader().p.state
    renewal, lasted = EpochRenewal(state), []
    for _ in range(8):
        renewal.begins()
        renewal.heard(ev.ReplicaAck(B, state.table.epoch, 1, sealed=True))
        begun = state.now
        while not renewal.due({B}):
            state.now += STAY
        lasted.append((state.now - begun) // STAY)
    assert lasted == [1, 2, 4, 8, 16, 32, 64, 64]
    renewal.begins()
    state.now += 2 * MOST_PATIENCE * STAY
    assert not renewal.due({B})
    renewal.heard(ev.ReplicaAck(B, state.table.epoch, 1, sealed=True))
    assert renewal.due({B})


@pytest.mark.feature("R6")
def test_a_replica_that_told_its_position_says_so_with_what_it_has_read() -> None:
    core, script = replica()
    core.step(ev.PositionAsked("C", 1))
    core.offset += 1
    core.step(ev.EntriesRead([(core.p.state.next_offset, script.commit(core.p.state.chain.state.epoch, 1))]))
    core.step(ev.Ticked(), after_ms=SETTINGS.async_ack_ms)
    assert core.one(fx.SendAck).sealed
