"""What replicas show where commits do not wait for the log: what their active says that it shows (W7), of what they
hold. An index is a fact, no promise: it travels with pushes, and alone only where none follows and the log is late."""

from __future__ import annotations

import msgspec
import pytest

from halog.core import effects as fx, events as ev
from halog.core.roles import Role
from halog.core.settings import Sync
from halog.core.table.table import SYNC, Replica
from tests.unit.core.commit.test_unlogged import acknowledged, held_by, leader
from tests.unit.core.kit import SETTINGS, A, B, C, Core, Script, create, epoch, replica as logged_replica, table

pytestmark = pytest.mark.feature("R6", "R1")

NO_SYNC = msgspec.structs.replace(SETTINGS, local_sync=Sync.NO_SYNC)


def replica() -> tuple[Core, Script]:
    core, script = logged_replica()
    core.p.state.settings = NO_SYNC
    return core, script


def pushed(core: Core, *data: bytes, shown: int = 0, of: int = 1) -> list[int]:
    """The lsns that this made visible."""
    core.step(ev.Pushed(A, epoch(of), data, shown))
    return lsns(core)


def lsns(core: Core) -> list[int]:
    return [r.header.lsn for e in core.of(fx.Show) for r in e.records]


def three() -> tuple[Core, list[bytes]]:
    """B holds lsn 2 to 4, and shows 2 and 3 of them."""
    core, script = replica()
    data = [script.commit(epoch(1), n) for n in (1, 2, 3)]
    assert pushed(core, *data, shown=3) == [2, 3]
    return core, data


# --- a replica ---


def test_what_the_active_shows_is_shown_behind_the_acknowledgement() -> None:
    """A commit of the active waits for that one."""
    core, script = replica()
    assert pushed(core, script.commit(epoch(1), 1)) == []
    assert core.p.visible == 1
    assert pushed(core, script.commit(epoch(1), 2), shown=2) == [2]
    assert [type(e) for e in core.effects] == [fx.SendAck, fx.Show]
    assert (core.p.visible, core.p.state.chain.state.lsn) == (2, 1)
    assert not core.of(fx.Apply)


def test_an_index_without_a_record_shows_what_is_held_and_each_once() -> None:
    core, _ = three()
    assert pushed(core, shown=3) == []
    assert pushed(core, shown=4) == [4]
    assert [type(e) for e in core.effects] == [fx.Show]
    assert pushed(core, shown=2) == [], "an older one that comes late"
    assert core.p.visible == 4


def test_of_what_it_does_not_hold_it_shows_nothing() -> None:
    core, data = three()
    assert pushed(core, shown=9) == [4]
    assert core.p.visible == 4
    core.land(data[0])
    assert core.p.visible == 4


def test_what_is_behind_a_hole_is_shown_once_the_log_has_filled_it() -> None:
    core, script = replica()
    data = [script.commit(epoch(1), n) for n in (1, 2)]
    assert pushed(core, data[1], shown=3) == []
    core.land(data[0])
    core.step(ev.Taken())
    assert lsns(core) == [3]
    assert [type(e) for e in core.effects if not isinstance(e, fx.Apply)] == [fx.SendAck, fx.Show]


@pytest.mark.parametrize("of", [0, 2])
def test_the_index_of_another_epoch_says_nothing(of: int) -> None:
    core, _ = three()
    assert pushed(core, shown=4, of=of) == []


def test_whoever_is_not_active_says_nothing() -> None:
    core, _ = three()
    core.step(ev.Pushed(C, epoch(1), (), 4))
    assert not lsns(core)


@pytest.mark.feature("Q2")
def test_who_told_its_position_shows_what_it_held_then_and_holds_no_more() -> None:
    """E1 is about what is held from then on. What the active says that it shows was acknowledged before, or is in the
    log: true whoever stands for election."""
    core, script = replica()
    data = [script.commit(epoch(1), n) for n in (1, 2)]
    pushed(core, data[0])
    core.step(ev.PositionAsked("C", 1))
    assert pushed(core, data[1], shown=3) == [2]
    assert not core.of(fx.SendAck)


