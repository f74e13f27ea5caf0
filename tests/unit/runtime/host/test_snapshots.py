"""Snapshots that meet failovers: what a restore finds is never older than what the marker says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from halog.adapters.memory import MemoryDisk, MemoryStore
from halog.core.log.chain import ChainState
from halog.errors import LaterRecordError, LogError, RefusedError
from halog.runtime.host.snapshotter import Snapshots, SnapshotSizes
from halog.runtime.node.paces import PACES, Paces
from halog.runtime.replica.driver import Copy
from halog.runtime.store.object_table import ObjectTable
from halog.runtime.topics.state_topic import SnapshotMark, marked_up_to
from halog.testing.cluster import Cluster, wait_until
from tests.unit.counting import REGISTRY, Counter


@pytest.fixture
def paces() -> Paces:
    return PACES


@pytest.fixture
def cluster(paces: Paces) -> Iterator[Cluster]:
    with Cluster(2, partitions=1, registry=REGISTRY, paces=paces) as cluster:
        with cluster.client().transaction() as tx:
            tx.create(Counter("c"))
        yield cluster


def on(cluster: Cluster, name: str) -> tuple[Snapshots, Copy]:
    host = cluster.node(name).runtime.host
    assert host is not None
    return host.snapshots, host.copies["test-0"]


def put(cluster: Cluster, value: int) -> None:
    with cluster.client().transaction() as tx:
        tx.get(Counter, "c").value = value


def state(cluster: Cluster, name: str) -> dict[bytes, bytes | None]:
    """The state topic as a restore would see it."""
    taker, copy = on(cluster, name)
    return dict(taker.log.read_keyed(taker.state_tp(copy)))


@pytest.mark.feature("N4", "R1")
@pytest.mark.parametrize("step", ["_writer", "_changes", "_mark"])
def test_a_deposed_node_that_does_not_know_it_writes_nothing_old_over_a_newer_snapshot(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """It is stopped behind its look at the store, before `step`; another node takes over, and takes a snapshot."""
    old = cluster.active_for(Counter, "c")
    (new,) = {"A", "B"} - {old}
    put(cluster, 1)
    taker, copy = on(cluster, old)
    real = getattr(taker, step)
    after: list[dict[bytes, bytes | None]] = []

    def stopped(*args: Any) -> Any:
        if not after:
            cluster.node(old).runtime.operators.hand_over("test-0", new)
            put(cluster, 2)
            Snapshots.take(*on(cluster, new))
            after.append(state(cluster, new))
        return real(*args)

    monkeypatch.setattr(taker, step, stopped)
    with pytest.raises(RefusedError):
        taker.take(copy)
    assert state(cluster, old) == after[0]


@pytest.mark.feature("N4", "R1")
def test_a_snapshot_goes_on_with_no_other_writer_than_it_was_begun_with(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new one would fence whoever is newer, with no look at who that is."""
    old = cluster.active_for(Counter, "c")
    (new,) = {"A", "B"} - {old}
    taker, copy = on(cluster, old)
    real = taker._changes

    def retired(*args: Any) -> Any:
        taker.retire(copy)
        cluster.node(old).runtime.operators.hand_over("test-0", new)
        put(cluster, 2)
        Snapshots.take(*on(cluster, new))
        return real(*args)

    monkeypatch.setattr(taker, "_changes", retired)
    with pytest.raises(RefusedError, match="given up"):
        taker.take(copy)


