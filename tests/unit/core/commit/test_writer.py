"""The writer as its callers see it: conflicts, repeats, limits, who is waited for, and what is said when it ends."""

from __future__ import annotations

import pytest

from halog.core import effects as fx, events as ev, results as res
from halog.core.ids import ABSENT
from halog.core.log import records
from halog.core.roles import Role
from halog.core.settings import Settings
from tests.unit.core.kit import B, C, Core, create, delete, update

K = b"k"


@pytest.mark.feature("P1", "R1")
def test_a_commit_is_answered_when_log_and_sync_replica_have_it() -> None:
    core = Core().with_sync_replica()
    core.submit(1)
    core.acknowledge()
    assert core.of(fx.Apply)
    assert core.replies() == []
    core.acked_by(B, 2)
    assert core.replies() == [res.Success(2)]


def test_the_replica_may_be_faster_than_the_log() -> None:
    core = Core().with_sync_replica()
    core.submit(1)
    core.acked_by(B, 2)
    assert core.replies() == []
    core.acknowledge()
    assert core.replies() == [res.Success(2)]


def test_visible_before_answered() -> None:
    core = Core().active()
    core.submit(1)
    core.acknowledge()
    assert [type(e) for e in core.effects] == [fx.Apply, fx.Reply]


def test_a_read_of_another_version_conflicts_and_nothing_is_appended() -> None:
    core = Core().active()
    core.submit(1, create(b"x"), reads=[(K, 4)], found={K: 5})
    assert core.replies() == [res.VersionConflict(K, 4, 5, 0)]
    assert not core.of(fx.Append)


def test_a_version_in_flight_conflicts_and_says_what_to_wait_for() -> None:
    core = Core().active()
    core.submit(1, create(K))
    core.submit(2, update(K, 1), found={K: 1})
    assert core.replies() == [res.VersionConflict(K, 1, 2, settled=2)]
    core.submit(3, update(K, 2))
    assert core.replies() == []


def test_what_is_deleted_in_flight_is_absent() -> None:
    core = Core().active()
    core.submit(1, delete(K, 7), found={K: 7})
    core.submit(2, reads=[(K, ABSENT)], found={K: 7})
    assert core.of(fx.Append)


def test_creating_what_exists_is_a_duplicate() -> None:
    core = Core().active()
    core.submit(1, create(K), found={K: 3})
    assert core.replies() == [res.DuplicateKey(K)]


def test_delete_and_create_in_one_transaction_is_a_new_instance() -> None:
    core = Core().active()
    core.submit(1, delete(K, 3), create(K), found={K: 3})
    assert core.of(fx.Append)


def test_after_the_acknowledgement_the_store_speaks_for_itself() -> None:
    core = Core().active()
    core.submit(1, create(K))
    core.acknowledge()
    core.submit(2, update(K, 2), found={K: 2})
    assert core.of(fx.Append)


def test_a_repeat_joins_the_first_attempt_in_flight() -> None:
    core = Core().active()
    core.submit(1)
    core.submit(1)
    assert not core.of(fx.Append)
    core.acknowledge()
    assert core.replies() == [res.Success(2), res.Success(2)]


def test_a_repeat_of_what_is_committed_gets_its_own_lsn_once_the_replicas_have_it() -> None:
    """Seeds 318 and 797: it was told the lsn of the next commit waiting."""
    core = Core().with_sync_replica()
    core.submit(1, create(b"a"))
    core.acknowledge()
    core.submit(2, create(b"b"))
    core.acknowledge()
    core.submit(1, create(b"a"))
    core.acked_by(B, 2)
    assert core.replies() == [res.Success(2), res.Success(2)]
    core.acked_by(B, 3)
    assert core.replies() == [res.Success(3)]


def test_a_repeat_parked_in_front_keeps_the_order() -> None:
    core = Core().with_sync_replica()
    for n, key in enumerate((b"a", b"b", b"c"), start=1):
        core.submit(n, create(key))
        core.acknowledge()
    writer = core.p.leading.writer  # type: ignore[union-attr]
    writer.waiting.popleft()  # as after a failover: committed, nobody waits for it here
    core.submit(1, create(b"a"))
    assert [lsn for lsn, _ in writer.waiting] == [2, 3, 4]