def test_it_stays_visible_until_an_epoch_opens_without_it() -> None:
    """Whoever leads next appends it again, or was told that it may be lost; another epoch's start says neither."""
    core, _ = three()
    after = Script(1, core.p.state.chain.state.hash)
    core.land(after.started(epoch(2)))
    assert not core.p.state.held.run
    assert core.p.visible == 3
    core.land(after.opened(epoch(2)))
    assert core.p.visible == core.p.state.chain.state.lsn == 2


def test_it_stays_visible_where_the_epoch_is_void() -> None:
    core, script = replica()
    data = [script.commit(epoch(1), n) for n in (1, 2)]
    pushed(core, *data, shown=3)
    core.land(Script(9).commit(epoch(1), 7))
    assert core.p.state.chain.state.void
    assert core.p.visible == 3
    assert pushed(core, shown=3) == []


def test_what_the_log_brings_is_shown_no_more_before_it() -> None:
    core, data = three()
    for one in data:
        core.land(one)
    core.step(ev.Taken())
    assert (core.p.visible, core.p.state.chain.state.lsn) == (4, 4)
    assert pushed(core, shown=4) == []


def test_a_replica_that_becomes_active_shows_it_until_its_epoch_has_opened() -> None:
    core, _ = three()
    core.step(ev.AliveChanged(frozenset({B, C})))
    core.step(ev.PositionTold("C", core.p.campaign.round, core.p.state.position, False, 3, ()))
    core.cas_ok()
    seen = [core.p.visible]
    core.land()
    again = [e.data for e in core.of(fx.Append)]
    seen.append(core.p.visible)
    for data in again:
        core.land(data)
        seen.append(core.p.visible)
    core.land()
    assert core.is_now(Role.ACTIVE)
    assert seen == [3, 3, 3, 3, 4]
    assert core.p.visible == 5


# --- the active ---


def told(core: Core) -> list[tuple[bool, int]]:
    """Of each push: has it a record, and what index."""
    return [(bool(e.data), e.shown) for e in core.of(fx.Push)]


def test_a_push_says_what_the_active_shows_by_then_not_what_it_brings() -> None:
    core = leader()
    core.submit(1)
    assert told(core) == [(True, 1)]
    core.submit(2, create(b"other"))
    assert told(core) == [(True, 1)]
    held_by(core, B, 2)
    core.submit(3, create(b"third"))
    assert told(core) == [(True, 2)]


def test_what_no_push_follows_is_told_once_by_an_empty_one() -> None:
    core = acknowledged()
    assert not core.of(fx.Push)
    core.step(ev.Ticked(), after_ms=20)
    assert told(core) == [(False, 2)]
    assert core.one(fx.Push).to == ("B",)
    core.step(ev.Ticked(), after_ms=20)
    assert not core.of(fx.Push)


def test_what_the_log_has_by_then_needs_no_telling() -> None:
    core = acknowledged()
    core.acknowledge()
    core.step(ev.Ticked(), after_ms=20)
    assert not core.of(fx.Push)


def test_nobody_is_told_who_is_too_far_behind_to_be_pushed_to() -> None:
    core = acknowledged()
    core.step(ev.AliveChanged(frozenset({A, C})))
    core.step(ev.Ticked(), after_ms=20)
    assert not core.of(fx.Push)


def test_where_commits_wait_for_the_log_no_index_is_told() -> None:
    core = Core().with_sync_replica()
    core.submit(1)
    assert told(core) == [(True, 0)]
    core.step(ev.ReplicaAck(B, core.p.state.chain.state.epoch, 2, applied=False))
    core.step(ev.Ticked(), after_ms=20)
    assert not core.of(fx.Push)


def test_who_gives_up_shows_what_it_showed() -> None:
    """Until the next epoch opens; a copy's overlay forgets nothing before."""
    core = acknowledged(commits=2)
    core.step(ev.AppendFailed(core.p.state.tag, "timed out"))
    assert core.p.leading is None
    assert (core.p.visible, core.p.state.chain.state.lsn) == (3, 1)


def test_a_table_that_names_another_epoch_silences_the_old_active() -> None:
    core, _ = three()
    next_ = table(epoch=epoch(2), active=C, replicas=(Replica("B", 2, SYNC),))
    core.step(ev.TableSeen(2, next_))
    assert pushed(core, shown=4) == []
