"""A transaction that asks for less than its policy, or for more (R6), as the active node and its replicas see it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from halog.core import early, events as ev, records
from halog.core.durability import Durability, checked, why_not
from halog.core.ids import Member
from halog.core.roles import Role
from halog.core.settings import Settings, Sync
from halog.core.table import SYNC, Replica
from halog.errors import ConfigError
from tests.unit.core.kit import SETTINGS, A, B, C, Core, create, epoch, replica, table, tx, update

pytestmark = pytest.mark.feature("R6")

EARLY = Durability(local="NO_SYNC")
WRITTEN = msgspec.structs.replace(SETTINGS, local_sync=Sync.WRITE_NO_SYNC)


def flushed(replicas: int = 1) -> Durability:
    return Durability(remote="SYNC", replicas=replicas)


# --- what can be asked for ---


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"local": "FLUSHED"}, "local='FLUSHED'"),
        ({"remote": "NO_SYNC"}, "remote='NO_SYNC'"),
        ({"remote": "SYNC", "replicas": 0}, "replicas=0"),
        ({"remote": "SYNC", "replicas": True}, "replicas=True"),
        ({"replicas": 2}, "replicas=2"),
    ],
)
def test_what_cannot_be_asked_for_is_named(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Durability(**wrong)


def test_what_asks_for_nothing_is_the_policys() -> None:
    assert checked(None) is None
    assert checked(Durability()) is None
    with pytest.raises(ConfigError, match="a halog"):
        checked("NO_SYNC")


def test_it_comes_back_from_the_wire_as_it_was() -> None:
    for asked in (EARLY, flushed(2), Durability(local="WRITE_NO_SYNC")):
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(asked), type=Durability) == asked


@pytest.mark.parametrize("gives", Sync)
@pytest.mark.parametrize("asks", Sync)
def test_more_than_the_log_gives_is_refused_and_less_is_not(gives: Sync, asks: Sync) -> None:
    why = why_not(Durability(local=asks.name), table(), gives)  # type: ignore[arg-type]
    assert (why is not None) == (asks > gives)
    if why is not None:
        assert f'policy q with local_sync = "{gives.name}"' in why


def test_more_replicas_than_the_policy_has_are_refused() -> None:
    assert why_not(flushed(1), table(sync=1), Sync.SYNC) is None
    assert "policy q with sync_replicas = 1" in str(why_not(flushed(2), table(sync=1), Sync.SYNC))


# --- less ---


def leader(settings: Settings = SETTINGS) -> Core:
    """A leads epoch 1 and waits for B."""
    return Core(settings=settings).with_sync_replica()


def ask(core: Core, number: int, asked: Durability | None, **kw: Any) -> list[ev.Effect]:
    core.token += 1
    changes = kw.pop("changes", (create(b"k%d" % number),))
    reads, found = kw.pop("reads", ()), kw.pop("found", {})
    return core.step(ev.Submitted(core.token, tx(number), reads, changes, found, durability=asked))


def held_by(core: Core, member: Member, lsn: int) -> list[ev.Effect]:
    return core.step(ev.ReplicaAck(member, core.p.chain.state.epoch, lsn, applied=False))


def flushed_by(core: Core, member: Member, lsn: int) -> list[ev.Effect]:
    return core.step(ev.ReplicaAck(member, core.p.chain.state.epoch, lsn, flushed=lsn))


def test_it_is_shown_and_answered_once_the_replicas_hold_it() -> None:
    core = leader()
    ask(core, 1, EARLY)
    assert core.replies() == []
    held_by(core, B, 2)
    assert [type(e) for e in core.effects] == [ev.Show, ev.Reply]
    assert core.replies() == [ev.Happened(2)]
    assert core.p.visible == 2
    core.acknowledge()
    assert core.one(ev.Apply).state.lsn == 2
    assert core.replies() == []


def test_the_log_may_be_faster() -> None:
    core = leader()
    ask(core, 1, EARLY)
    core.acknowledge()
    held_by(core, B, 2)
    assert core.replies() == [ev.Happened(2)]
    assert not core.of(ev.Show)


def test_one_that_waits_for_the_log_is_waited_for_by_all_behind_it() -> None:
    core = leader()
    ask(core, 1, EARLY)
    first = core.p.tag
    ask(core, 2, None)
    ask(core, 3, EARLY)
    held_by(core, B, 4)
    assert core.replies() == [ev.Happened(2)]
    core.acknowledge(first)
    assert core.replies() == []
    core.acknowledge(first + 1)
    assert core.replies() == [ev.Happened(3), ev.Happened(4)]
    assert [r.header.lsn for r in core.one(ev.Show).records] == [4]


def test_with_nobody_to_hold_it_the_log_is_waited_for() -> None:
    core = Core().active()
    ask(core, 1, EARLY)
    assert core.replies() == []
    core.acknowledge()
    assert core.replies() == [ev.Happened(2)]


def test_it_is_not_answered_while_the_znode_names_nobody() -> None:
    core = Core().active()
    core.acked_by(B, 1)
    growth = core.one(ev.SetTable)
    ask(core, 1, EARLY)
    held_by(core, B, 2)
    assert core.replies() == []
    core.step(ev.CasDone(growth.round, ev.Cas.OK, 2))
    assert core.replies() == [ev.Happened(2)]


def test_a_dead_replica_leaves_though_the_log_lacks_what_it_held() -> None:
    """Here any copy that reads the log may win: nobody is missed who held it (R4)."""
    core = leader()
    ask(core, 1, EARLY)
    held_by(core, B, 2)
    core.alive(C)
    assert core.one(ev.SetTable).table.sync_set == frozenset()


def test_what_was_answered_is_not_unknown_when_the_epoch_ends_and_is_told_if_it_is_discarded() -> None:
    core = leader()
    ask(core, 1, EARLY)
    held_by(core, B, 2)
    ask(core, 2, EARLY)
    core.step(ev.AppendFailed(core.p.tag, "timed out"))
    assert core.replies() == [ev.Unknown("timed out")]
    assert not core.p.tail.run
    assert set(core.p.outcomes.awaited) == {tx(1), tx(2)}


def test_a_repeated_one_is_answered_and_one_that_waits_for_the_log_makes_both_wait() -> None:
    core = leader()
    ask(core, 1, EARLY)
    ask(core, 1, None)
    assert not core.of(ev.Append)
    held_by(core, B, 2)
    assert core.replies() == []
    core.acknowledge()
    assert core.replies() == [ev.Happened(2), ev.Happened(2)]
    ask(core, 2, EARLY)
    held_by(core, B, 3)
    ask(core, 2, None)
    assert core.replies() == [ev.Happened(3)], "it was answered already"


# --- versions of what may be lost ---


def test_what_was_read_before_the_log_had_it_is_judged_right_in_the_same_epoch() -> None:
    core = leader()
    ask(core, 1, EARLY)
    held_by(core, B, 2)
    read = early.early_version(1, 2)
    ask(core, 2, None, changes=(update(b"k1", read),), reads=[(b"k1", read)], found={b"k1": read})
    record = records.decode(core.one(ev.Append).data)
    assert isinstance(record, records.Commit)
    assert record.changes[0].replaced == 2
    core.acknowledge(core.p.tag - 1)
    core.acknowledge()
    assert core.p.chain.state.lsn == 3
    ask(core, 3, None, changes=(update(b"k1", early.early_version(1, 3)),), found={b"k1": 3})
    assert core.of(ev.Append)
    ask(core, 4, None, changes=(update(b"k1", read),), found={b"k1": 3})
    assert isinstance(core.replies()[0], ev.Conflicted)


def test_the_same_lsn_of_another_epoch_is_another_version() -> None:
    """What was lost may have had the lsn that another commit has now."""
    core = leader()
    lost = early.early_version(9, 2)
    ask(core, 1, None)
    core.acknowledge()
    for reads, changes in ([(b"k1", lost)], (create(b"x"),)), ((), (update(b"k1", lost),)):
        ask(core, 2, None, reads=reads, changes=changes, found={b"k1": 2})
        assert core.replies() == [ev.Conflicted(b"k1", lost, 2, 0)]


def test_versions_of_an_epoch_are_lsns_to_its_writer_only() -> None:
    version = early.early_version(3, 77)
    assert early.as_logged(version, 3) == early.lsn_of(version) == 77
    assert early.as_logged(version, 4) == version
    assert [early.as_logged(v, 3) for v in (-1, 0, 77)] == [-1, 0, 77]
    assert early.lsn_of(77) == 77


# --- more ---


def test_more_than_the_policy_gives_is_refused_and_nothing_is_done() -> None:
    core = leader(WRITTEN)
    for asked in (Durability(local="SYNC"), flushed(2)):
        ask(core, 1, asked)
        (refused,) = core.replies()
        assert isinstance(refused, ev.Refused)
        assert "p is of policy q" in refused.why
        assert not core.of(ev.Append)


def test_it_is_answered_once_a_replica_has_it_on_its_disk() -> None:
    core = leader()
    ask(core, 1, flushed())
    assert core.one(ev.AskFlush) == ev.AskFlush(("B",), core.p.chain.state.epoch, 2)
    core.acknowledge()
    held_by(core, B, 2)
    assert core.replies() == []
    core.acked_by(B, 2)
    assert core.replies() == []
    flushed_by(core, B, 1)
    assert core.replies() == []
    flushed_by(core, B, 2)
    assert core.replies() == [ev.Happened(2)]


def test_a_flush_alone_is_not_enough() -> None:
    """What the policy asks for is waited for as ever."""
    core = leader()
    ask(core, 1, flushed())
    flushed_by(core, B, 2)
    assert core.replies() == []
    core.acknowledge()
    assert core.replies() == [ev.Happened(2)]


def with_two() -> Core:
    core = Core(sync=2).active()
    core.acked_by(B, 1)
    core.cas_ok()
    core.acked_by(C, 1)
    core.cas_ok()
    assert core.p.table.sync_set == {B, C}
    return core


def test_it_waits_for_as_many_as_it_asked_for_though_one_of_them_goes() -> None:
    core = with_two()
    ask(core, 1, flushed(2))
    ask(core, 2, flushed(1))
    core.acknowledge(core.p.tag - 1)
    core.acknowledge()
    core.acked_by(C, 3)
    flushed_by(core, B, 3)
    assert core.replies() == [ev.Happened(3)]
    core.alive(B)
    core.cas_ok()
    assert core.p.table.sync_set == {B}
    assert core.replies() == []
    core.alive(B, C)
    flushed_by(core, C, 3)
    assert core.replies() == [ev.Happened(2)]


def test_too_few_replicas_are_there() -> None:
    core = with_two()
    core.alive(B)
    ask(core, 1, flushed(2))
    assert core.replies() == [ev.TooFew(1, 2, "sync replicas")]
    assert not core.of(ev.Append)
    ask(core, 2, flushed(1))
    assert core.of(ev.Append)


def test_too_few_are_there_once_it_is_known_that_they_went() -> None:
    core = leader()
    ask(core, 1, flushed())
    core.alive(C)
    core.cas_ok()
    core.acknowledge()
    assert core.replies() == []
    ask(core, 1, flushed())
    assert core.replies() == [], "it is in the log: it waits, and is not said to have failed"
    core.step(ev.AppendFailed(-1, "session lost"))
    assert core.replies() == [ev.Unknown("session lost")] * 2


def test_a_replica_is_asked_again_until_it_has_told() -> None:
    core = leader()
    ask(core, 1, flushed())
    core.step(ev.Ticked(), after_ms=10)
    assert not core.of(ev.AskFlush)
    core.step(ev.Ticked(), after_ms=SETTINGS.ack_every_ms)
    assert core.of(ev.AskFlush)
    core.acknowledge()
    flushed_by(core, B, 2)
    core.step(ev.Ticked(), after_ms=SETTINGS.ack_every_ms)
    assert not core.of(ev.AskFlush)


def test_a_repeated_one_keeps_the_stronger_demand() -> None:
    core = leader()
    ask(core, 1, None)
    ask(core, 1, flushed())
    ask(core, 1, None)
    assert not core.of(ev.Append)
    core.acknowledge()
    core.acked_by(B, 2)
    assert core.replies() == [ev.Happened(2)], "the first one asked for nothing"
    ask(core, 1, None)
    assert core.replies() == [], "it is in the log, and another attempt waits for more"
    flushed_by(core, B, 2)
    assert core.replies() == [ev.Happened(2)] * 3
    core.alive(C)
    core.cas_ok()
    ask(core, 1, flushed())
    assert core.replies() == [ev.Happened(2)], "it had what it asked for"


def test_a_repeated_one_of_a_former_epoch_waits_for_the_flush_it_asked_for() -> None:
    core = leader()
    core.p.outcomes.add(tx(7), 1)
    ask(core, 7, flushed())
    assert core.replies() == []
    assert core.one(ev.AskFlush).lsn == 1
    flushed_by(core, B, 1)
    assert core.replies() == [ev.Happened(1)]


def test_what_may_have_happened_and_was_forgotten_is_not_said_to_have_been_refused() -> None:
    """Seed 2602."""
    core = Core().active()
    core.p.outcomes.horizon = tx(9)[:8]
    for asked in (flushed(), flushed(2)):
        ask(core, 7, asked)
        assert core.replies() == [ev.Expired(tx(9)[:8])]


def test_as_many_wait_for_a_flush_as_may_be_in_flight() -> None:
    core = leader(msgspec.structs.replace(SETTINGS, max_in_flight=2))
    for n in (1, 2):
        ask(core, n, flushed())
        core.acknowledge()
        core.acked_by(B, 1 + n)
    ask(core, 3, flushed())
    assert core.replies() == [ev.Busy(2)]
    ask(core, 4, None)
    assert core.of(ev.Append), "others go on"


def test_a_hand_over_does_not_wait_for_a_flush() -> None:
    core = leader()
    ask(core, 1, flushed())
    core.acknowledge()
    core.acked_by(B, 2)
    core.step(ev.HandOverAsked(77, "B"))
    assert core.role is Role.HANDING
    core.acknowledge()
    assert core.replies() == [ev.Happened(3), ev.Unknown("handed over before replicas had flushed it")]


def test_of_the_log_and_the_disk_the_disk_is_waited_for() -> None:
    """A replica stores what it has read from the log: less of that cannot be had."""
    core = leader()
    ask(core, 1, Durability(local="NO_SYNC", remote="SYNC"))
    held_by(core, B, 2)
    assert core.replies() == []
    core.acknowledge()
    flushed_by(core, B, 2)
    assert core.replies() == [ev.Happened(2)]


# --- the replica ---


def saves(core: Core) -> list[tuple[str, int]]:
    """What was stored and told, in order."""
    found: list[tuple[str, int]] = []
    for e in core.effects:
        if isinstance(e, ev.Save):
            found.append(("save and flush" if e.flush else "save", 0))
        elif isinstance(e, ev.Flush):
            found.append(("flush", e.lsn))
        elif isinstance(e, ev.SendAck):
            found.append((f"{e.lsn} applied" if e.applied else f"{e.lsn} held", e.flushed))
    return found


def test_it_flushes_what_it_is_asked_to_once_the_log_brings_it() -> None:
    core, script = replica()
    data = script.commit(epoch(1), 1)
    core.step(ev.Pushed(A, epoch(1), [data]))
    assert saves(core) == [("2 held", 0)]
    core.step(ev.FlushAsked(A, epoch(1), 2))
    assert saves(core) == []
    core.land(data)
    core.step(ev.Taken())
    assert saves(core) == [("flush", 2)], "what was held is not acknowledged once more"
    core.step(ev.Flushed(2))
    assert saves(core) == [("2 applied", 2)]
    core.land(script.commit(epoch(1), 2))
    core.step(ev.Taken())
    assert saves(core) == [("3 applied", 2)], "nobody asked for that one"


def test_what_is_here_already_is_flushed_at_once_and_told_again_when_asked_again() -> None:
    core, script = replica()
    core.land(script.commit(epoch(1), 1))
    core.step(ev.Taken())
    core.step(ev.FlushAsked(A, epoch(1), 2))
    assert saves(core) == [("flush", 2)]
    core.step(ev.FlushAsked(A, epoch(1), 2))
    assert saves(core) == [], "under way"
    core.step(ev.Flushed(2))
    assert saves(core) == [("2 applied", 2)]
    core.step(ev.FlushAsked(A, epoch(1), 2))
    assert saves(core) == [("2 applied", 2)]


def test_what_comes_during_a_flush_waits_for_the_next() -> None:
    core, script = replica()
    core.step(ev.FlushAsked(A, epoch(1), 2))
    core.land(script.commit(epoch(1), 1))
    core.step(ev.Taken())
    assert saves(core) == [("flush", 2), ("2 applied", 0)]
    core.step(ev.FlushAsked(A, epoch(1), 4))
    for n in (2, 3):
        core.land(script.commit(epoch(1), n))
        core.step(ev.Taken())
        assert saves(core) == [(f"{n + 1} applied", 0)]
    core.step(ev.Flushed(2))
    assert saves(core) == [("4 applied", 2), ("flush", 4)]
    core.step(ev.Flushed(4))
    assert saves(core) == [("4 applied", 4)]


def test_a_replica_that_lags_flushes_what_it_has_read_meanwhile() -> None:
    """Else those before the last one would wait for that."""
    core, script = replica()
    core.step(ev.FlushAsked(A, epoch(1), 2))
    core.step(ev.FlushAsked(A, epoch(1), 3))
    core.land(script.commit(epoch(1), 1))
    core.step(ev.Taken())
    assert ("flush", 2) in saves(core)


def test_a_copy_that_leads_by_then_tells_nobody() -> None:
    core = leader()
    core.step(ev.Flushed(1))
    assert saves(core) == []


@pytest.mark.parametrize(("member", "of"), [(C, 1), (A, 2)])
def test_only_the_active_of_its_epoch_may_ask(member: Member, of: int) -> None:
    core, script = replica()
    core.land(script.commit(epoch(1), 1))
    core.step(ev.FlushAsked(member, epoch(of), 2))
    core.step(ev.Taken())
    assert saves(core) == [("2 applied", 0)]


def test_where_the_policy_flushes_everything_it_says_so() -> None:
    core, script = replica()
    core.p.settings = msgspec.structs.replace(SETTINGS, remote_sync=Sync.SYNC)
    core.land(script.commit(epoch(1), 1))
    core.step(ev.Taken())
    assert saves(core) == [("save and flush", 0), ("2 applied", 2)]


def test_a_sync_set_with_a_dead_member_is_not_counted() -> None:
    core = leader()
    assert core.p.table.replicas == (Replica("B", 2, SYNC),)
    core.alive()
    ask(core, 1, flushed())
    assert core.replies() == [ev.TooFew(0, 1, "sync replicas")]