@pytest.mark.feature("R8")
@pytest.mark.parametrize(("spare", "passes"), [(0, True), (-1, False)])
def test_a_record_exactly_at_the_limit_passes_one_byte_more_is_refused(spare: int, passes: bool) -> None:
    several = [create(b"k%d" % i, b"x" * 100) for i in range(10)]
    probe = Core().active()
    probe.submit(1, *several)
    size = len(probe.one(fx.Append).data)
    core = Core(settings=Settings(max_record_bytes=size + spare)).active()
    before = core.p.state.chain.state
    core.submit(1, *several)
    assert bool(core.of(fx.Append)) is passes
    if not passes:
        assert core.effects == [fx.Reply(1, res.OversizedRecord(size, size - 1))]
        assert core.p.state.chain.state == before
        core.submit(2, create(K))
        assert records.decode(core.one(fx.Append).data).header.lsn == 2


def test_too_many_in_flight_are_refused_as_busy() -> None:
    core = Core(settings=Settings(max_in_flight=2)).active()
    core.submit(1, create(b"a"))
    core.submit(2, create(b"b"))
    core.submit(3, create(b"c"))
    assert core.replies() == [res.Busy(2)]


@pytest.mark.feature("R8")
def test_too_many_bytes_in_flight_are_refused_as_busy_until_the_log_has_them() -> None:
    core = Core(settings=Settings(max_in_flight_bytes=3_000)).active()
    core.submit(1, create(b"a", b"x" * 2_000))
    core.submit(2, create(b"b", b"x" * 2_000))
    core.submit(3, create(b"c"))
    assert core.replies() == [res.Busy(3_000, "bytes")]
    core.acknowledge(core.p.state.tag - 1)
    core.submit(4, create(b"c"))
    assert len(core.of(fx.Append)) == 1


def test_the_first_failure_ends_the_epoch_and_everything_in_flight_is_unknown() -> None:
    core = Core().active()
    core.submit(1, create(b"a"))
    core.submit(2, create(b"b"))
    core.step(ev.AppendFailed(core.p.state.tag - 1, "timed out"))
    assert core.replies() == [res.Unknown("timed out")] * 2
    assert core.of(fx.EndSession)
    core.step(ev.Appended(core.p.state.tag, 99))
    assert core.effects == []


@pytest.mark.parametrize("wrong", ["later tag", "lower offset"])
def test_an_acknowledgement_out_of_order_or_of_the_past_ends_the_epoch(wrong: str) -> None:
    core = Core().active()
    core.submit(1, create(b"a"))
    core.submit(2, create(b"b"))
    tag = core.p.state.tag if wrong == "later tag" else core.p.state.tag - 1
    core.step(ev.Appended(tag, core.offset if wrong == "later tag" else core.offset - 1))
    assert core.role is Role.FOLLOWING
    assert all(isinstance(r, res.Unknown) for r in core.replies())


def test_an_acknowledgement_of_another_epoch_or_a_dead_incarnation_counts_for_nothing() -> None:
    core = Core().with_sync_replica()
    core.submit(1)
    core.acknowledge()
    core.step(ev.ReplicaAck(B, core.p.state.chain.state.epoch._replace(number=9), 2))
    core.acked_by(B._replace(incarnation=99), 2)
    core.acked_by(C, 2)
    assert core.replies() == []


def test_a_commit_waits_for_a_dead_sync_replica_until_the_znode_has_let_it_go() -> None:
    """S2: ZooKeeper first, only then not counted."""
    core = Core().with_sync_replica()
    core.submit(1)
    core.acknowledge()
    core.alive()
    assert core.replies() == []
    shrink = core.one(fx.SetTable)
    assert shrink.table.sync_set == frozenset()
    core.step(ev.CasDone(shrink.round, ev.Cas.UNKNOWN))
    assert core.replies() == []
    core.step(ev.TableSeen(shrink.version + 1, shrink.table))
    assert core.replies() == [res.Success(2)]
