"""What a replica stores before it acknowledges it, and for whom its store stands (R6: remote above a local NO_SYNC)."""

from __future__ import annotations

import msgspec
import pytest

from halog.core import effects as fx, events as ev
from halog.core.ids import Member
from halog.core.replica.pushed_store import KEPT, is_holder, last_run
from halog.core.settings import Settings, Sync
from halog.core.table.table import SYNC, Replica
from tests.unit.core.kit import SETTINGS, A, B, Core, Script, epoch, table
from tests.unit.core.table.test_holders import follower

pytestmark = pytest.mark.feature("R6", "P1")

WRITTEN = msgspec.structs.replace(SETTINGS, local_sync=Sync.NO_SYNC, remote_sync=Sync.WRITE_NO_SYNC)
FLUSHED = msgspec.structs.replace(WRITTEN, remote_sync=Sync.SYNC)


def pushed(core: Core, *datas: bytes) -> None:
    core.step(ev.Pushed(A, epoch(1), datas))


@pytest.mark.parametrize(
    ("local", "remote", "pushes", "stores"),
    [
        (Sync.NO_SYNC, Sync.NO_SYNC, True, False),
        (Sync.NO_SYNC, Sync.WRITE_NO_SYNC, True, True),
        (Sync.NO_SYNC, Sync.SYNC, True, True),
        (Sync.SYNC, Sync.NO_SYNC, True, False),
        (Sync.WRITE_NO_SYNC, Sync.WRITE_NO_SYNC, False, False),
        (Sync.SYNC, Sync.SYNC, False, False),
    ],
)
def test_which_policies_push_and_which_store(local: Sync, remote: Sync, pushes: bool, stores: bool) -> None:
    settings = Settings(local_sync=local, remote_sync=remote)
    assert (settings.pushes, settings.stores_pushed) == (pushes, stores)


def test_it_is_stored_and_then_told() -> None:
    core, script = follower(settings=WRITTEN)
    one, two = script.commit(epoch(1), 1), script.commit(epoch(1), 2)
    pushed(core, one)
    assert core.effects == [
        fx.StorePushed(epoch(1), 2, (one,), anew=True, flush=False),
        fx.SendAck("A", epoch(1), 2, applied=False),
    ]
    pushed(core, two)
    assert core.one(fx.StorePushed) == fx.StorePushed(epoch(1), 3, (two,), anew=False, flush=False)


def test_its_first_word_of_all_is_that_the_store_stands_for_it() -> None:
    core, script = Core(B, settings=WRITTEN), Script()
    core.loaded()
    core.alive(A)
    core.step(ev.TableSeen(1, table(epoch=epoch(1), active=A, replicas=(Replica("B", 2, SYNC),))))
    core.land(script.started(epoch(1)))
    core.land(script.opened(epoch(1)))
    core.step(ev.Taken())
    assert core.effects == [fx.Stand((2,), False), fx.Save(False), fx.SendAck("A", epoch(1), 1)]
    core.land(script.commit(epoch(1), 1))
    core.step(ev.Taken())
    assert not core.of(fx.Stand)


def test_with_sync_it_is_told_once_the_disk_has_it_and_those_that_wait_share_a_flush() -> None:
    core, script = follower(settings=FLUSHED)
    datas = [script.commit(epoch(1), n) for n in (1, 2, 3)]
    pushed(core, datas[0])
    assert core.effects == [fx.StorePushed(epoch(1), 2, (datas[0],), anew=True, flush=True)]
    pushed(core, datas[1])
    pushed(core, datas[2])
    assert core.effects == []
    core.step(ev.PushedFlushed(epoch(1), 2))
    assert core.effects == [
        fx.StorePushed(epoch(1), 4, tuple(datas[1:]), anew=False, flush=True),
        fx.SendAck("A", epoch(1), 2, applied=False),
    ]
    core.step(ev.PushedFlushed(epoch(1), 4))
    assert core.one(fx.SendAck).lsn == 4


