"""A copy that stopped, on a node that lives: nobody waits for it for ever, and it does not sit on the partition."""

from __future__ import annotations

import pytest

from halog.core import events as ev
from halog.core.roles import Role
from halog.events import REMOVED
from tests.unit.core.kit import SETTINGS, B, Core

TICK = 20


def wait(core: Core, ms: int) -> list[ev.Effect]:
    effects: list[ev.Effect] = []
    for _ in range(ms // TICK):
        effects += core.step(ev.Ticked(), after_ms=TICK)
    return effects


@pytest.mark.feature("R4")
def test_a_sync_replica_that_lives_but_acknowledges_nothing_leaves_the_node_list_and_commits_go_on() -> None:
    core = Core().with_sync_replica()
    core.submit(1)
    core.acknowledge()
    assert not core.replies()
    effects = []
    for _ in range(SETTINGS.silent_ms // SETTINGS.ack_every_ms + 2):
        core.acked_by(B, 1)  # it lives, and repeats what it has: it cannot reach the log, say
        effects += wait(core, SETTINGS.ack_every_ms)
    (shrink,) = [e for e in effects if isinstance(e, ev.SetTable)]
    assert shrink.table.replicas == ()
    assert not [e for e in effects if isinstance(e, ev.Reply)]  # S2
    core.step(ev.CasDone(shrink.round, ev.Cas.OK, 3))
    assert core.replies() == [ev.Happened(2)]
    (told,) = core.of(ev.Tell)
    assert (told.kind, told.node) == (REMOVED, "B")
    assert "acknowledged nothing new" in told.cause
    core.acked_by(B, 2)
    assert core.one(ev.SetTable).table.replicas[0].member == B


@pytest.mark.feature("R4")
def test_a_replica_that_repeats_its_acknowledgement_stays() -> None:
    core = Core().with_sync_replica()
    for _ in range(3 * SETTINGS.silent_ms // SETTINGS.ack_every_ms):
        assert not wait(core, SETTINGS.ack_every_ms)
        core.acked_by(B, 1)


@pytest.mark.feature("R4")
def test_nobody_fell_silent_while_this_process_was_stopped() -> None:
    core = Core().with_sync_replica()
    assert not core.step(ev.Ticked(), after_ms=10 * SETTINGS.silent_ms)
    assert not wait(core, SETTINGS.ack_every_ms)


@pytest.mark.feature("P10")
def test_an_active_copy_that_is_lost_says_so_in_the_znode_until_it_is_heard() -> None:
    core = Core().with_sync_replica()
    core.step(ev.LogLost("the disk is full"))
    assert core.role is Role.FAILED
    first = core.one(ev.SetTable)
    assert first.table.active is None
    assert first.table.epoch == core.p.table.epoch
    core.step(ev.CasDone(first.round, ev.Cas.UNKNOWN))
    (again, *_) = [e for e in wait(core, 2 * SETTINGS.retry_ms) if isinstance(e, ev.SetTable)]
    core.step(ev.TableSeen(again.version + 1, again.table))
    assert not wait(core, 2 * SETTINGS.retry_ms)
