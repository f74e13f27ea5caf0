"""Commits that do not wait for the log (R6: local NO_SYNC), as the node sees them that writes them."""

from __future__ import annotations

import msgspec
import pytest

from halog.core import effects as fx, events as ev, results as res
from halog.core.commit.push import AGAIN_MS, AGAIN_RECORDS
from halog.core.durability import Durability
from halog.core.ids import Member, Position
from halog.core.log import records
from halog.core.roles import Role
from halog.core.settings import Sync
from halog.core.table.table import SYNC, Replica
from tests.unit.core.kit import SETTINGS, B, C, Core, create, tx, update

pytestmark = pytest.mark.feature("R6", "P1")

NO_SYNC = msgspec.structs.replace(SETTINGS, local_sync=Sync.NO_SYNC)
B_SYNC = (Replica("B", 2, SYNC),)


def leader() -> Core:
    """A leads epoch 1 and waits for B, which holds what it is pushed."""
    return Core(settings=NO_SYNC).with_sync_replica()


def held_by(core: Core, member: Member, lsn: int) -> list[fx.Effect]:
    return core.step(ev.ReplicaAck(member, core.p.state.chain.state.epoch, lsn, applied=False))


def acknowledged(*, commits: int = 1) -> Core:
    """So many were, and the log has none of them."""
    core = leader()
    for n in range(1, commits + 1):
        core.submit(n, create(b"k%d" % n))
        held_by(core, B, 1 + n)
        assert core.replies() == [res.Success(1 + n)]
    return core


# --- answered ---


def pushed_again(core: Core, *, after_ms: int = AGAIN_MS) -> list[int]:
    core.step(ev.Ticked(), after_ms=after_ms)
    return [records.decode(push.data).header.lsn for push in core.of(fx.Push) if push.data]


def test_what_a_replica_lacks_is_pushed_again_while_the_log_stands_still() -> None:
    """The push came too early, or was dropped, and the log does not bring it."""
    core = leader()
    core.submit(1, create(b"k1"))
    first = core.one(fx.Push)
    core.submit(2, create(b"k2"))
    assert pushed_again(core, after_ms=AGAIN_MS - 1) == []
    assert pushed_again(core, after_ms=1) == [2, 3]
    assert core.of(fx.Push)[0] == first
    assert pushed_again(core, after_ms=AGAIN_MS - 1) == []
    held_by(core, B, 2)
    assert core.replies() == [res.Success(2)]
    assert pushed_again(core) == [3]
    held_by(core, B, 3)
    assert pushed_again(core) == []


def test_it_is_pushed_again_however_much_was_committed_meanwhile() -> None:
    """What came behind it does not make a replica one that is far behind the log."""
    core = leader()
    core.submit(1, create(b"k1"))
    for n in range(2, core.p.state.settings.ready_lag + 40):
        core.submit(n, create(b"k%d" % n))
    lacks = 2
    for _ in range(3):
        again = pushed_again(core)
        assert again == list(range(lacks, lacks + AGAIN_RECORDS))
        held_by(core, B, again[-1])
        lacks = again[-1] + 1
    assert core.p.visible == lacks - 1


def test_nothing_is_pushed_again_to_one_that_is_far_behind_the_log() -> None:
    """The log brings it what it lacks, and is far from done with that."""
    core = leader()
    for n in range(1, core.p.state.settings.ready_lag + 2):
        core.submit(n, create(b"k%d" % n))
        core.acknowledge()
    core.submit(5_000, create(b"other"))
    assert pushed_again(core) == []


def test_nothing_is_pushed_again_that_waits_for_the_log_anyway() -> None:
    core = Core().with_sync_replica()
    core.submit(1)
    assert pushed_again(core) == []
    core.submit(2, create(b"k2"))
    core.step(ev.Submitted(9, tx(3), (), (create(b"k3"),), {}, durability=Durability(local="NO_SYNC")))
    assert pushed_again(core) == [2, 3, 4], "one does not, and what comes before it is pushed too"


def test_shown_then_answered_and_only_then_in_the_log() -> None:
    core = leader()
    core.submit(1)
    assert core.replies() == []
    held_by(core, B, 2)
    assert [type(e) for e in core.effects] == [fx.Show, fx.Reply]
    assert core.p.visible == 2
    assert core.p.state.chain.state.lsn == 1
    core.acknowledge()
    assert core.one(fx.Apply).state.lsn == 2
    assert core.replies() == []


