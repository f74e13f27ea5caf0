"""Switching sites where something is in the way: trimmed logs, lost sessions, broken copies, wishes from before."""

from __future__ import annotations

import threading
import time

import msgspec
import pytest

from halog.core.ids import NO_EPOCH, Member
from halog.errors import DeadlineError, HalogError, StoreError
from halog.metadata import log_holds as retention
from halog.metadata.nodes import running
from halog.metadata.partition_tables import change_table
from halog.runtime.node.paces import Paces
from halog.runtime.sites.catch_up import CatchUp
from halog.runtime.sites.home_tables import returned
from halog.runtime.sites.relinquish import Relinquishment
from halog.runtime.sites.site_paces import SitePaces
from halog.testing.cluster import Cluster, wait_until
from tests.unit.sites.test_switching import NAMES, owners, switching
from tests.unit.sites.two import east, flights, fly, heads, level, stands, states, west

pytestmark = pytest.mark.feature("M5")
__all__ = ["east", "west"]

HANGS_S = 8.0
"""For so long a partition that hangs is waited for: longer than a busy machine takes for the others."""


def coordinator(cluster: Cluster):  # type: ignore[no-untyped-def]
    return cluster.node(cluster.names[0]).runtime.adapters.coordinator


def trim(cluster: Cluster) -> None:
    """Snapshots, and all of the log gone that nobody holds."""
    for name in cluster.names:
        host = cluster.node(name).runtime.host
        assert host is not None
        host.snapshots.policy = msgspec.structs.replace(host.snapshots.policy, keep_records=0)
        for copy in host.copies.values():
            if copy.serving:
                host.snapshots.take(copy)


def test_there_and_back_where_logs_were_trimmed(west: Cluster, east: Cluster) -> None:
    """A log that was trimmed is compared from where this site last stood in it; nothing of that is a fork."""
    west.see(east)
    fly(west, *range(20))
    level(west, east)

    def told() -> bool:
        found = [stands(east, n) for n in NAMES]
        return all(s is not None and s.level and s.checkpoint.state.lsn > 1 for s in found)

    wait_until(told, "standings are level")
    for name in NAMES:  # as the line does once a minute
        hold, at = retention.holds(coordinator(west), name)["site-east"], stands(east, name)
        assert at is not None
        retention.hold(coordinator(west), name, "site-east", retention.Hold(at.checkpoint.offset, hold.until_ms))
    trim(west)
    begins = [west.node(west.names[0]).runtime.adapters.log.bounds(c.tp)[0] for c in _copies(west)]
    assert min(begins) > 0
    switching(east).promote(NAMES)
    east.settle()
    fly(east, *range(20, 30))
    wait_until(lambda: owners(west) == {"east"}, "west mirrors east")
    switching(west).promote(NAMES)
    west.settle()
    fly(west, *range(30, 40))
    wait_until(lambda: owners(east) == {"west"}, "east mirrors west")
    level(west, east)
    assert flights(east) == set(range(40))


def _copies(cluster: Cluster):  # type: ignore[no-untyped-def]
    return list(cluster.node(cluster.names[0]).runtime.copies.values())


def test_nodes_that_lost_only_their_sessions_acknowledge_nothing_that_is_lost(west: Cluster, east: Cluster) -> None:
    """They serve on, as far as they know; the other site fences their log before it takes over."""
    west.see(east)
    fly(west, *range(20))
    level(west, east)
    for name in west.names:
        west.running[name].coordinator.expire(reconnect=False)
    stop, acknowledged = threading.Event(), set()

    def traffic() -> None:
        number = 1_000
        while not stop.is_set():
            number += 1
            try:
                fly(west, number)
            except HalogError:
                time.sleep(0.1)
            else:
                acknowledged.add(number)

    thread = threading.Thread(target=traffic)
    thread.start()
    try:
        time.sleep(0.3)
        switching(east).promote(NAMES)
        east.settle()
        time.sleep(0.5)
    finally:
        stop.set()
        thread.join()
    assert acknowledged
    wait_until(lambda: acknowledged <= flights(east), "what was acknowledged is here")


