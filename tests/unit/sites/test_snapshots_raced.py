"""Snapshots at a site that only mirrors, where two take them, or the site changes: never older than the last."""

from __future__ import annotations

import msgspec
import pytest

from halog.core.sites.mirror import Checkpoint
from halog.errors import LogError, RefusedError
from halog.metadata import log_holds as retention, mirror_starts as places
from halog.runtime.host.snapshotter import MARKER, Snapshots
from halog.runtime.replica.driver import Copy
from halog.runtime.sites.mirror_assignment import MirrorAssignment, MirrorDuties
from halog.testing.cluster import Cluster, wait_until
from tests.unit.sites.model import Flight
from tests.unit.sites.snapshotting import begins, calm, east, level, lose, marked, newest, on, same, stopped_at, topic
from tests.unit.sites.test_hindered import coordinator
from tests.unit.sites.test_switching import NAMES, owners, switching
from tests.unit.sites.two import flights, fly, stands, states, west

pytestmark = pytest.mark.feature("M5")
__all__ = ["calm", "east", "west"]


def ahead(west: Cluster, cluster: Cluster, name: str, number: int) -> tuple[Snapshots, Copy]:
    """What a node has once it has read another commit of the home."""
    before = newest(west, "test-0").lsn
    while newest(west, "test-0").lsn == before:
        fly(west, number)
        number += 1
    taker, copy = on(cluster, name)
    wait_until(lambda: copy.core.state.chain.state.lsn > before, f"{name} reads on")
    return taker, copy


