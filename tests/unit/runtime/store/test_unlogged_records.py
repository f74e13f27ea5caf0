"""A log that loses its end while commits are in memory only (R6: local NO_SYNC): copies that stop leave them on their
disks, and bring them along when they are opened again."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

from halog.adapters.memory.store import MemoryStore
from halog.core.ids import EpochId
from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.core.roles import Role
from halog.errors import StoreError
from halog.runtime.node.status import view
from halog.runtime.store.object_table import ObjectTable
from halog.runtime.store.unlogged_tail import found, leave
from halog.testing.cluster import Cluster, wait_until
from tests.unit.counting import Counter
from tests.unit.runtime.host.test_faults import add, copy_on
from tests.unit.runtime.replica.unlogged import level, log_of, running

pytestmark = pytest.mark.feature("R6", "P1")

LOG_ID = bytes(range(16))


# --- on the disk ---


def commit(lsn: int) -> bytes:
    header = records.Header(LOG_ID, EpochId(3, "home", 0), lsn, tx=lsn.to_bytes(16, "big"))
    return records.encode(records.Commit(header, ()))


def stands_at(lsn: int, *, led: int = 3) -> ChainState:
    return ChainState(LOG_ID, "home", EpochId(led, "home", 0), True, led=led, lsn=lsn)


@pytest.fixture
def objects() -> ObjectTable:
    return ObjectTable(MemoryStore(), LOG_ID, threading.RLock())


def lsns(objects: ObjectTable, state: ChainState) -> list[int]:
    return [r.header.lsn for r in found(objects, state).run]


def test_what_was_left_is_found_until_the_log_has_it(objects: ObjectTable) -> None:
    leave(objects, "p", (commit(5), commit(6)))
    assert lsns(objects, stands_at(4)) == [5, 6]
    assert lsns(objects, stands_at(5)) == [6]
    assert lsns(objects, stands_at(6)) == []
    assert lsns(objects, stands_at(4)) == [], "deleted"


def test_a_later_epoch_has_opened_without_it(objects: ObjectTable) -> None:
    leave(objects, "p", (commit(5), commit(6)))
    assert lsns(objects, stands_at(4, led=4)) == []


def test_nothing_was_left(objects: ObjectTable) -> None:
    assert lsns(objects, stands_at(4)) == []


@pytest.mark.parametrize("data", [b"\xc1", msgspec.msgpack.encode([b"of a later format"])], ids=["list", "record"])
def test_what_cannot_be_read_is_not_passed_over(objects: ObjectTable, data: bytes) -> None:
    objects.store.write([(objects.prefix + b"u", data)])
    with pytest.raises(StoreError, match="delete the data directory"):
        found(objects, stands_at(4))


def test_a_copy_that_is_dropped_leaves_nothing(objects: ObjectTable) -> None:
    leave(objects, "p", (commit(5),))
    objects.drop()
    assert lsns(objects, stands_at(4)) == []


# --- nodes ---


def acknowledged_and_not_in_the_log(cluster: Cluster) -> None:
    """Counted to 5 in the log, and on to 8 in memory."""
    assert [add(cluster) for _ in range(5)][-1] == 5
    level(cluster)
    cluster.broker.hold(log_of(cluster))
    assert [add(cluster) for _ in range(3)] == [6, 7, 8]


def lose_the_end(cluster: Cluster) -> None:
    """The log goes back to what its brokers had flushed; both copies stop."""
    tp = log_of(cluster)
    cluster.broker.truncate(tp, cluster.broker.shelf(tp).end - 4)
    cluster.broker.drop_held(tp)
    for name in cluster.names:
        wait_until(lambda n=name: "nothing was deleted here" in str(copy_on(cluster, n).error), f"{name} says so")  # type: ignore[misc]


def test_what_the_log_lost_is_put_back_and_what_it_never_had_is_appended() -> None:
    with running() as cluster:
        acknowledged_and_not_in_the_log(cluster)
        shelf = cluster.broker.shelf(log_of(cluster))
        rows = list(shelf.rows)
        lose_the_end(cluster)
        for name in cluster.names:
            assert "it brings them along" in str(view(copy_on(cluster, name))["error"])
            cluster.kill(name)
        shelf.rows[:] = rows
        for name in cluster.names:
            cluster.restart(name)
        cluster.settle()
        assert add(cluster) == 9
        had = [records.decode(row.value) for row in shelf.rows if row.value is not None]
        again = [r for r in had if isinstance(r, records.Commit) and r.origin is not None]
        assert len(again) == 3, "each of them once"


def stopped(cluster: Cluster, name: str) -> dict[str, Any]:
    seen = view(copy_on(cluster, name))
    return {key: seen[key] for key in ("lsn", "beyond", "role")}


def test_without_it_both_keep_what_they_have() -> None:
    """Opened again on a log that is still cut they stop again, and forget nothing."""
    with running() as cluster:
        acknowledged_and_not_in_the_log(cluster)
        lose_the_end(cluster)
        before = {n: stopped(cluster, n) for n in cluster.names}
        assert all(seen["beyond"] == seen["lsn"] + 3 for seen in before.values())
        for name in cluster.names:
            cluster.kill(name)
        for name in cluster.names:
            cluster.restart(name)
            assert stopped(cluster, name) == before[name]


def test_a_store_that_fails_keeps_no_copy_from_stopping() -> None:
    with running() as cluster:
        acknowledged_and_not_in_the_log(cluster)
        name = cluster.active_for(Counter, "c")
        copy = copy_on(cluster, name)
        cluster.disks[name].fill_up()
        copy.fail(StoreError("no space left on device"))
        assert copy.core.state.role is Role.FAILED
        cluster.broker.drop_held(log_of(cluster))
        wait_until(lambda: cluster.active_for(Counter, "c") != name, "it gave the partition up")
        cluster.disks[name].heal()
        assert add(cluster) == 9, "the replica had it all"
