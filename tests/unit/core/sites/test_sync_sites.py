"""Commits that wait for the log of another site: what they wait for, and how that changes (S1-S3, M5)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from halog.core import effects as fx, events as ev, results as res
from halog.core.ids import EpochId
from halog.core.roles import Role
from halog.core.settings import Settings, Sites
from halog.core.sites.sync_sites import as_member
from halog.core.table.table import PartitionTable
from halog.core.table.tell import Tell
from halog.events import SITE_AWAY, SITE_BACK
from tests.unit.core.kit import B, Core, create, table, tx

pytestmark = pytest.mark.feature("M5", "R1")

EAST = Sites(("east",))
STRICT = Settings(sites=EAST)
DROPS = Settings(sites=Sites(("east",), strict=False))
LONG = EAST.away_ms + 1_000


def of_one_node(settings: Settings = STRICT, **changes: Any) -> Core:
    """Active, the only node of its site, and nothing has been heard of the other one."""
    return Core(settings=settings, **{"sync": 0, "configured": ("A", "B", "C"), **changes}).active()


def confirmed(core: Core, lsn: int, site: str = "east", epoch: EpochId | None = None) -> list[fx.Effect]:
    """The log of that site has it."""
    return core.step(ev.SiteAck(site, epoch or core.p.state.chain.state.epoch, lsn))


def in_sync(settings: Settings = STRICT) -> Core:
    """The same, and the other site has everything: the table says so."""
    core = of_one_node(settings)
    confirmed(core, 1)
    core.cas_ok()
    assert core.p.state.table.synced == ("east",)
    return core


def passes(core: Core, ms: int) -> list[fx.Effect]:
    """Time, as a process that runs lives through it; all effects."""
    found: list[fx.Effect] = []
    for _ in range(0, ms, 100):
        found += core.step(ev.Ticked(), after_ms=100)
    core.effects = found
    return found


def told(core: Core) -> list[tuple[str, str]]:
    return [(e.kind.code, e.more["site"]) for e in core.of(Tell) if e.kind in (SITE_AWAY, SITE_BACK)]


def test_a_commit_is_answered_when_the_other_sites_log_has_it() -> None:
    core = in_sync()
    core.submit(1)
    core.acknowledge()
    assert not core.replies()
    confirmed(core, 2)
    assert core.replies() == [res.Success(2)]


def test_it_is_not_answered_by_the_site_before_the_own_log_has_it() -> None:
    """A site cannot have what the log does not have yet; who says so is mistaken."""
    core = in_sync()
    core.submit(1)
    confirmed(core, 2)
    assert not core.replies()
    core.acknowledge()
    assert core.replies() == [res.Success(2)]


def test_what_a_site_had_of_an_earlier_epoch_or_never_counts_for_nothing() -> None:
    core = in_sync()
    now = core.p.state.chain.state.epoch
    core.submit(1)
    core.acknowledge()
    confirmed(core, 2, epoch=EpochId(now.number - 1, now.site, now.nonce))
    confirmed(core, 2, epoch=EpochId(now.number, now.site, now.nonce + 1))
    confirmed(core, 3)
    confirmed(core, 2, site="north")
    assert not core.replies()
    assert core.p.leading is not None
    assert core.p.leading.writer.acks[as_member("east")] == 1


def test_all_sites_and_the_replicas_are_waited_for() -> None:
    core = Core(settings=Settings(sites=Sites(("east", "north")))).with_sync_replica()
    core.submit(1)
    core.acknowledge()
    confirmed(core, 2)
    core.acked_by(B, 2)
    assert not core.replies()
    confirmed(core, 2, site="north")
    assert res.Success(2) in core.replies()


def test_a_group_is_answered_at_once_when_its_last_commit_has_arrived() -> None:
    core = in_sync()
    for n in range(5):
        core.submit(n + 1, create(b"k%d" % n))
    for tag in range(core.p.state.tag - 4, core.p.state.tag + 1):
        core.acknowledge(tag)
    confirmed(core, 6)
    assert core.replies() == [res.Success(lsn) for lsn in range(2, 7)]


def test_a_policy_without_sync_sites_waits_for_nobody_else() -> None:
    core = of_one_node(Settings())
    confirmed(core, 1)
    core.submit(1)
    core.acknowledge()
    assert core.replies() == [res.Success(2)]
    assert not core.of(fx.SetTable)


def test_a_strict_policy_waits_for_a_site_that_nobody_has_heard_of_yet() -> None:
    core = of_one_node()
    core.submit(1)
    core.acknowledge()
    assert not core.replies()
    confirmed(core, 2)
    assert core.replies() == [res.Success(2)]
    assert core.one(fx.SetTable).table.synced == ("east",)


def test_new_commits_are_refused_by_name_while_a_site_is_away_and_one_in_flight_waits() -> None:
    core = in_sync()
    core.submit(1)
    core.acknowledge()
    passes(core, LONG)
    assert told(core) == [("HALOG-1045", "east")]
    assert not core.of(fx.SetTable)
    core.submit(2, create(b"other"))
    assert core.replies() == [res.Shortage(0, 1, "sites", ("east",))]
    assert not core.of(fx.Append)
    confirmed(core, 2)
    assert core.replies() == [res.Success(2)]
    passes(core, 200)
    assert told(core) == [("HALOG-1046", "east")]
    core.submit(3, create(b"third"))
    assert core.of(fx.Append)


def test_what_is_only_read_is_not_refused_meanwhile() -> None:
    core = in_sync()
    core.submit(1)
    core.acknowledge()
    passes(core, LONG)
    core.step(ev.BarrierAsked(7))
    assert core.of(fx.Append)


def test_a_site_that_has_everything_is_there_however_long_nobody_writes() -> None:
    core = in_sync()
    for _ in range(20):
        passes(core, 500)
        assert not told(core)
        confirmed(core, 1)
    core.submit(1)
    assert core.of(fx.Append)


def test_a_site_that_repeats_what_it_had_is_away_all_the_same() -> None:
    core = in_sync()
    core.submit(1)
    core.acknowledge()
    for _ in range(LONG // 500):
        passes(core, 500)
        confirmed(core, 1)
    core.submit(2, create(b"other"))
    assert core.replies() == [res.Shortage(0, 1, "sites", ("east",))]


def test_a_site_is_dropped_in_the_znode_first_and_then_waited_for_no_more() -> None:
    """S2: whoever takes over there reads that it may lack something before anything is acknowledged without it."""
    core = in_sync(DROPS)
    core.submit(1)
    core.acknowledge()
    passes(core, LONG)
    proposal = core.of(fx.SetTable)[0]
    assert proposal.table.synced == ()
    assert not core.replies()
    core.step(ev.CasDone(proposal.round, ev.Cas.OK, core.p.state.version + 1))
    assert core.replies() == [res.Success(2)]
    assert told(core) == [("HALOG-1045", "east")]


def test_while_nobody_knows_whether_it_was_dropped_it_is_waited_for() -> None:
    """S4."""
    core = in_sync(DROPS)
    core.submit(1)
    core.acknowledge()
    passes(core, LONG)
    core.step(ev.CasDone(core.of(fx.SetTable)[0].round, ev.Cas.UNKNOWN))
    assert not core.replies()
    core.step(ev.TableSeen(core.p.state.version, core.p.state.table))
    assert not core.replies()
    core.cas_ok()  # once more as it was: no earlier set can land any more
    assert not core.replies()
    assert core.one(fx.SetTable).table.synced == ()
    core.cas_ok()
    assert core.replies() == [res.Success(2)]


def test_a_site_that_has_just_confirmed_is_not_dropped() -> None:
    """It was to be, and nobody knew whether it was; meanwhile it has said that it has everything. Before the next look
    who is away."""
    core = in_sync(DROPS)
    core.submit(1)
    core.acknowledge()
    passes(core, LONG)
    core.step(ev.CasDone(core.of(fx.SetTable)[0].round, ev.Cas.UNKNOWN))
    core.step(ev.TableSeen(core.p.state.version, core.p.state.table))
    as_it_was = core.one(fx.SetTable)  # once more: then no earlier set can land any more
    confirmed(core, 2)
    core.step(ev.CasDone(as_it_was.round, ev.Cas.OK, core.p.state.version + 1))
    assert not core.of(fx.SetTable)
    assert core.p.state.table.synced == ("east",)


def test_a_dropped_site_is_back_once_it_has_what_is_in_flight() -> None:
    """S3: waited for first, in the znode when it has confirmed all that was given out by then."""
    core = in_sync(DROPS)
    core.submit(1)
    core.acknowledge()
    passes(core, LONG)
    core.step(ev.CasDone(core.of(fx.SetTable)[0].round, ev.Cas.OK, core.p.state.version + 1))
    core.submit(2, create(b"other"))
    core.acknowledge()
    assert core.replies() == [res.Success(3)]
    core.submit(3, create(b"third"))
    confirmed(core, 2)
    passes(core, 100)  # it is there, and close behind: waited for from now on
    assert not core.of(fx.SetTable)
    core.acknowledge()
    assert not core.replies()
    confirmed(core, 3)
    assert not core.of(fx.SetTable)
    confirmed(core, 4)
    assert core.replies() == [res.Success(4)]
    assert core.one(fx.SetTable).table.synced == ("east",)
    core.cas_ok()
    assert told(core) == [("HALOG-1046", "east")]


def test_a_site_far_behind_is_not_waited_for_where_it_may_be_dropped() -> None:
    core = of_one_node(msgspec.structs.replace(DROPS, ready_lag=1))
    for n in range(5):
        core.submit(n + 1, create(b"k%d" % n))
        core.acknowledge()
        assert core.replies() == [res.Success(n + 2)]
    confirmed(core, 4)
    core.submit(7, create(b"more"))
    core.acknowledge()
    assert core.replies() == [res.Success(7)]
    confirmed(core, 6)
    core.submit(8, create(b"last"))
    core.acknowledge()
    assert not core.replies()


def test_the_next_epoch_waits_for_what_the_znode_says_and_finds_anew_what_the_site_has() -> None:
    """A failover: what an earlier epoch had confirmed says nothing of what this one has recovered."""
    core = of_one_node(DROPS, synced=("east",))
    core.submit(1)
    core.acknowledge()
    assert not core.replies()
    confirmed(core, 2)
    assert core.replies() == [res.Success(2)]


def test_what_was_recovered_is_told_to_have_happened_when_the_site_has_it() -> None:
    core = in_sync()
    core.submit(1)
    core.acknowledge()
    core.step(ev.Asked(50, tx(1), 0))
    assert isinstance(core.replies()[0], res.Unknown)
    core.submit(1)
    assert not core.replies()
    confirmed(core, 2)
    assert core.replies() == [res.Success(2), res.Success(2)]
    core.step(ev.Asked(51, tx(1), 0))
    assert core.replies() == [res.Success(2)]


def test_a_replica_does_not_say_that_it_happened() -> None:
    core = Core(B, settings=STRICT).loaded()
    core.p.state.outcomes.add(tx(1), 2)
    core.step(ev.Asked(1, tx(1), 0))
    assert isinstance(core.replies()[0], res.Unknown)


def let_go(core: Core) -> PartitionTable:
    """An operator says so, in one compare-and-set."""
    now = msgspec.structs.replace(core.p.state.table, synced=(), let_go=("east",))
    core.step(ev.TableSeen(core.p.state.version + 1, now))
    return now


def test_an_operator_may_let_go_of_a_site_until_it_is_back() -> None:
    core = in_sync()
    core.submit(1)
    core.acknowledge()
    passes(core, LONG)
    let_go(core)
    assert core.replies() == [res.Success(2)]
    assert ("HALOG-1045", "east") in told(core)
    passes(core, 100)
    core.submit(2, create(b"other"))
    core.acknowledge()
    assert core.replies() == [res.Success(3)]
    confirmed(core, 3)
    passes(core, 100)
    assert (core.one(fx.SetTable).table.synced, core.one(fx.SetTable).table.let_go) == (("east",), ())
    core.cas_ok()
    assert ("HALOG-1046", "east") in told(core)


def test_a_site_that_had_everything_when_it_was_let_go_is_back_only_once_it_is_heard_of_again() -> None:
    """It was lost a moment ago, and does not count as away yet: all would be refused until an operator looks."""
    core = in_sync()
    let_go(core)
    assert not core.of(fx.SetTable)
    passes(core, 100)
    assert not core.of(fx.SetTable)
    core.submit(1)
    core.acknowledge()
    assert core.replies() == [res.Success(2)]
    confirmed(core, 1)
    assert not core.of(fx.SetTable)
    confirmed(core, 2)
    assert (core.one(fx.SetTable).table.synced, core.one(fx.SetTable).table.let_go) == (("east",), ())


def test_a_site_that_has_nothing_new_and_everything_is_back_too() -> None:
    core = in_sync()
    let_go(core)
    passes(core, 100)
    confirmed(core, 1)
    assert core.one(fx.SetTable).table.synced == ("east",)


def test_a_site_that_is_no_sync_site_any_more_is_taken_out_of_the_znode_first() -> None:
    core = Core(settings=Settings(), sync=0, synced=("east",)).active()
    proposal = core.one(fx.SetTable)
    assert proposal.table.synced == ()
    core.submit(1)
    core.acknowledge()
    assert not core.replies()
    core.step(ev.CasDone(proposal.round, ev.Cas.OK, core.p.state.version + 1))
    assert core.replies() == [res.Success(2)]


def test_the_znode_says_nothing_of_what_is_not_used() -> None:
    data = table().to_bytes()
    assert b"synced" not in data
    assert b"let_go" not in data
    used = table(synced=("east",), let_go=("north",))
    assert PartitionTable.from_bytes(used.to_bytes()) == used


def test_a_hand_over_waits_until_the_site_has_everything() -> None:
    core = Core(settings=STRICT).with_sync_replica()
    confirmed(core, 1)
    core.cas_ok()
    core.submit(900, create(b"pending"))
    core.step(ev.HandOverAsked(77, "B"))
    core.acknowledge()
    core.acked_by(B, 2)
    assert not core.of(fx.Append)
    confirmed(core, 2)
    assert res.Success(2) in core.replies()
    assert core.of(fx.Append)


def test_a_site_that_took_over_keeps_nobody_from_handing_over_to_it() -> None:
    """What is in flight it never will confirm: it is unknown, and the epoch ends."""
    core = in_sync()
    core.submit(1)
    core.acknowledge()
    core.step(ev.TableSeen(core.p.state.version + 1, msgspec.structs.replace(core.p.state.table, owner="east")))
    passes(core, LONG)
    assert core.role is Role.HANDING
    core.acknowledge()
    assert [type(r) for r in core.replies()] == [res.Success, res.Unknown]  # the hand-over; the commit
    assert core.one(fx.SetTable).table.active is None