@pytest.mark.feature("N4", "R1")
@pytest.mark.parametrize("step", ["_writer", "_changes", "_mark"])
def test_a_stale_copy_writes_nothing_old_over_a_newer_snapshot(
    west: Cluster, calm: Cluster, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Before its writer is made the look at the marker tells it; behind that look the newer writer has fenced it."""
    fly(west, *range(10))
    level(west, calm)
    old, new = calm.names
    taker, copy = on(calm, old)
    after: list[dict[bytes, bytes | None]] = []

    def meanwhile() -> None:
        Snapshots.take(*ahead(west, calm, new, 100))
        after.append(topic(calm))

    stopped_at(step, taker, monkeypatch, meanwhile)
    with pytest.raises(RefusedError, match="behind its snapshot" if step == "_writer" else "newer writer"):
        taker.take(copy)
    assert topic(calm) == after[0]
    lose(calm, old)
    same(west, calm, old)


@pytest.mark.feature("N4", "R1")
def test_a_marker_that_the_coordinator_does_not_know_yet_counts(
    west: Cluster, calm: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer died before it could say so; the state topic tells."""
    fly(west, *range(10))
    level(west, calm)
    old, new = calm.names
    taker, copy = on(calm, old)
    after: list[dict[bytes, bytes | None]] = []

    def meanwhile() -> None:
        other, its = ahead(west, calm, new, 100)
        with monkeypatch.context() as patch:
            patch.setattr(other, "_read_mark", dies)
            with pytest.raises(LogError, match="died"):
                other.take(its)
        after.append(topic(calm))

    def dies(copy: Copy) -> None:
        if MARKER in topic(calm):
            raise LogError("died")

    stopped_at("_writer", taker, monkeypatch, meanwhile)
    with pytest.raises(RefusedError, match="behind its snapshot"):
        taker.take(copy)
    assert topic(calm) == after[0]
    assert calm.tree.get("snapshots/test-0") is None


@pytest.mark.feature("N4", "R1")
def test_rows_without_a_marker_may_be_overwritten_by_who_is_behind_them(
    west: Cluster, calm: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects changed, deleted and created behind the older marker come from the log again."""
    fly(west, *range(12))
    level(west, calm)
    old, new = calm.names
    Snapshots.take(*on(calm, new))
    here = [n for n in range(12) if west.partition_of(Flight, n) == "test-0"]
    change(west, here[0], "seen by both")
    level(west, calm)
    taker, copy = on(calm, old)
    wait_until(lambda: copy.core.state.chain.state.hash == newest(west, "test-0").hash, "it is level")

    def meanwhile() -> None:
        change(west, here[0], "seen by one")
        change(west, here[1], "seen by one")
        with west.node(west.names[0]).transaction() as tx:
            tx.delete(tx.get(Flight, here[2]))
        other, its = ahead(west, calm, new, 100)
        with monkeypatch.context() as patch:
            patch.setattr(other, "_mark", dies)
            with pytest.raises(LogError, match="died"):
                other.take(its)
        assert sum(value is None for value in topic(calm).values()) == 1

    def dies(*args: object) -> None:
        raise LogError("died")

    stopped_at("_writer", taker, monkeypatch, meanwhile)
    taker.take(copy)
    assert marked(calm)[1].lsn < newest(west, "test-0").lsn
    for name in calm.names:
        lose(calm, name)
        same(west, calm, name)


def change(cluster: Cluster, number: int, note: str) -> None:
    with cluster.node(cluster.names[0]).transaction() as tx:
        tx.get(Flight, number).note = note


@pytest.mark.feature("N4")
def test_two_that_both_take_snapshots_all_the_time_hurt_nobody(
    west: Cluster, east: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MirrorAssignment, "_is_mine", lambda self, copy: bool(copy.core.state.table.owner))
    monkeypatch.setattr(MirrorDuties, "is_told", lambda self, copy: True)
    flown = 0
    for _ in range(4):
        fly(west, *range(flown, flown + 15))
        flown += 15
        level(west, east)
        for name in east.names:
            lose(east, name)
            same(west, east, name)
    wait_until(lambda: min(begins(east).values()) > 0, "somebody's count")
    assert flights(east) == set(range(flown))


@pytest.mark.feature("N4")
def test_of_two_that_would_mirror_the_one_that_is_told_takes_snapshots(west: Cluster, east: Cluster) -> None:
    fly(west, *range(5))
    level(west, east)
    first = east.tables()["test-0"].present[0]
    (other,) = set(east.names) - {first}
    mirrors, copy = on(east, first)[0].mirrors, on(east, first)[1]
    others, its = on(east, other)[0].mirrors, on(east, other)[1]
    assert mirrors is not None
    assert others is not None
    wait_until(lambda: mirrors.is_wanted(copy) and mirrors.is_told(copy), "the first one mirrors")
    wait_until(lambda: not others.is_wanted(its) and not others.is_told(its), "the other one does not")
    found = stands(east)
    assert found is not None
    for said in ({"error": "its line is cut"}, {"site": "north"}, {"by": other}):
        at = east.tree.get("mirrors/test-0")
        assert at is not None
        east.cut()
        wait_until(lambda: mirrors.is_told(copy), "as before")
        now = east.tree.get("mirrors/test-0")
        assert now is not None
        east.tree.set("mirrors/test-0", msgspec.json.encode(msgspec.structs.replace(found, **said)), now.version)
        assert not mirrors.is_told(copy)
        east.mend()
        wait_until(lambda: mirrors.is_told(copy), "it mirrors, and says so")


# --- the log changes hands meanwhile ---


@pytest.mark.feature("N4", "R1")
@pytest.mark.parametrize("marks", [True, False], ids=["and has marked", "and has not marked yet"])
@pytest.mark.parametrize("step", ["_writer", "_changes", "_mark"])
def test_this_site_takes_over_while_a_snapshot_is_under_way(
    west: Cluster, calm: Cluster, monkeypatch: pytest.MonkeyPatch, step: str, marks: bool
) -> None:
    """What the active node has marked stays; else the mirror's may still come, and goes on to what is served."""
    fly(west, *range(10))
    level(west, calm)
    first, second = calm.tables()["test-0"].present
    taker, copy = on(calm, second)
    after: list[dict[bytes, bytes | None]] = []

    def meanwhile() -> None:
        switching(calm).promote(NAMES)
        calm.settle()
        if calm.tables()["test-0"].node_list[0] != first:
            calm.node(second).runtime.operators.hand_over("test-0", first)
        fly(calm, *range(10, 20))
        if marks:
            Snapshots.take(*on(calm, first))
            after.append(topic(calm))

    stopped_at(step, taker, monkeypatch, meanwhile)
    if marks:
        with pytest.raises(RefusedError):
            taker.take(copy)
        assert topic(calm) == after[0]
    else:
        taker.take(copy)
        assert marked(calm)[1].owner == "west"
    for name in calm.names:
        lose(calm, name)
        wait_until(lambda: flights(calm) == set(range(20)), "everything is here")
    active = calm.tables()["test-0"].active
    assert active is not None
    Snapshots.take(*on(calm, active.node))
    assert marked(calm)[1].owner == ""
    lose(calm, calm.names[1])
    wait_until(lambda: flights(calm) == set(range(20)), "everything is here")


@pytest.mark.feature("N4", "R1")
def test_a_copy_that_has_read_that_its_site_took_over_takes_none_as_a_mirror(west: Cluster, calm: Cluster) -> None:
    fly(west, *range(10))
    level(west, calm)
    switching(calm).promote(NAMES)
    calm.settle()
    active = calm.tables()["test-0"].active
    assert active is not None
    (other,) = set(calm.names) - {active.node}
    taker, copy = on(calm, other)
    with pytest.raises(RefusedError, match="its active node"):
        taker.take(copy)
    assert topic(calm) == {}


@pytest.mark.feature("N4", "R1")
@pytest.mark.parametrize("step", ["_writer", "_changes", "_mark"])
def test_a_node_that_was_active_writes_nothing_old_once_its_site_mirrors(
    west: Cluster, calm: Cluster, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    fly(west, *range(10))
    level(west, calm)
    active = west.tables()["test-0"].active
    assert active is not None
    (other,) = set(west.names) - {active.node}
    taker, copy = on(west, active.node)
    after: list[dict[bytes, bytes | None]] = []

    def meanwhile() -> None:
        switching(calm).promote(NAMES)
        calm.settle()
        wait_until(lambda: owners(west) == {"east"}, "west mirrors east")
        fly(calm, *range(10, 20))
        level(west, calm)
        its = on(west, other)
        wait_until(lambda: its[1].core.state.chain.state.lsn == newest(calm, "test-0").lsn, "the other one is level")
        its[0].take(its[1])
        after.append(topic(west))

    stopped_at(step, taker, monkeypatch, meanwhile)
    with pytest.raises(RefusedError):
        taker.take(copy)
    assert topic(west) == after[0]


# --- what is kept of the log ---


def test_the_log_is_kept_for_who_holds_it(west: Cluster, calm: Cluster) -> None:
    fly(west, *range(30))
    level(west, calm)
    taker, copy = on(calm, calm.names[0])
    retention.hold(coordinator(calm), "test-0", "job", retention.Hold(4, 0, "a test"))
    taker.take(copy)
    assert begins(calm)["test-0"] == 4
    retention.release(coordinator(calm), "test-0", "job")
    fly(west, *range(30, 50))
    level(west, calm)
    taker.take(copy)
    offset, state = marked(calm)
    assert begins(calm)["test-0"] == offset - 1
    place = places.offered(coordinator(calm), "test-0")
    assert place is not None
    assert (place.offset, place.state) == (offset, state)


def test_once_this_site_has_taken_over_its_log_is_kept_for_the_other_one_from_the_place_it_offers(
    west: Cluster, calm: Cluster
) -> None:
    """However often the active node takes snapshots before the other site comes."""
    fly(west, *range(30))
    level(west, calm)
    for name in NAMES:
        taker, copy = on(calm, calm.names[0], name)
        taker.take(copy)
    before = begins(calm)
    assert min(before.values()) > 0
    for name in west.names:
        west.kill(name)
    calm.cut()
    switching(calm).promote(NAMES, may_fork=True)
    calm.settle()
    for turn in range(3):
        fly(calm, *range(100 + 10 * turn, 110 + 10 * turn))
        for name in NAMES:
            active = calm.tables()[name].active
            assert active is not None
            Snapshots.take(*on(calm, active.node, name))
    assert begins(calm) == before
    calm.mend()
    west.start()
    wait_until(lambda: owners(west) == {"east"}, "west mirrors east")
    level(west, calm)
    assert flights(west) == {*range(30), *range(100, 130)}


@pytest.mark.feature("P11")
def test_a_decided_transaction_over_several_partitions_does_not_keep_the_log(west: Cluster, calm: Cluster) -> None:
    """Which participants have confirmed it, only the home knows; a copy made from the snapshot has the decision."""
    with west.node(west.names[0]).transaction() as tx:
        for number in range(12):
            tx.create(Flight(number))
    level(west)  # all have the decision, and more behind it
    fly(west, *range(12, 30))
    level(west, calm)
    for name in NAMES:
        taker, copy = on(calm, calm.names[0], name)
        assert copy.core.state.ledger.decided
        taker.take(copy)
        assert begins(calm)[name] > max(d.offset for d in copy.core.state.ledger.decided.values())
    lose(calm, calm.names[1])
    same(west, calm, calm.names[1])
    for name in NAMES:
        here, there = (
            on(calm, calm.names[1], name)[1].core.state.ledger,
            on(west, west.names[0], name)[1].core.state.ledger,
        )
        assert here.decided.keys() == there.decided.keys()


def test_a_place_never_goes_back_and_is_replaced_where_the_history_is_another(calm: Cluster, west: Cluster) -> None:
    c, state = coordinator(calm), states(west)["test-0"]
    other = msgspec.structs.replace(state, log_id=b"x" * 16)
    for offset, said, expected in ((5, state, 5), (3, state, 5), (7, state, 7), (2, other, 2)):
        places.offer(c, "p", Checkpoint(offset, said))
        found = places.offered(c, "p")
        assert found is not None
        assert found.offset == expected
    assert not places.leads_on(Checkpoint(2, other), state, 0)
    assert not places.leads_on(Checkpoint(2, state), state, 3)
    assert places.leads_on(Checkpoint(3, state), state, 3)
    c.create("places/q", b"{}")
    assert places.offered(c, "q") is None
    places.offer(c, "q", Checkpoint(1, state))
    assert places.offered(c, "q") is not None