def test_what_the_log_brought_meanwhile_is_not_told_as_held() -> None:
    core, script = follower(settings=FLUSHED)
    data = script.commit(epoch(1), 1)
    pushed(core, data)
    core.land(data)
    core.step(ev.PushedFlushed(epoch(1), 2))
    assert not core.of(fx.SendAck)


def test_a_flush_that_ends_after_its_epoch_says_nothing_of_the_next_one() -> None:
    core, script = follower(settings=FLUSHED)
    pushed(core, script.commit(epoch(1), 1), script.commit(epoch(1), 2))
    opens = Script()
    opens.opened(epoch(1))
    core.step(ev.TableSeen(2, table(epoch=epoch(2), active=A, replicas=(Replica("B", 2, SYNC),))))
    core.land(opens.started(epoch(2)))
    core.land(opens.opened(epoch(2)))
    core.step(ev.Taken())
    data = opens.commit(epoch(2), 3)
    core.step(ev.Pushed(A, epoch(2), (data,)))
    assert core.one(fx.StorePushed) == fx.StorePushed(epoch(2), 3, (data,), anew=True, flush=True)
    core.step(ev.PushedFlushed(epoch(1), 3))
    assert not core.of(fx.SendAck)
    core.step(ev.PushedFlushed(epoch(2), 3))
    assert core.one(fx.SendAck).lsn == 3


def test_who_told_its_position_stores_no_more_of_that_epoch() -> None:
    core, script = follower(settings=WRITTEN)
    first = script.commit(epoch(1), 1)
    core.step(ev.PositionAsked("C", 1))
    assert core.one(fx.TellPosition).stood == (2,)
    pushed(core, first)
    assert core.effects == []


def test_a_store_stands_for_the_last_few() -> None:
    core, _ = follower(settings=WRITTEN)
    core.p.state.tail.stood = tuple(range(100, 100 + KEPT))
    core.p.following.pushed_store.stand()
    assert core.p.state.tail.stood == (*range(101, 100 + KEPT), 2)


def test_a_copy_that_fails_names_itself_if_its_store_stands_for_it() -> None:
    """It may have acknowledged what the log lost, and brings it along when it is started anew."""
    core, _ = follower(settings=WRITTEN)
    core.step(ev.TableSeen(2, table(epoch=epoch(2), active=B, replicas=(Replica("A", 1, SYNC),))))
    core.step(ev.LogLost("its log has lost its end"))
    assert Replica("B", 2, SYNC) in core.one(fx.SetTable).table.replicas


# --- what is read back ---


def test_all_of_one_run_is_read_back() -> None:
    script = Script()
    run = [script.commit(epoch(1), n) for n in (1, 2, 3)]
    assert last_run(run) == run
    assert last_run([]) == []


def test_what_stands_before_a_hole_the_log_has() -> None:
    script = Script()
    one, _, three, four = (script.commit(epoch(1), n) for n in (1, 2, 3, 4))
    assert last_run([one, three, four]) == [three, four]


def test_what_an_older_epoch_left_behind_is_passed_over() -> None:
    """Epoch 2 goes on behind lsn 1 without 2 and 3 of epoch 1; its own 2 is stored in the place of that."""
    old, new = Script(), Script()
    one = old.commit(epoch(1), 1)
    new.lsn, new.prev = old.lsn, old.prev
    old.commit(epoch(1), 2)
    three = old.commit(epoch(1), 3)
    two = new.commit(epoch(2), 4)
    assert last_run([one, two, three]) == [two]


def test_a_holder_is_one_by_any_of_its_incarnations() -> None:
    holders = frozenset({Member("A", 1), Member("B", 2)})
    assert is_holder("B", (7, 2), holders)
    assert not is_holder("B", (7, 1), holders)
    assert not is_holder("C", (), holders)