def test_an_append_is_patient_where_nobody_waits_for_the_log() -> None:
    """Without a replica to have it, it is waited for."""
    core = leader()
    core.submit(1)
    assert core.one(fx.Append).patience_ms
    alone = Core(settings=NO_SYNC).active()
    alone.submit(1)
    assert not alone.one(fx.Append).patience_ms
    stored = Core(settings=msgspec.structs.replace(NO_SYNC, remote_sync=Sync.WRITE_NO_SYNC)).with_sync_replica()
    stored.submit(1)
    assert stored.one(fx.Append).patience_ms, "the replica stores what it is pushed"


def test_the_log_may_be_faster() -> None:
    core = leader()
    core.submit(1)
    core.acknowledge()
    assert core.of(fx.Apply)
    assert core.replies() == []
    held_by(core, B, 2)
    assert core.replies() == [res.Success(2)]
    assert not core.of(fx.Show)


def test_several_at_once_are_shown_and_answered_in_order() -> None:
    core = leader()
    for n in (1, 2, 3):
        core.submit(n, create(b"k%d" % n))
    held_by(core, B, 3)
    assert [r.header.lsn for r in core.one(fx.Show).records] == [2, 3]
    assert core.replies() == [res.Success(2), res.Success(3)]
    held_by(core, B, 4)
    assert core.replies() == [res.Success(4)]


def test_a_commit_on_top_of_one_that_the_log_lacks() -> None:
    core = acknowledged()
    core.submit(2, update(b"k1", 2), found={b"k1": 2})
    held_by(core, B, 3)
    assert core.replies() == [res.Success(3)]


def test_a_repeated_commit_joins_the_first_until_that_is_answered() -> None:
    core = leader()
    core.submit(1)
    core.submit(1)
    assert not core.of(fx.Append)
    held_by(core, B, 2)
    assert core.replies() == [res.Success(2), res.Success(2)]
    core.submit(1)
    assert core.replies() == [res.Success(2)]
    core.step(ev.Asked(99, tx(1), 1))
    assert core.replies() == [res.Success(2)]
    core.acknowledge()
    core.submit(1)
    assert core.replies() == [res.Success(2)]


def test_with_nobody_to_wait_for_the_log_is_waited_for() -> None:
    core = Core(settings=NO_SYNC).active()
    core.submit(1)
    assert core.replies() == []
    core.acknowledge()
    assert core.replies() == [res.Success(2)]


def test_the_log_is_waited_for_while_the_znode_names_nobody() -> None:
    """B is waited for and confirms; until the set that names it went through, an election would not miss it."""
    core = Core(settings=NO_SYNC).active()
    core.acked_by(B, 1)
    growth = core.one(fx.SetTable)
    core.submit(1)
    held_by(core, B, 2)
    assert core.replies() == []
    core.step(ev.CasDone(growth.round, ev.Cas.OK, 2))
    assert core.replies() == [res.Success(2)]


def test_whoever_holds_what_the_log_lacks_stays_in_the_set() -> None:
    """B dies: it is let go once the log has it all, and only then commits go on without it."""
    core = acknowledged()
    core.alive(C)
    assert not core.of(fx.SetTable)
    core.step(ev.Ticked(), after_ms=10)
    assert not core.of(fx.SetTable)
    core.acknowledge()
    core.step(ev.Ticked(), after_ms=10)
    assert core.one(fx.SetTable).table.sync_set == frozenset()


@pytest.mark.feature("R6", "P12")
def test_who_is_to_leave_the_set_leaves_it_however_busy_the_partition_is() -> None:
    """Commits wait for the log until it has what was acknowledged: among commits that never pause it would wait on."""
    core = acknowledged()
    core.step(ev.TableSeen(core.p.state.version + 1, msgspec.structs.replace(core.p.state.table, sync_replicas=0)))
    core.step(ev.Ticked(), after_ms=10)
    core.step(ev.Ticked(), after_ms=10)
    assert not core.of(fx.SetTable)
    core.submit(2, create(b"other"))
    assert not core.one(fx.Append).patience_ms
    held_by(core, B, 3)
    assert core.replies() == [], "it waits for the log"
    core.step(ev.Appended(3, 2))
    core.step(ev.Ticked(), after_ms=10)
    assert core.one(fx.SetTable).table.sync_set == frozenset()


# --- the epoch ends ---


def ended(*, commits: int = 2) -> Core:
    core = acknowledged(commits=commits)
    core.step(ev.AppendFailed(core.p.state.tag, "timed out"))
    return core


