"""Round robin and its key directory in a whole runtime, in memory: failovers, changes of the mapping, races."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, get_args

import pytest

from halog.backend import CommittedObject, Work
from halog.core.keys.directory import is_entry
from halog.errors import ConflictError, DuplicateKeyError, HalogError, RemappedError
from halog.testing.cluster import wait_until
from halog.transactions.kind import Read
from halog.transactions.node import Node
from tests.unit.runtime.keys.remapped import (
    POLICY,
    TYPES,
    Counter,
    Order,
    Traffic,
    a_node_dies_in_the_middle,
    begin,
    changed,
    configured,
    mapping,
    wait_done,
)
from tests.unit.runtime.keys.rounds import active, check, never_done, rounds, spread

pytestmark = pytest.mark.feature("P6", "P13")


def test_objects_go_round_from_several_processes_and_stay_even() -> None:
    """Each process begins at a partition of its own, and knows nothing of the others."""
    with rounds(2) as cluster:
        clients = [cluster.client() for _ in range(3)]
        for at, client in enumerate(clients):
            for i in range(20):
                with client.transaction():
                    client.create(Counter(f"{at}-{i}"))
            client.load([Counter(f"{at}-loaded-{i}") for i in range(40)], batch=15)
        counts = spread(cluster)
        assert sum(counts.values()) == 180
        assert set(counts.values()) == {45}
        for client in clients:
            with client.transaction():
                assert all(client.find(Counter, f"{at}-{i}") is not None for at in range(3) for i in range(20))


def test_two_processes_that_create_a_key_at_once_make_one_object() -> None:
    with rounds(2) as cluster:
        clients = [cluster.client() for _ in range(2)]
        start = threading.Barrier(2)

        def create(client: Node, name: str) -> str:
            @client.transactional(retries=50)
            def once() -> None:
                client.create(Counter(name))

            start.wait(60)
            try:
                once()
            except DuplicateKeyError:
                return "exists"
            return "created"

        with ThreadPoolExecutor(2) as pool:
            for i in range(15):
                said = [pool.submit(create, client, f"c{i}") for client in clients]
                assert sorted(s.result(30) for s in said) == ["created", "exists"]
        assert len(check(cluster)) == 15


def test_methods_run_on_the_active_node_of_the_partition_where_the_object_is() -> None:
    with rounds(2) as cluster:
        client = cluster.client()
        for i in range(8):
            with client.transaction():
                client.create(Order("s", i, "text"))
        for i in range(8):
            with client.transaction() as tx:
                client.get(Order, "s", i).text += "!"
                assert tx.home is None
        counter = Counter("up")
        with client.transaction():
            client.create(counter)
        for n in range(1, 4):
            with client.transaction():
                assert client.get(Counter, "up").up() == n
        check(cluster)


@pytest.mark.parametrize(
    "values", [{"ring_size": 999}, {"partitions": 6}, {"partitions": 2}], ids=["ring", "more", "fewer"]
)
def test_traffic_notices_no_change_of_the_mapping(values: dict[str, Any]) -> None:
    with rounds(2, move_objects=7) as cluster:
        traffic = Traffic(cluster.client(), 80)
        traffic.fill()
        before = check(cluster)
        with traffic.running():
            wait_until(lambda: len(traffic.done) == 5, "no traffic")
            begin(cluster, **values)
            wait_done(cluster, 1)
            traffic.goes_on()
        traffic.finished()
        after = check(cluster)
        stays = set(mapping(cluster).now.partition_names(POLICY))
        steady = [TYPES.info(Counter).index_key((name,)) for name in traffic.names]
        assert all(after[key] == before[key] for key in steady if before[key] in stays), "objects need not move"
        assert set(after.values()) <= stays


def test_new_partitions_get_new_objects_only() -> None:
    with rounds(2) as cluster:
        client = cluster.client()
        client.load([Counter(f"c{i}") for i in range(40)])
        wished = changed(cluster.config, partitions=8)
        assert cluster.node("A").runtime.operators.moves(POLICY, wished) == {}
        begin(cluster, partitions=8)
        wait_done(cluster, 1)
        assert set(spread(cluster).values()) == {10}
        client.load([Counter(f"new{i}") for i in range(40)])
        counts = spread(cluster)
        assert [counts[f"{POLICY}-{i}"] for i in range(8)] == [15] * 4 + [5] * 4


def test_a_partition_that_is_emptied_gives_its_objects_to_the_others_in_turn() -> None:
    with rounds(2) as cluster:
        client = cluster.client()
        client.load([Counter(f"c{i}", i) for i in range(80)])
        expected = cluster.node("A").runtime.operators.moves(POLICY, changed(cluster.config, partitions=2))
        assert sum(expected.values()) == 40
        assert {b for _, b in expected} == {f"{POLICY}-0", f"{POLICY}-1"}
        begin(cluster, partitions=2)
        wait_done(cluster, 1)
        counts = spread(cluster)
        assert sum(counts.values()) == 80
        assert max(counts.values()) <= 42
        with client.transaction():
            assert [client.get(Counter, f"c{i}").value for i in range(80)] == list(range(80))


def test_a_change_is_turned_back_and_all_is_where_it_says() -> None:
    with rounds(2, move_objects=3) as cluster:
        traffic = Traffic(cluster.client(), 80)
        traffic.fill()
        old = cluster.config
        never_done(cluster, "AB")
        with traffic.running(3):
            begin(cluster, partitions=2)
            wait_until(lambda: mapping(cluster).next is not None, "the change is not open")
            cluster.node("B").runtime.operators.turn_back(POLICY)
            wait_done(cluster, 2)
        traffic.finished()
        cluster.config = old
        check(cluster)


def test_a_node_that_dies_during_a_change_is_made_up_for() -> None:
    with rounds(3, move_objects=5) as cluster:
        a_node_dies_in_the_middle(cluster, check)


def test_a_load_and_creates_by_two_owners_keep_keys_unique(monkeypatch: pytest.MonkeyPatch) -> None:
    """While entries have two owners, neither may have one of a key that is created."""
    with rounds(2) as cluster:
        client, other = cluster.client(), cluster.client()
        client.load([Counter(f"old{i}") for i in range(40)])
        with monkeypatch.context() as still:
            for name in "AB":  # so that no entry moves
                still.setattr(cluster.node(name).runtime.remapping, "_carry_on", lambda *_: None)
            begin(cluster, ring_size=999)
            wait_until(lambda: client.backend.mapped.changing and other.backend.mapped.changing, "they do not know")
            with pytest.raises(DuplicateKeyError, match="40 objects were not loaded"):
                client.load([Counter(f"{kind}{i}") for kind in ("old", "new") for i in range(40)])
            for i in range(0, 40, 3):
                for kind in ("old", "new"):
                    with pytest.raises(DuplicateKeyError), other.transaction():
                        other.create(Counter(f"{kind}{i}"))
                with other.transaction():
                    other.delete(other.get(Counter, f"old{i}"))
                with other.transaction():
                    assert other.find(Counter, f"old{i}") is None
                    other.create(Counter(f"old{i}", 1))
        wait_done(cluster, 1)
        assert len(check(cluster)) == 80


def test_every_way_to_read_finds_objects_by_their_entries() -> None:
    cluster = rounds(2)
    cluster.config = changed(cluster.config, lease_ttl_ms=2_000)
    with cluster:
        client = cluster.client()
        tokens = []
        for i in range(20):
            with client.transaction() as tx:
                tx.create(Counter(f"c{i}", i))
            tokens.append(tx.token)
        for node in (cluster.node("A"), client):
            for read in get_args(Read):
                for i in range(20):
                    with node.transaction(read=read, after=tokens) as tx:
                        assert tx.get(Counter, f"c{i}").value == i
                        assert tx.find(Counter, f"none{i}") is None


def test_a_create_for_a_partition_that_is_being_emptied_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was given its partition before the change."""
    with rounds(2) as cluster:
        client = cluster.client()
        for name in "AB":  # so that the partition is not emptied meanwhile
            monkeypatch.setattr(cluster.node(name).runtime.remapping, "_carry_on", lambda *_: None)
        with monkeypatch.context() as turn:
            turn.setattr(client.backend, "next_partition", lambda type_name, made: f"{POLICY}-3")
            with pytest.raises(ConflictError, match="which is being emptied"), client.transaction() as tx:
                client.create(Counter("late"))
                begin(cluster, partitions=3)
                wait_until(lambda: client.backend.mapped.changing, "the client does not know")
        assert tx.outcome == "rolled back"
        for i in range(6):
            with client.transaction():
                client.create(Counter(f"later{i}"))
        there = active(cluster)[f"{POLICY}-3"].objects.scan(b"")
        assert all(is_entry(f.key) for f in there)


