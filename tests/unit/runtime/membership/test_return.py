"""Whole nodes that were offline or cut off, in memory: what comes back has restored what it missed (Q1, P11)."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from halog.adapters.memory import MemoryLog
from halog.config import SnapshotConfig
from halog.core.roles import INCOMPLETE, Role
from halog.errors import ZoneQuorumError
from halog.runtime.replica.driver import Copy
from halog.testing.cluster import wait_until
from tests.unit.counting import Counter
from tests.unit.runtime.membership import zoned
from tests.unit.runtime.membership.zoned import Make, add, cut, goes_offline, is_online, runtime, told

make = pytest.fixture(zoned.make)


@pytest.mark.feature("Q1", "P11", "P10")
def test_a_node_that_is_cut_off_gives_up_its_roles_and_restores_what_it_missed(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is active, and can reach ZooKeeper and the log all the time: only its peers are gone."""
    cluster = make(minimum_votes=2)
    first = cluster.active_for(Counter, "c")
    others = [n for n in "ABC" if n != first]
    heal = cut(cluster, first, monkeypatch)
    goes_offline(cluster, first)
    with pytest.raises(ZoneQuorumError):
        add(cluster.node(first))
    wait_until(lambda: cluster.active_for(Counter, "c") in others, "nobody took over")
    assert add(cluster.client()) == 1
    copy = runtime(cluster, first).copies[cluster.partition_of(Counter, "c")]
    stood, lsn = copy.core.state.chain.state.lsn, runtime(cluster, first).copies[copy.name].core.visible
    assert stood == lsn
    assert copy.core.state.role is Role.OFFLINE
    heal()
    cluster.settle()
    wait_until(lambda: is_online(cluster, first), "it is not restored")
    assert copy.core.state.chain.state.lsn > lsn
    assert add(cluster.node(first)) == 2


@pytest.mark.feature("Q1", "P11")
def test_one_that_was_offline_for_longer_than_the_log_is_kept_is_rebuilt(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make(minimum_votes=2, snapshot=SnapshotConfig(every_records=5, every_ms=100, keep_records=1))
    first = cluster.active_for(Counter, "c")
    heal = cut(cluster, first, monkeypatch)
    goes_offline(cluster, first)
    old = runtime(cluster, first).copies[cluster.partition_of(Counter, "c")]

    def trimmed() -> bool:
        add(cluster.client())
        return MemoryLog(cluster.broker).bounds(old.tp)[0] > old.core.state.next_offset

    wait_until(trimmed, "the log is not trimmed")
    heal()
    wait_until(lambda: runtime(cluster, first).copies.get(old.name) not in (None, old), "it is not rebuilt")
    cluster.settle()
    with cluster.node(first).transaction(read="local") as tx:
        here = tx.get(Counter, "c").value
    assert add(cluster.client()) == here + 1
    assert runtime(cluster, first).copies[old.name].error is None
    assert not [e for e in told(cluster) if e.code == "HALOG-1015"], "its history was never in doubt"


@pytest.mark.feature("P11", "R5")
def test_a_copy_that_came_back_shows_nothing_before_it_has_read_what_it_missed(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make(minimum_votes=2)
    first = cluster.active_for(Counter, "c")
    heal = cut(cluster, first, monkeypatch)
    goes_offline(cluster, first)
    copy = runtime(cluster, first).copies[cluster.partition_of(Counter, "c")]
    add(cluster.client())
    read, may_read = Copy.read, threading.Event()

    def held(self: Copy, entries: Any) -> None:
        if self is copy:
            may_read.wait(60)
        read(self, entries)

    monkeypatch.setattr(Copy, "read", held)
    heal()
    wait_until(lambda: not runtime(cluster, first).members.offline, "it is not back")
    wait_until(lambda: copy.core.state.role is Role.LOADING, "it does not load")
    newest = add(cluster.client())
    with cluster.node(first).transaction(read="local") as tx:
        assert tx.get(Counter, "c").value == newest, "the active was asked"
        assert [c.value for c in tx.extent(Counter)] == [newest]
    may_read.set()

    def here() -> int:
        with cluster.node(first).transaction(read="local") as tx:
            return tx.get(Counter, "c").value

    wait_until(lambda: copy.core.state.role not in INCOMPLETE, "it does not come back")
    assert here() >= newest - 1, "what the log had when it came back"
    asked = runtime(cluster, first).router.ask
    monkeypatch.setattr(runtime(cluster, first).router, "ask", None)
    wait_until(lambda: here() == newest, "its own copy does not show what has come since")
    monkeypatch.setattr(runtime(cluster, first).router, "ask", asked)