def test_a_log_that_is_ahead_of_its_znode_is_fenced_too(west: Cluster, east: Cluster) -> None:
    """A coordinator restored from a backup names an older epoch than the nodes write in, which know nothing of it."""
    west.see(east)
    fly(west, *range(20))
    level(west, east)
    for name in west.names:
        west.running[name].coordinator.expire(reconnect=False)
    for name in NAMES:
        table = west.tables()[name]
        version = west.tree.get(f"partitions/{name}")
        assert version is not None
        older = msgspec.structs.replace(table, epoch=NO_EPOCH, active=None)
        west.tree.set(f"partitions/{name}", older.to_bytes(), version.version)
    switching(east).promote(NAMES)
    east.settle()
    with pytest.raises(HalogError):
        fly(west, 1_000)
    assert flights(east) == set(range(20))


def test_a_switch_that_was_killed_half_way_can_be_undone_or_done(west: Cluster, east: Cluster) -> None:
    """West was asked to give, east has not taken. What comes to nothing again leaves the other site as it was; and west
    gets back what it served, without a fork."""
    west.see(east)
    fly(west, *range(5))
    level(west, east)
    for name in NAMES:
        change_table(coordinator(west), name, lambda t: msgspec.structs.replace(t, owner="east"))
    wait_until(lambda: {t.active for t in west.tables().values()} == {None}, "west stops")
    with pytest.raises(DeadlineError, match="not taken over"):
        switching(west, 0.0).promote(NAMES)
    assert {t.owner for t in east.tables().values()} == {"west"}
    assert {t.active for t in east.tables().values()} == {None}
    assert not any(s.may_fork for s in switching(west).promote(NAMES))
    west.settle()
    fly(west, 5)
    wait_until(lambda: owners(east) == {"west"}, "east mirrors west")
    level(west, east)