def test_who_gives_up_keeps_what_was_in_flight_and_names_itself_a_holder() -> None:
    core = ended()
    released = core.one(fx.SetTable).table
    assert released.active is None
    assert released.replicas == (*B_SYNC, Replica("A", 1, SYNC))
    assert core.p.state.position == Position(1, 3)
    core.step(ev.PositionAsked("B", 7))
    told = core.one(fx.TellPosition)
    assert told.position == Position(1, 3)
    assert told.tail is not None
    assert [records.decode(data).header.lsn for data in told.tail] == [2, 3]


def test_what_was_answered_is_not_called_unknown() -> None:
    core = acknowledged()
    core.submit(2, create(b"k2"))
    core.step(ev.AppendFailed(core.p.state.tag, "timed out"))
    assert core.replies() == [res.Unknown("timed out")]


def test_one_that_failed_for_good_is_asked_by_nobody_and_leaves_what_it_held_on_its_disk() -> None:
    """Its store may be all that has it: the log lost its end, and the replicas stop likewise."""
    core = acknowledged(commits=2)
    core.step(ev.LogLost("gone"))
    assert core.one(fx.SetTable).table.replicas == (*B_SYNC, Replica("A", 1, SYNC)), "until it is started anew"
    left = [records.decode(data) for data in core.one(fx.KeepTail).records]
    assert [(r.header.lsn, r.header.tx) for r in left] == [(2, tx(1)), (3, tx(2))]
    core.step(ev.PositionAsked("B", 7))
    told = core.one(fx.TellPosition)
    assert (told.eligible, told.tail) == (False, None)


def test_one_that_failed_with_nothing_in_flight_leaves_nothing() -> None:
    core = acknowledged()
    core.acknowledge()
    core.step(ev.LogLost("gone"))
    assert not core.of(fx.KeepTail)


def test_who_leads_tells_no_tail() -> None:
    """It may acknowledge more a moment later."""
    core = acknowledged()
    core.step(ev.PositionAsked("C", 7))
    assert core.one(fx.TellPosition).tail is None


def won() -> Core:
    """A gave up, and wins again with the others' voices; `EpochStarted` is on its way."""
    core = ended()
    core.step(ev.TableSeen(core.p.state.version + 1, core.one(fx.SetTable).table))
    core.step(ev.Ticked(), after_ms=NO_SYNC.retry_ms)
    core.step(ev.PositionTold("B", core.p.campaign.round, Position(1, 1), True, 2, ()))
    core.step(ev.PositionTold("C", core.p.campaign.round, Position(1, 1), True, 3, ()))
    core.cas_ok()
    assert core.role is Role.STARTING
    return core


def again() -> Core:
    """And has read it."""
    core = won()
    core.land()
    assert core.role is Role.OPENING
    return core


def test_it_is_appended_again_with_the_same_lsn_and_id_and_the_epoch_opens_behind_it() -> None:
    core = again()
    appended = [e.data for e in core.of(fx.Append)]
    for number, data in enumerate(appended, 1):
        record = records.decode(data)
        assert isinstance(record, records.Commit)
        assert (record.header.epoch.number, record.header.lsn, record.header.tx) == (2, 1 + number, tx(number))
        assert record.origin is not None
        assert (record.origin.epoch.number, record.origin.lsn) == (1, 1 + number)
    core.land(appended[0])
    assert not core.of(fx.Append), "the log does not show all of it"
    core.land(appended[1])
    opened = records.decode(core.one(fx.Append).data)
    assert isinstance(opened, records.EpochOpened)
    assert opened.header.lsn == 4
    core.land()
    assert core.is_now(Role.ACTIVE)
    assert not core.p.state.tail.run
    held_by(core, B, 4)
    core.submit(1, create(b"k1"))
    assert core.replies() == [res.Success(2)], "the same id again"


def test_the_first_of_them_that_fails_ends_the_epoch_and_keeps_them_all() -> None:
    core = again()
    first = core.of(fx.Append)[0].tag
    core.step(ev.AppendFailed(first, "refused"))
    assert core.of(fx.EndSession)
    assert core.is_now(Role.FOLLOWING)
    assert [r.header.lsn for r in core.p.state.tail.run] == [2, 3]


def test_a_log_that_lost_its_end_cannot_take_what_is_behind_it() -> None:
    """The tail is to follow lsn 2, the log ends at lsn 1: appended there it would be another history."""
    core = won()
    del core.p.state.tail.run[0]
    core.land()
    assert core.role is Role.FAILED
