"""Replicas are copied anew, one after the other, and commits go on (P12)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from halog.core import effects as fx, events as ev, results as res
from halog.core.settings import Sync
from halog.core.table import resync
from halog.core.table.migration import moving
from halog.core.table.table import ASYNC, EMPTY, OUT, SYNC, WAITING, Group, PartitionTable, Replica, Resync, Target
from tests.unit.core.commit.durability_kit import ask, flushed, flushed_by
from tests.unit.core.kit import SETTINGS, A, B, C, Core, create, epoch, table

pytestmark = pytest.mark.feature("P12")

IN_B, IN_C = Replica("B", 2, SYNC), Replica("C", 3, ASYNC)


def whole(**changes: Any) -> PartitionTable:
    return table(**{"epoch": epoch(1), "active": A, "replicas": (IN_B, IN_C), **changes})


@pytest.mark.parametrize(
    ("now", "nodes", "said"),
    [
        (whole(active=None), ("B",), "no active node"),
        (whole(target=Target(("C",), 0)), ("B",), "is moving to C"),
        (whole(replicas=()), (), "no replica in its node list"),
        (whole(), ("A",), "A is active for p"),
        (whole(), ("B", "D"), "D is not in the node list of p: A, B, C"),
        (whole(replicas=(IN_B,), quorum=2), ("B",), "without B only A would count for p, 2 are needed"),
        (whole(quorum=2, group=Group(priorities={"C": 0})), ("B",), "without B only A would count"),
    ],
)
def test_what_would_stop_commits_or_cannot_be_is_refused(
    now: PartitionTable, nodes: tuple[str, ...], said: str
) -> None:
    assert said in (resync.why_not(now, nodes) or "")


def test_all_replicas_those_first_that_no_commit_waits_for() -> None:
    assert resync.replicas(whole()) == ("C", "B")
    assert resync.why_not(whole(quorum=2), ("C", "B")) is None


def test_another_wish_stands_behind_the_first() -> None:
    first = resync.wished(whole(), ("B",))
    out = msgspec.structs.replace(first, resync=Resync(("B",), OUT))
    assert resync.wished(out, ("C", "B")).resync == Resync(("B", "C"), OUT)
    assert first.config_version == 1


def test_its_steps_one_replica_after_the_other() -> None:
    t = resync.wished(whole(), ("C", "B"))
    t = resync.next_table(t, "BC")  # type: ignore[assignment]
    assert (t.resync, t.node_list, t.away) == (Resync(("C", "B"), OUT), ("A", "B"), "C")
    assert resync.next_table(t, "BC") is None, "C drops its copy"
    assert resync.emptied(t, "B") == t, "it is not B's turn"
    t = resync.emptied(t, "C")
    assert (t.resync, t.away) == (Resync(("C", "B"), EMPTY), "")
    assert resync.next_table(t, "BC") is None, "C catches up"
    t = resync.next_table(msgspec.structs.replace(t, replicas=(IN_B, IN_C)), "BC")  # type: ignore[assignment]
    assert t.resync == Resync(("B",), WAITING)


def test_it_waits_until_others_are_sync_in_its_place() -> None:
    t = resync.wished(whole(), ("B",))
    assert resync.next_table(t, "BC") is None
    instead = msgspec.structs.replace(t, replicas=(Replica("B", 2, ASYNC), Replica("C", 3, SYNC)))
    assert resync.next_table(instead, "BC").away == "B"  # type: ignore[union-attr]
    alone = resync.wished(whole(configured=("A", "B"), replicas=(IN_B,)), ("B",))
    assert resync.next_table(alone, "B").away == "B", "there are no others"  # type: ignore[union-attr]


def test_it_waits_while_another_replica_is_out_of_the_list() -> None:
    t = resync.wished(whole(replicas=(IN_B,)), ("B",))
    assert resync.next_table(t, "BC") is None
    t = resync.next_table(t, "B")  # type: ignore[assignment]
    assert t.away == "B", "one that is down is not waited for"


def test_it_waits_where_the_others_are_too_few_by_now() -> None:
    t = resync.wished(whole(quorum=2), ("B",))
    assert resync.next_table(msgspec.structs.replace(t, replicas=(IN_B,)), "B") is None


def test_one_without_which_the_group_is_too_small_is_passed_over() -> None:
    """It was let in by an override that has ended."""
    t = whole(configured=("A", "B"), replicas=(IN_B,), quorum=2, group=Group(required=1))
    assert resync.why_not(t, ("B",)) is None
    ended = msgspec.structs.replace(resync.wished(t, ("B",)), group=Group())
    assert resync.next_table(ended, "B").resync is None  # type: ignore[union-attr]


def test_one_that_is_down_or_active_by_now_is_passed_over() -> None:
    t = resync.wished(whole(), ("B", "C"))
    assert resync.next_table(t, "C").resync == Resync(("C",))  # type: ignore[union-attr]
    assert resync.next_table(msgspec.structs.replace(t, active=B), "BC").resync == Resync(("C",))  # type: ignore[union-attr]


def test_one_that_has_left_the_node_list_is_passed_over() -> None:
    """Its copy may have stopped with an error: nobody would drop it."""
    t = resync.wished(whole(replicas=(IN_B,)), ("C",))
    after = resync.next_table(t, "BC")
    assert after is not None
    assert (after.resync, after.passed_over) == (None, ("C",))


def test_who_was_passed_over_is_kept_until_the_next_wish() -> None:
    t = resync.wished(whole(), ("B", "C"))
    after = resync.next_table(t, "C")
    assert after is not None
    assert after.passed_over == ("B",)
    assert resync.wished(after, ("B",)).passed_over == (), "it is asked for again"
    emptied = msgspec.structs.replace(t, resync=Resync(("B",), EMPTY), replicas=(IN_C,))
    done = resync.next_table(emptied, "C")
    assert done is not None
    assert (done.resync, done.passed_over) == (None, ()), "it has dropped its copy"
    out = resync.next_table(msgspec.structs.replace(emptied, resync=Resync(("B",), OUT)), "C")
    assert out is not None
    assert out.passed_over == ("B",)
    assert resync.wished(msgspec.structs.replace(out, resync=None), ("C",)).passed_over == ()
    assert b"passed_over" not in whole().to_bytes()
    assert PartitionTable.from_bytes(out.to_bytes()) == out


def test_what_is_left_is_told() -> None:
    assert resync.left(whole()) == ()
    assert resync.left(whole(resync=Resync(("B", "C"), EMPTY))) == (
        "B is copied anew and catches up",
        "C waits for its turn",
    )


def test_a_migration_takes_its_place() -> None:
    to = Target(("A", "B"), 1)
    assert moving(whole(resync=Resync(("B", "C"))), to).resync is None
    assert moving(whole(resync=Resync(("B", "C"), OUT)), to).resync == Resync(("B",), OUT), (
        "it may have dropped its copy"
    )


# --- the active node drives it ---


def leading(**t: Any) -> Core:
    """Active on A; B is its sync replica, C an async one; B is to be copied anew, and all have lsn 2."""
    core = Core(**t).with_sync_replica()
    core.acked_by(C, 1)
    core.cas_ok()
    core.submit(1)
    core.acknowledge()
    core.acked_by(B, 2)
    core.step(ev.TableSeen(core.p.state.version + 1, resync.wished(core.p.state.table, ("B",))))
    settle(core)
    return core


def settle(core: Core) -> None:
    """What it sets goes through, until it sets nothing more."""
    for _ in range(20):
        while core.of(fx.SetTable):
            core.cas_ok()
        core.step(ev.Ticked(), after_ms=10)
        if not core.of(fx.SetTable):
            return
    raise AssertionError("it never stops")


def test_c_takes_its_place_then_b_goes_out_and_comes_back_as_it_catches_up() -> None:
    core = leading()
    settle(core)
    assert core.p.state.table.away == "", "C does not have everything yet"
    flushed_by(core, C, 2)
    settle(core)
    assert core.p.state.table.away == "B"
    assert core.p.state.table.replicas == (Replica("C", 3, SYNC),)
    core.submit(3, create(b"more"))
    core.acknowledge()
    core.acked_by(B, 3)
    settle(core)
    assert core.p.state.table.node_list == ("A", "C"), "what B acknowledges now is of the old copy"
    core.acked_by(C, 3)
    assert res.Success(3) in core.replies(), "commits do not wait for it"
    core.step(ev.TableSeen(core.p.state.version + 1, resync.emptied(core.p.state.table, "B")))
    settle(core)
    assert core.p.state.table.node_list == ("A", "C"), "its copy is empty"
    core.acked_by(B, 3)
    settle(core)
    assert core.p.state.table.node_list == ("A", "C"), "that was the old copy's, and came late"
    assert core.p.leading is not None
    core.acknowledge()
    core.acked_by(B, core.p.leading.writer.last_lsn)
    settle(core)
    assert core.p.state.table.resync is None
    assert core.p.state.table.node_list == ("A", "B", "C")
    assert core.p.state.table.sync_set == {B}


def test_what_was_flushed_there_on_request_is_flushed_elsewhere_first() -> None:
    """B takes its disk's contents with it (R6)."""
    core = leading()
    ask(core, 2, flushed())
    core.acknowledge()
    flushed_by(core, B, 3)
    core.acked_by(C, 3)
    settle(core)
    assert core.p.state.table.sync_set == {C}
    assert core.p.state.table.away == ""
    flushed_by(core, C, 3)
    settle(core)
    assert core.p.state.table.away == "B"


def test_with_a_quorum_the_others_must_have_everything_first() -> None:
    """The commit is with A and B; emptied, B would leave A alone with it (R7)."""
    core = leading(quorum=2, sync=0)
    settle(core)
    assert core.p.state.table.away == ""
    flushed_by(core, C, 2)
    settle(core)
    assert core.p.state.table.away == "B"


def test_commits_that_do_not_wait_for_the_log_hold_it_back() -> None:
    """B may have what the log lacks: it stays until the log has it (E2)."""
    core = leading(settings=msgspec.structs.replace(SETTINGS, local_sync=Sync.NO_SYNC))
    core.submit(4, create(b"unlogged"))
    core.step(ev.ReplicaAck(B, core.p.state.chain.state.epoch, 3, applied=False))
    flushed_by(core, C, 3)
    settle(core)
    assert core.p.state.table.away == ""
    core.acknowledge()
    settle(core)
    assert core.p.state.table.away == "B"


def test_a_new_active_node_goes_on_with_it() -> None:
    """The wish stands in the znode; who claims the partition takes it along."""
    core = Core(configured=("A", "B", "C"), resync=Resync(("B",)))
    core.active()
    assert core.p.state.table.resync == Resync(("B",))
