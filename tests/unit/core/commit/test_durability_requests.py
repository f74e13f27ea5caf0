"""A transaction that asks for less than its policy (R6), as the active node sees it; and what can be asked for."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from halog.core import effects as fx, events as ev, results as res
from halog.core.commit.demands import BACKED_MS
from halog.core.commit.durability_requests import why_not
from halog.core.durability import Durability, checked
from halog.core.log import provisional as early, records
from halog.core.settings import Sync
from halog.errors import ConfigError
from tests.unit.core.commit.durability_kit import EARLY, ask, flushed, held_by, leader
from tests.unit.core.kit import B, C, Core, create, table, tx, update

pytestmark = pytest.mark.feature("R6")

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


def test_only_the_append_that_asks_for_less_than_the_log_is_patient() -> None:
    core = leader()
    for number, asked in ((1, EARLY), (2, None), (3, flushed())):
        ask(core, number, asked)
        assert core.one(fx.Append).patience_ms == (BACKED_MS if asked is EARLY else 0)


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


def test_it_is_shown_and_answered_once_the_replicas_hold_it() -> None:
    core = leader()
    ask(core, 1, EARLY)
    assert core.replies() == []
    held_by(core, B, 2)
    assert [type(e) for e in core.effects] == [fx.Show, fx.Reply]
    assert core.replies() == [res.Success(2)]
    assert core.p.visible == 2
    core.acknowledge()
    assert core.one(fx.Apply).state.lsn == 2
    assert core.replies() == []


def test_the_log_may_be_faster() -> None:
    core = leader()
    ask(core, 1, EARLY)
    core.acknowledge()
    held_by(core, B, 2)
    assert core.replies() == [res.Success(2)]
    assert not core.of(fx.Show)


def test_one_that_waits_for_the_log_is_waited_for_by_all_behind_it() -> None:
    core = leader()
    ask(core, 1, EARLY)
    first = core.p.state.tag
    ask(core, 2, None)
    ask(core, 3, EARLY)
    held_by(core, B, 4)
    assert core.replies() == [res.Success(2)]
    core.acknowledge(first)
    assert core.replies() == []
    core.acknowledge(first + 1)
    assert core.replies() == [res.Success(3), res.Success(4)]
    assert [r.header.lsn for r in core.one(fx.Show).records] == [4]


def test_with_nobody_to_hold_it_the_log_is_waited_for() -> None:
    core = Core().active()
    ask(core, 1, EARLY)
    assert core.replies() == []
    core.acknowledge()
    assert core.replies() == [res.Success(2)]


def test_it_is_not_answered_while_the_znode_names_nobody() -> None:
    core = Core().active()
    core.acked_by(B, 1)
    growth = core.one(fx.SetTable)
    ask(core, 1, EARLY)
    held_by(core, B, 2)
    assert core.replies() == []
    core.step(ev.CasDone(growth.round, ev.Cas.OK, 2))
    assert core.replies() == [res.Success(2)]


def test_a_dead_replica_leaves_though_the_log_lacks_what_it_held() -> None:
    """Here any copy that reads the log may win: nobody is missed who held it (R4)."""
    core = leader()
    ask(core, 1, EARLY)
    held_by(core, B, 2)
    core.alive(C)
    assert core.one(fx.SetTable).table.sync_set == frozenset()


def test_what_was_answered_is_not_unknown_when_the_epoch_ends_and_is_told_if_it_is_discarded() -> None:
    core = leader()
    ask(core, 1, EARLY)
    held_by(core, B, 2)
    ask(core, 2, EARLY)
    core.step(ev.AppendFailed(core.p.state.tag, "timed out"))
    assert core.replies() == [res.Unknown("timed out")]
    assert not core.p.state.tail.run
    assert set(core.p.state.outcomes.awaited) == {tx(1), tx(2)}


def test_a_repeated_one_is_answered_and_one_that_waits_for_the_log_makes_both_wait() -> None:
    core = leader()
    ask(core, 1, EARLY)
    ask(core, 1, None)
    assert not core.of(fx.Append)
    held_by(core, B, 2)
    assert core.replies() == []
    core.acknowledge()
    assert core.replies() == [res.Success(2), res.Success(2)]
    ask(core, 2, EARLY)
    held_by(core, B, 3)
    ask(core, 2, None)
    assert core.replies() == [res.Success(3)], "it was answered already"


# --- versions of what may be lost ---


def test_what_was_read_before_the_log_had_it_is_judged_right_in_the_same_epoch() -> None:
    core = leader()
    ask(core, 1, EARLY)
    held_by(core, B, 2)
    read = early.early_version(1, 2)
    ask(core, 2, None, changes=(update(b"k1", read),), reads=[(b"k1", read)], found={b"k1": read})
    record = records.decode(core.one(fx.Append).data)
    assert isinstance(record, records.Commit)
    assert record.changes[0].replaced == 2
    core.acknowledge(core.p.state.tag - 1)
    core.acknowledge()
    assert core.p.state.chain.state.lsn == 3
    ask(core, 3, None, changes=(update(b"k1", early.early_version(1, 3)),), found={b"k1": 3})
    assert core.of(fx.Append)
    ask(core, 4, None, changes=(update(b"k1", read),), found={b"k1": 3})
    assert isinstance(core.replies()[0], res.VersionConflict)


def test_the_same_lsn_of_another_epoch_is_another_version() -> None:
    """What was lost may have had the lsn that another commit has now."""
    core = leader()
    lost = early.early_version(9, 2)
    ask(core, 1, None)
    core.acknowledge()
    for reads, changes in ([(b"k1", lost)], (create(b"x"),)), ((), (update(b"k1", lost),)):
        ask(core, 2, None, reads=reads, changes=changes, found={b"k1": 2})
        assert core.replies() == [res.VersionConflict(b"k1", lost, 2, 0)]


def test_versions_of_an_epoch_are_lsns_to_its_writer_only() -> None:
    version = early.early_version(3, 77)
    assert early.as_logged(version, 3) == early.lsn_of(version) == 77
    assert early.as_logged(version, 4) == version
    assert [early.as_logged(v, 3) for v in (-1, 0, 77)] == [-1, 0, 77]
    assert early.lsn_of(77) == 77