@pytest.mark.feature("N4")
@pytest.mark.parametrize("paces", [Paces(snapshots=SnapshotSizes(block=2, keep=10))])
def test_outcomes_too_old_to_be_asked_for_leave_the_topic_whole(cluster: Cluster) -> None:
    name = cluster.active_for(Counter, "c")
    for turn in range(4):
        for i in range(15):
            put(cluster, 100 * turn + i)
        Snapshots.take(*on(cluster, name))
    lsn = on(cluster, name)[1].core.state.chain.state.lsn
    blocks = [int.from_bytes(k[1:], "big") for k, v in state(cluster, name).items() if k[:1] == b"t" and v]
    assert min(blocks) == (lsn - 10) // 2
    assert sorted(blocks) == list(range(min(blocks), lsn // 2 + 1))


@pytest.mark.feature("N4")
def test_a_deleted_object_leaves_nothing_in_the_state_topic(cluster: Cluster) -> None:
    name = cluster.active_for(Counter, "c")
    Snapshots.take(*on(cluster, name))
    with cluster.client().transaction() as tx:
        tx.delete(tx.get(Counter, "c"))
    Snapshots.take(*on(cluster, name))
    assert [v for k, v in state(cluster, name).items() if k[:1] == b"k"] == [None]


@pytest.mark.feature("N4", "D1")
@pytest.mark.parametrize("counting", [True, False], ids=["counted", "from the store"])
def test_a_key_deleted_and_created_again_is_in_the_state_topic(cluster: Cluster, counting: bool) -> None:
    """It is one key: its deletion must not be written behind the new instance."""
    name = cluster.active_for(Counter, "c")
    taker, copy = on(cluster, name)
    taker.take(copy)
    with cluster.client().transaction() as tx:
        tx.delete(tx.get(Counter, "c"))
    with cluster.client().transaction() as tx:
        again = tx.ref(tx.create(Counter("c"))).raw
    if not counting:
        taker.retire(copy)
    taker.take(copy)
    (stored,) = [v for k, v in state(cluster, name).items() if k[:1] == b"k"]
    assert stored is not None
    assert again in stored


@pytest.mark.feature("N4")
def test_a_state_topic_that_was_created_again_gets_everything(cluster: Cluster) -> None:
    """ZooKeeper still knows how far the old one was complete."""
    name = cluster.active_for(Counter, "c")
    taker, copy = on(cluster, name)
    with cluster.client().transaction() as tx:
        tx.create(Counter("d"))
    for _ in range(5):
        put(cluster, 1)
        taker.take(copy)
    topic = taker.state_tp(copy).topic
    for forgetful in (False, True):  # the node that took it, and one that only reads ZooKeeper
        cluster.broker._topics.pop(topic)
        cluster.broker.ensure(topic, 1, True)
        put(cluster, 2)
        if forgetful:
            taker.retire(copy)
        taker.take(copy)
        assert sum(k[:1] == b"k" for k in state(cluster, name)) == 2


@pytest.mark.feature("N4")
@pytest.mark.parametrize("mark", [b"%d 5", b"%d 5 5", b"%d 5 5 1", b"%d 5 5 2 new", b"%d 5 5 two"])
def test_a_mark_of_another_format_counts_as_none(cluster: Cluster, mark: bytes) -> None:
    """What it stands for cannot be read: everything is written, also what did not change, and marked anew."""
    with cluster.client().transaction() as tx:
        tx.create(Counter("d"))
    taker, copy = on(cluster, cluster.active_for(Counter, "c"))
    taker.take(copy)
    path, tp = taker._path(copy), taker.state_tp(copy)
    found = taker.coordinator.get(path)
    assert found is not None
    lsn = int(found.data.split()[0])
    taker.coordinator.set(path, mark % lsn, found.version)
    taker.retire(copy)
    end = taker.log.bounds(tp)[1]
    put(cluster, 5)
    taker.take(copy)
    assert sum(key[:1] == b"k" for key, _ in taker.log.read_keyed(tp, end)) == 2
    again = taker.coordinator.get(path)
    assert again is not None
    assert again.data.split()[0::3] == [b"%d" % (lsn + 1), b"2"]


def without_format(marker: bytes) -> bytes:
    return msgspec.msgpack.encode({"position": msgspec.msgpack.decode(marker)["position"]})


def of_a_later_format(marker: bytes) -> bytes:
    return msgspec.msgpack.encode({"position": "elsewhere", "format": 5})


@pytest.mark.feature("N4", "P10")
@pytest.mark.parametrize(
    ("changed", "error", "says"),
    [
        (without_format, LogError, "none of format 2"),
        (of_a_later_format, LaterRecordError, "has a marker of format 5, which a later version of halog wrote"),
    ],
)
def test_a_snapshot_of_another_format_is_not_restored(
    cluster: Cluster, changed: Callable[[bytes], bytes], error: type[LogError], says: str
) -> None:
    """Its objects would be missing, or be taken for others. The log says it all; where it is trimmed, that is said."""
    taker, copy = on(cluster, cluster.active_for(Counter, "c"))
    taker.take(copy)
    marker = state(cluster, copy.node.me.node)[b"p"]
    assert marker is not None
    cluster.broker.write(taker.state_tp(copy), [(b"p", changed(marker), {})], marker=False)
    fresh = Fresh(cluster)
    assert fresh.restore() == 0, "it is read from the log"
    assert list(fresh.store.scan(b"")) == []
    taker.log.trim(copy.tp, 2)
    with pytest.raises(error, match=says) as caught:
        fresh.restore()
    assert type(caught.value) is error


@pytest.mark.feature("U1", "N4")
def test_a_row_of_a_kind_that_a_later_version_wrote_is_not_passed_over(cluster: Cluster) -> None:
    """It may be what becomes of an object. The store of the copy that was to be made anew stays as it was."""
    taker, copy = on(cluster, cluster.active_for(Counter, "c"))
    taker.take(copy)
    fresh = Fresh(cluster)
    assert fresh.restore() > 0
    before = list(fresh.store.scan(b""))
    cluster.broker.write(taker.state_tp(copy), [(b"z and more", b"whatever it says", {})], marker=False)
    with pytest.raises(LaterRecordError, match="has a row of kind 7a, which a later version of halog wrote"):
        fresh.restore()
    assert list(fresh.store.scan(b"")) == before
    cluster.broker.write(taker.state_tp(copy), [(b"z and more", None, {})], marker=False)
    assert fresh.restore() > 0


@pytest.mark.feature("U1", "N4")
def test_fields_of_a_later_version_in_a_marker_are_passed_over(cluster: Cluster) -> None:
    """Its format says that this version reads it."""
    taker, copy = on(cluster, cluster.active_for(Counter, "c"))
    taker.take(copy)
    marker = state(cluster, copy.node.me.node)[b"p"]
    assert marker is not None
    more = msgspec.msgpack.encode({**msgspec.msgpack.decode(marker), "note": "of a later version"})
    cluster.broker.write(taker.state_tp(copy), [(b"p", more, {})], marker=False)
    assert Fresh(cluster).restore() == copy.core.state.chain.state.lsn


@pytest.mark.feature("U1", "N4")
def test_a_node_that_needs_a_snapshot_of_a_later_version_is_up_without_that_copy(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """It says why, once, and asks for nothing else."""
    taker, copy = on(cluster, cluster.active_for(Counter, "c"))
    taker.take(copy)
    marker = state(cluster, copy.node.me.node)[b"p"]
    assert marker is not None
    other = next(name for name in cluster.names if name != copy.node.me.node)
    cluster.kill(other)
    cluster.disks[other] = MemoryDisk(other)
    cluster.broker.write(taker.state_tp(copy), [(b"p", of_a_later_format(marker), {})], marker=False)
    taker.log.trim(copy.tp, 2)
    cluster.restart(other)
    wait_until(lambda: copy.name in cluster.node(other).runtime.copies, "it has looked at all copies")
    stopped = cluster.node(other).runtime.copies[copy.name]
    assert isinstance(stopped.error, LaterRecordError)
    assert "a marker of format 5" in str(stopped.error)
    put(cluster, 3)
    assert caplog.text.count("HALOG-1127") == 1


@pytest.mark.feature("U1", "N4")
def test_who_mirrors_writes_nothing_over_a_snapshot_of_a_later_version(cluster: Cluster) -> None:
    """How far that goes cannot be read: it may be further than this copy."""
    taker, copy = on(cluster, cluster.active_for(Counter, "c"))
    taker.take(copy)
    log, tp = taker.log, taker.state_tp(copy)
    log_id = copy.core.state.chain.state.log_id
    assert marked_up_to(log, tp, SnapshotMark(), log_id) == copy.core.state.next_offset
    marker = state(cluster, copy.node.me.node)[b"p"]
    assert marker is not None
    cluster.broker.write(tp, [(b"p", of_a_later_format(marker), {})], marker=False)
    with pytest.raises(LaterRecordError, match="a marker of format 5"):
        marked_up_to(log, tp, SnapshotMark(), log_id)


class Fresh:
    """A copy with an empty store of its own, and what restores it."""

    def __init__(self, cluster: Cluster) -> None:
        self.taker, model = on(cluster, cluster.active_for(Counter, "c"))
        self.table = model.core.state.table
        self.store = MemoryStore()
        self.copy = Copy(model.node, 0, self.table)
        self.copy.objects = ObjectTable(self.store, bytes.fromhex(self.table.log_id), self.copy.lock)

    def restore(self, log_id: str = "") -> int:
        """The lsn it goes on from."""
        empty = ChainState(bytes.fromhex(log_id or self.table.log_id), "s")
        state, next_offset, outcomes, last_offset = self.taker.restore(self.copy, self.table.policy, empty)
        stored = self.copy.objects.load_position()
        if stored is not None:
            assert (stored.state, stored.next_offset, stored.last_offset) == (state, next_offset, last_offset)
            assert self.copy.objects.load_outcomes().items() == outcomes.items()
        return state.lsn

    def names(self) -> list[str]:
        info = REGISTRY.info(Counter)
        return [info.decode(found.value)["name"] for found in self.copy.objects.scan(info.family_id)]


@pytest.mark.feature("N4")
def test_a_restored_copy_is_whole(cluster: Cluster) -> None:
    """Several snapshots, an object deleted and one made anew under the same key: the last of each, its index, the
    outcomes, and in the same step the position."""
    name = cluster.active_for(Counter, "c")
    for turn in range(3):
        with cluster.client().transaction() as tx:
            tx.create(Counter(f"n{turn}", turn))
            tx.delete(tx.get(Counter, "c"))
        with cluster.client().transaction() as tx:
            tx.create(Counter("c", turn))
        Snapshots.take(*on(cluster, name))
    fresh = Fresh(cluster)
    assert fresh.restore() == on(cluster, name)[1].core.state.chain.state.lsn
    assert fresh.names() == ["c", "n0", "n1", "n2"]
    found = fresh.copy.objects.find(REGISTRY.info(Counter).index_key(("c",)))
    assert found is not None
    assert REGISTRY.info(Counter).decode(found.value)["value"] == 2


@pytest.mark.feature("N4", "P10")
@pytest.mark.parametrize("step", ["read", "store"])
def test_a_restore_that_dies_half_way_leaves_nothing_and_is_made_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Whether the topic breaks off or the store's items do: there is no position without its objects, nor objects."""
    Snapshots.take(*on(cluster, cluster.active_for(Counter, "c")))
    fresh = Fresh(cluster)
    log, store = fresh.taker.log, fresh.store
    read, fill = log.read_keyed, store.fill

    def broken(items: Any) -> Iterator[Any]:
        yield next(iter(items))
        raise LogError("broken off")

    with monkeypatch.context() as patch:
        if step == "read":
            patch.setattr(log, "read_keyed", lambda tp: broken(read(tp)))
        else:
            patch.setattr(store, "fill", lambda items: fill(broken(items)))
        with pytest.raises(LogError, match="broken off"):
            fresh.restore()
    assert list(store.scan(b"")) == []
    assert fresh.restore() > 0
    assert fresh.names() == ["c"]


@pytest.mark.feature("N4")
def test_a_snapshot_of_another_log_is_not_taken_for_this_ones(cluster: Cluster) -> None:
    """The state topic outlived the log it belongs to: the copy begins empty."""
    Snapshots.take(*on(cluster, cluster.active_for(Counter, "c")))
    fresh = Fresh(cluster)
    assert fresh.restore(log_id="00" * 16) == 0
    assert list(fresh.store.scan(b"")) == []


@pytest.mark.feature("N4", "R8")
def test_a_snapshot_of_large_objects_is_written_in_transactions_of_some_megabytes(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few objects that are: an open transaction hides its rows from readers, and its bytes are held twice."""
    taker, copy = on(cluster, cluster.active_for(Counter, "c"))
    written: list[list[int]] = []

    class Writer:
        def write(self, tp: object, chunk: list[tuple[bytes, bytes, dict[str, bytes]]]) -> None:
            written.append([len(value) for _, value, _ in chunk])
            seen.extend((key, value) for key, value, _ in chunk)

    seen: list[tuple[bytes, bytes]] = []
    monkeypatch.setattr(taker, "_checked_writer", lambda copy: Writer())
    monkeypatch.setattr(taker.log, "read_keyed", lambda tp, start: seen)
    rows = ((b"k%d" % i, bytes(2_000_000), dict[str, bytes]()) for i in range(50))
    taker._write(copy, rows)
    assert sum(map(len, written)) == 50
    assert max(map(sum, written)) <= 16_000_000
