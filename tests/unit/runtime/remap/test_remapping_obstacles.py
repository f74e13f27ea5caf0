"""Something is in the way of a change: it is named, holds up nothing else, and is forgotten with the change (T8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from halog.backend import Work
from halog.core.keys.mapping import MappingChange
from halog.errors import HalogError, MapperError, RecordTooLargeError, RefusedError
from halog.runtime.remap.mover import Mover
from halog.runtime.remap.remap_driver import RemapDriver
from halog.testing.cluster import Cluster, wait_until
from tests.unit.runtime.keys.remapped import (
    POLICY,
    TYPES,
    Counter,
    begin,
    changed,
    check,
    cluster_of,
    mapping,
    places,
    wait_done,
    where,
)

pytestmark = pytest.mark.feature("P13")


def misplaced(cluster: Cluster) -> set[str]:
    """Keys of objects that are not where they belong, or just on their way."""
    at = places(cluster, cluster.config)
    info = TYPES.info(Counter)
    found = where(cluster)
    routing = {key: info.routing_key(info.decode_index_key(bytes.fromhex(key))) for key in found}
    return {key for key, there in found.items() if [p for p, _ in there] != [at("Counter", routing[key])]}


def problems(cluster: Cluster) -> list[str]:
    remapping: Any = cluster.node("A").runtime.remapping
    return list(remapping.view()["problems"])


@pytest.mark.parametrize("how", ["mapped", "moved"])
def test_an_object_that_cannot_be_mapped_or_moved_holds_up_no_other(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster_of(1, sync_replicas=0) as cluster:
        cluster.client().load([Counter(f"c{i}") for i in range(60)])
        old, cluster.config = cluster.config, changed(cluster.config, ring_size=999)
        stuck, cluster.config = bytes.fromhex(min(misplaced(cluster))), old
        mover: Any = cluster.node("A").runtime.mover
        commit = mover._commit

        def fails(of: Mover, found: Any, *args: Any) -> Any:
            if found.key == stuck:
                raise MapperError("the mapper knows no such key")
            return Mover.misplaced(of, found, *args)

        def refuses(tx: bytes, works: Mapping[str, Work]) -> Any:
            if any(w.key == stuck for work in works.values() for w in work.writes):
                raise RecordTooLargeError("one object is too large")
            return commit(tx, works)

        with monkeypatch.context() as patched:
            if how == "mapped":
                patched.setattr(mover, "misplaced", lambda *args: fails(mover, *args))
            else:
                patched.setattr(mover, "_commit", refuses)
            begin(cluster, ring_size=999)
            wait_until(lambda: misplaced(cluster) == {stuck.hex()}, "the others do not move")
            wait_until(lambda: len(problems(cluster)) == 1, "nobody says why")
            assert "objects do not move yet: " in problems(cluster)[0]
            assert ("no such key" if how == "mapped" else "too large") in problems(cluster)[0]
            with pytest.raises(HalogError, match=r"no such key|too large"):
                place = where(cluster)[stuck.hex()][0][0]
                mover.move(place, [stuck])
            assert mapping(cluster).next is not None
        wait_done(cluster, 1)
        check(cluster, cluster.config)
        nothing = {"moved": {}, "problems": []}
        remapping: Any = cluster.node("A").runtime.remapping
        wait_until(lambda: remapping.view() == nothing, "what is over is still said")


def test_partitions_nobody_serves_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is routed there, and later."""
    with cluster_of(1, sync_replicas=0) as cluster:
        router: Any = cluster.node("A").runtime.router
        active, unserved = router.active, {"test-5"}
        monkeypatch.setattr(router, "active", lambda name: None if name in unserved else active(name))
        remapping = cluster.node("A").runtime.remapping
        begin(cluster, partitions=6)
        said = f"policy {POLICY}: the change does not begin yet: no node is active for test-5"
        wait_until(lambda: problems(cluster) == [said], "nobody says so")
        monkeypatch.setattr(remapping, "_is_clean", lambda *args: False)
        unserved.clear()
        wait_until(lambda: mapping(cluster).next is not None, "it does not open")
        unserved.add("test-1")
        said = f"policy {POLICY}: objects do not move yet: no node is active for test-1"
        wait_until(lambda: problems(cluster) == [said], "nobody says so later")
        monkeypatch.undo()
        wait_done(cluster, 1)
        wait_until(lambda: not problems(cluster), "what was in the way is still said")


def test_only_the_change_whose_partitions_were_made_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster_of(1, sync_replicas=0) as cluster:
        remapping: Any = cluster.node("A").runtime.remapping
        monkeypatch.setattr(remapping, "_open", lambda *args: None)
        begin(cluster, ring_size=999)
        begun = mapping(cluster)
        other = msgspec.structs.replace(
            begun, changing=MappingChange(msgspec.structs.replace(begun.now, ring_size=500))
        )
        RemapDriver._open(remapping, POLICY, other)
        assert mapping(cluster) == begun
        monkeypatch.undo()
        wait_done(cluster, 1)


@pytest.mark.feature("P7")
def test_a_partition_disabled_on_its_only_node_can_be_read_meanwhile_and_is_named() -> None:
    """Its objects cannot leave before it is enabled again; who writes elsewhere may read it in the same transaction."""
    with cluster_of(1, sync_replicas=0) as cluster:
        client, shut = cluster.client(), cluster.node("A").partitions["test-3"]
        client.load([Counter(f"c{i}", i) for i in range(60)])
        by: dict[str, str] = {client.space.route(Counter, (f"c{i}",)).partition: f"c{i}" for i in range(60)}
        shut.disable(wait_s=10)
        begin(cluster, partitions=2)
        wait_until(lambda: any("test-3 is disabled on A" in said for said in problems(cluster)), "nobody says why")
        assert mapping(cluster).next is not None
        with client.transaction():
            client.get(Counter, by["test-0"]).value = client.get(Counter, by["test-3"]).value + 100
        with client.transaction():
            assert client.get(Counter, by["test-0"]).value == int(by["test-3"][1:]) + 100
        with client.transaction():
            for i in range(20):
                client.create(Counter(f"new{i}", i))
        with pytest.raises(RefusedError, match="takes nothing new"), client.transaction():
            client.get(Counter, by["test-3"]).value += 1
        shut.enable()
        wait_done(cluster, 1)
        check(cluster, cluster.config)