@pytest.mark.parametrize("paces", [Paces(SitePaces(stuck_s=1.5))])
def test_a_site_that_is_slow_to_give_is_given_the_log_again(
    west: Cluster, east: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a switch to east is undone. West is so slow that east has given its log back before: each would wait for
    the other one."""
    west.see(east)
    fly(west, *range(5))
    level(west, east)
    real, slow = Relinquishment.step, threading.Event()

    def step(self: Relinquishment) -> bool:
        return real(self) if self._host.site == "east" or slow.is_set() else True

    monkeypatch.setattr(Relinquishment, "step", step)
    for name in NAMES:
        change_table(coordinator(west), name, lambda t: msgspec.structs.replace(t, owner="east"))
    wait_until(lambda: {t.active for t in west.tables().values()} == {None}, "west stops")

    def given_back() -> None:
        begun = {n: t.epoch.number for n, t in east.tables().items()}
        wait_until(lambda: all(states(east)[n].owner == "" for n in NAMES), "it is fenced")
        wait_until(lambda: all(states(east)[n].owner == "west" for n in NAMES), "it is given back")
        assert all(t.epoch.number > begun[n] for n, t in east.tables().items())
        slow.set()

    waiting = threading.Thread(target=given_back)
    waiting.start()
    assert not any(s.may_fork for s in switching(west).promote(NAMES))
    waiting.join()
    assert slow.is_set()
    west.settle()
    fly(west, 5)
    level(west, east)


def test_partitions_that_hang_are_waited_for_all_together_and_hold_up_no_other(west: Cluster, east: Cluster) -> None:
    """Nobody mirrors two of three at east. The third one is taken over long before they are given up."""
    west.see(east)
    fly(west, *range(5))
    level(west, east)
    for name in east.names:
        for partition in NAMES[:2]:
            east.node(name).runtime.copies[partition].fail(StoreError("disk full"))
    begun, taken = time.monotonic(), dict[str, float]()
    with pytest.raises(DeadlineError, match="test-0 was not level") as caught:
        switching(east, HANGS_S).promote(NAMES, done=lambda s: taken.update({s.partition: time.monotonic() - begun}))
    assert time.monotonic() - begun < 2 * HANGS_S
    assert "test-1" in caught.value.message
    assert list(taken) == ["test-2"]
    assert taken["test-2"] < HANGS_S
    assert {n: t.owner for n, t in east.tables().items()} == {"test-0": "west", "test-1": "west", "test-2": ""}
    assert {n: t.owner for n, t in west.tables().items()} == {"test-0": "", "test-1": "", "test-2": "east"}


def test_a_log_that_does_not_take_its_fence_holds_up_no_other_though_few_fence_at_once(
    west: Cluster, east: Cluster
) -> None:
    """With `may_fork` what hangs is taken over as it is."""
    west.see(east)
    fly(west, *range(5))
    level(west, east)

    class Hangs(CatchUp):
        """The log of the first one never answers the fence."""

        def step(self, *, may_fence: bool = True) -> bool:
            hangs = self.partition == "test-0" and self.fencing_since is not None
            return not hangs and super().step(may_fence=may_fence)

    begun, taken = time.monotonic(), dict[str, float]()
    found = switching(east, HANGS_S, level_by=Hangs, at_once=1, hangs_s=0.3).promote(
        NAMES, may_fork=True, done=lambda s: taken.update({s.partition: time.monotonic() - begun})
    )
    assert [(s.partition, s.may_fork) for s in found] == [("test-0", True), ("test-1", False), ("test-2", False)]
    assert max(taken["test-1"], taken["test-2"]) < HANGS_S <= taken["test-0"] < 2 * HANGS_S


@pytest.mark.parametrize("paces", [Paces(SitePaces(stale_s=0.5, report_s=0.1))])
def test_another_node_mirrors_where_the_first_ones_copy_is_broken(west: Cluster, east: Cluster) -> None:
    fly(west, *range(5))
    level(west, east)
    first = east.tables()["test-0"].configured[0]
    other = next(n for n in east.names if n != first)
    east.node(first).runtime.copies["test-0"].fail(StoreError("disk full"))
    fly(west, *range(5, 40))
    copy = east.node(other).runtime.copies["test-0"]
    wait_until(lambda: copy.core.state.chain.state.lsn == states(west)["test-0"].lsn, "the other one mirrors")


def test_a_node_that_was_restarted_serves_nothing_of_its_last_run(west: Cluster, east: Cluster) -> None:
    """Registered again under its name, and not asked by the others whether it is the run that the table names."""
    west.see(east)
    fly(west, *range(5))
    level(west, east)
    switching(east).promote(NAMES, may_fork=True)
    runtime = west.node(west.names[0]).runtime
    table = msgspec.structs.replace(west.tables()["test-0"], owner="", active=Member("west-B", 1))
    assert Member("west-B", 1) not in running(coordinator(west))
    found = returned(
        runtime.config, coordinator(west), runtime.adapters.reach, {"test-0": (0, table)}, Member("west-A", 7)
    )
    assert found["test-0"][1].owner == "east"


def test_a_partition_of_another_history_is_not_given_away(west: Cluster, east: Cluster) -> None:
    """A home that was set up anew is not the site whose log is mirrored elsewhere."""
    west.see(east)
    fly(west, *range(5))
    level(west, east)
    switching(east).promote(NAMES)
    runtime = west.node(west.names[0]).runtime
    table = msgspec.structs.replace(west.tables()["test-0"], owner="", active=None, log_id="ab" * 16)
    tables = {"test-0": (0, table)}
    found = returned(runtime.config, coordinator(west), runtime.adapters.reach, tables, Member("west-A", 7))
    assert found == tables


@pytest.mark.parametrize("paces", [Paces(SitePaces(retry_s=0.5))])
def test_one_partition_that_cannot_be_mirrored_holds_up_no_other(west: Cluster, east: Cluster) -> None:
    fly(west, *range(5))
    level(west, east)
    for name in east.names:
        east.kill(name)
    change_table(coordinator(west), "test-0", lambda t: t)
    broken = east.tree.get("mirrors/test-0")
    if broken is not None:
        east.tree.set("mirrors/test-0", b"{}", broken.version)
    east.start()
    fly(west, *range(5, 40))
    others = {n: s for n, s in heads(west).items() if n != "test-0"}

    def mirrored() -> bool:
        here = heads(east)
        return all(here[n] == heads(west)[n] for n in others)

    wait_until(mirrored, "the others are mirrored")


def test_a_mirror_whose_log_was_fenced_gives_it_away_again(west: Cluster, east: Cluster) -> None:
    """As somebody's takeover from there leaves it that came to nothing: also where nothing more is to be mirrored."""
    west.see(east)
    fly(west, *range(5))
    level(west, east)
    remote = west.node(west.names[0]).runtime.adapters.reach("east")
    for name in NAMES:
        one = CatchUp(coordinator(west), remote, name)
        wait_until(lambda one=one: one.step() or one.fenced is not None, "the fence is there")  # type: ignore[misc]
    remote.close()

    def mirrors_again() -> bool:
        return all(s.owner == "west" and s.fenced for s in states(east).values())

    wait_until(mirrors_again, "east's log is west's again")
    fly(west, *range(5, 10))
    level(west, east)
    assert flights(east) == set(range(10))