def test_an_object_on_its_way_is_found_and_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between a look at its entry and one at its partition it is carried elsewhere."""
    with rounds(2) as cluster:
        client = cluster.client()
        client.load([Counter(f"c{i}", i) for i in range(16)])
        real = client.backend.find
        began = threading.Event()

        def find(partition: str, key: bytes, mapping: int = 0) -> object:
            if not is_entry(key) and partition == f"{POLICY}-3" and not began.is_set():
                began.set()
                begin(cluster, partitions=3)
                wait_done(cluster, 1)
            return real(partition, key, mapping)

        monkeypatch.setattr(client.backend, "find", find)
        for i in range(16):
            with client.transaction():
                assert client.get(Counter, f"c{i}").value == i
        assert began.is_set()
        check(cluster)


def test_entries_and_objects_of_an_emptied_partition_are_not_in_each_others_way() -> None:
    """A transaction that carries an object changes its entry, so the entry is carried by another one."""
    with rounds(1, move_objects=100) as cluster:
        client = cluster.client()
        client.load([Counter(f"c{i}", i) for i in range(120)])
        mover = cluster.node("A").runtime.mover
        refused: list[HalogError] = []

        def commit(tx: bytes, works: Mapping[str, Work]) -> Mapping[str, int]:
            try:
                return real(tx, works)
            except RemappedError:
                raise
            except HalogError as error:
                refused.append(error)
                raise

        real = mover.commit
        mover.commit = commit
        configured(cluster, partitions=2)
        cluster.node("A").runtime.operators.rebalance(POLICY, cluster.config)
        wait_done(cluster, 1)
        assert refused == []
        assert sum(spread(cluster).values()) == 120


def test_who_remembers_an_object_in_a_partition_that_is_no_more_does_not_ask_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its nodes may be gone with it."""
    with rounds(2) as cluster:
        client = cluster.client()
        client.load([Counter(f"c{i}", i) for i in range(16)])
        with client.transaction():
            assert all(client.get(Counter, f"c{i}").value == i for i in range(16))
        begin(cluster, partitions=3)
        wait_done(cluster, 1)
        wait_until(lambda: not client.backend.mapped.changing, "the client does not know")
        wait_until(lambda: f"{POLICY}-3" in client.backend.mapped.leaving, "the client does not know")
        asked: list[str] = []
        real = client.backend.find

        def find(partition: str, key: bytes, mapping: int = 0) -> CommittedObject | None:
            asked.append(partition)
            return real(partition, key, mapping)

        monkeypatch.setattr(client.backend, "find", find)
        with client.transaction():
            assert all(client.get(Counter, f"c{i}").value == i for i in range(16))
        assert f"{POLICY}-3" not in asked
        assert len(asked) > 16
