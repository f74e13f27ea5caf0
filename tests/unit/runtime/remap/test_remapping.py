"""A policy's mapping changes while it is used (T8): the whole runtime, in memory."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pytest

from halog.adapters.memory import MemoryDisk
from halog.backend import Work
from halog.config import SnapshotConfig
from halog.core.keys.mapping import begun, opened
from halog.core.log.records import DELETE
from halog.errors import ConflictError, DuplicateKeyError, RefusedError, RemappedError
from halog.metadata import mapped_policies
from halog.ports import TopicPartition
from halog.runtime.events.partition_states import PartitionChange
from halog.runtime.remap import mover as moving
from halog.runtime.rpc import frames
from halog.testing.cluster import Cluster, wait_until
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
    check,
    cluster_of,
    configured,
    mapping,
    places,
    wait_done,
    where,
)

pytestmark = pytest.mark.feature("P6", "P13")


def test_objects_go_where_the_new_ring_has_them_and_keep_their_references() -> None:
    with cluster_of(2) as cluster:
        client = cluster.client()
        client.load([Counter(f"c{i}", i) for i in range(150)])
        before = {key: at[0] for key, at in where(cluster).items()}
        expected = cluster.node("B").runtime.operators.moves(POLICY, changed(cluster.config, ring_size=999))
        assert begin(cluster, ring_size=999) == 1
        wait_done(cluster, 1)
        check(cluster, cluster.config)
        after = {key: at[0] for key, at in where(cluster).items()}
        assert {k: ref for k, (_, ref) in after.items()} == {k: ref for k, (_, ref) in before.items()}
        moved: dict[tuple[str, str], int] = {}
        for key, (partition, _) in before.items():
            if after[key][0] != partition:
                moved[partition, after[key][0]] = moved.get((partition, after[key][0]), 0) + 1
        assert moved == expected
        assert sum(moved.values()) > 50
        for i in range(0, 150, 10):
            with client.transaction():
                assert client.get(Counter, f"c{i}").value == i
        with client.transaction():
            assert len(list(client.extent(Counter))) == 150


@pytest.mark.parametrize("values", [{"ring_size": 999}, {"partitions": 6}], ids=["ring", "partitions"])
def test_traffic_notices_nothing(values: dict[str, Any]) -> None:
    with cluster_of(2) as cluster:
        traffic = Traffic(cluster.client(), 100)
        traffic.fill()
        with traffic.running():
            wait_until(lambda: len(traffic.done) == 5, "no traffic")
            begin(cluster, **values)
            wait_done(cluster, 1)
            traffic.goes_on()
        traffic.finished()
        check(cluster, cluster.config)


def test_a_node_that_dies_in_the_middle_is_made_up_for() -> None:
    with cluster_of(3, move_objects=5) as cluster:
        a_node_dies_in_the_middle(cluster, lambda c: check(c, c.config))


def test_one_change_at_a_time_and_only_what_differs() -> None:
    with cluster_of(1, sync_replicas=0) as cluster:
        operators = cluster.node("A").runtime.operators
        with pytest.raises(RefusedError, match="nothing differs"):
            operators.rebalance(POLICY)
        begin(cluster, ring_size=999)
        with pytest.raises(RefusedError, match="another change"):
            operators.rebalance(POLICY, changed(cluster.config, ring_size=500))
        wait_done(cluster, 1)
        with pytest.raises(RefusedError, match="no change is under way"):
            operators.turn_back(POLICY)


def test_a_change_that_is_turned_back_leaves_all_where_it_was() -> None:
    with cluster_of(2, move_objects=5) as cluster:
        traffic = Traffic(cluster.client(), 100)
        traffic.fill()
        before = {key: at[0] for key, at in where(cluster).items()}
        old = cluster.config
        with traffic.running(3):
            begin(cluster, ring_size=999)
            wait_until(lambda: mapping(cluster).next is not None, "the change is not open")
            cluster.node("B").runtime.operators.turn_back(POLICY)
            wait_done(cluster, 2)
        traffic.finished()
        check(cluster, old)
        after = where(cluster)
        assert all(after[key] == [at] for key, at in before.items())


def test_methods_reach_what_is_in_their_shop_while_it_moves() -> None:
    """Objects that share their routing key are moved together, or fetched when a method needs them."""
    with cluster_of(2, move_objects=1) as cluster:
        client = cluster.client()
        shops = [f"s{i}" for i in range(12)]
        for shop in shops:
            with client.transaction():
                client.create(Order(shop, 1, shop))
        begin(cluster, ring_size=999)

        @client.transactional(retries=20)
        def again(shop: str, number: int) -> None:
            client.get(Order, shop, 1).again(number)

        for number in range(2, 8):
            for shop in shops:
                again(shop, number)
        wait_done(cluster, 1)
        check(cluster, cluster.config)
        with client.transaction():
            orders = list(client.extent(Order))
        assert sorted((o.shop, o.number) for o in orders) == sorted((s, n) for s in shops for n in range(1, 8))
        assert all(o.text == o.shop for o in orders)


def test_a_node_that_lost_its_disk_still_refuses_what_was_routed_before() -> None:
    """Trace 33 behind a trimmed log: the version is in the snapshot."""
    cluster = cluster_of(1, partitions=2, sync_replicas=0)
    cluster.config = replace(cluster.config, snapshot=SnapshotConfig(every_records=5, every_ms=100, keep_records=1))
    with cluster:
        client = cluster.client()
        begin(cluster, ring_size=999)
        wait_done(cluster, 1)
        client.load([Counter(f"c{i}", i) for i in range(200)], batch=5)
        log = cluster.node("A").runtime.adapters.log
        topics = [TopicPartition("test.test.log", i) for i in range(2)]
        wait_until(lambda: all(log.bounds(tp)[0] > 5 for tp in topics), "nothing is trimmed")
        cluster.kill("A")
        cluster.disks["A"] = MemoryDisk("A")
        copies = cluster.restart("A").runtime.copies
        cluster.settle()
        assert {c.core.state.ledger.mapping for c in copies.values()} == {1}
        with pytest.raises(RemappedError):
            cluster.node("A").runtime.fetch("test-0", [b"none"], mapping=0)
        with client.transaction():
            assert len(list(client.extent(Counter))) == 200


def test_a_move_that_is_asked_for_twice_is_one_move() -> None:
    """As a job does it, over the node channel: (partition, keys), of whatever is where it belongs nothing moves."""
    with cluster_of(2) as cluster:
        client = cluster.client()
        client.load([Counter(f"c{i}", i) for i in range(40)])
        runtime = cluster.node("A").runtime
        coordinator = runtime.adapters.coordinator
        wished = msgspec.structs.replace(mapping(cluster).now, ring_size=999)
        for name in "AB":  # so that nobody but this test moves anything
            remapping: Any = cluster.node(name).runtime.remapping
            remapping._carry_on = lambda *_: None
        mapped_policies.step(coordinator, POLICY, lambda now: opened(begun(now, wished)))
        configured(cluster, ring_size=999)
        keys: dict[str, list[bytes]] = {}
        for key, [(partition, _)] in where(cluster).items():
            keys.setdefault(partition, []).append(bytes.fromhex(key))
        router = client.runtime.router  # type: ignore[attr-defined]
        wait_until(lambda: all(n.runtime.mapped.changing for n in map(cluster.node, "AB")), "they do not know")
        for again in (False, True):
            for partition, theirs in keys.items():
                reply = router.ask(partition, frames.Move(partition, [*theirs, b"unknown"]), 10, lambda: False)
                assert isinstance(reply, frames.MoveReply)
                assert (reply.moved == 0) is again
        check(cluster, cluster.config)
        for i in range(40):
            with client.transaction():
                assert client.get(Counter, f"c{i}").value == i


def test_bulk_load_goes_on_while_it_changes() -> None:
    """What was routed before the change is routed anew, chunk by chunk; a key that exists is still a duplicate."""
    with cluster_of(2, move_objects=5) as cluster:
        client = cluster.client()
        client.load([Counter(f"c{i}", i) for i in range(200)])
        begin(cluster, ring_size=999)
        loaded = client.load([Counter(f"c{i}", i) for i in range(400)], batch=7, duplicates="skip")
        assert (loaded.objects, loaded.duplicate_count) == (200, 200)
        wait_done(cluster, 1)
        check(cluster, cluster.config)
        for i in range(0, 400, 20):
            with client.transaction():
                assert client.get(Counter, f"c{i}").value == i


@pytest.mark.feature("P8", "P13")
def test_partitions_are_updating_while_objects_change_partition() -> None:
    with cluster_of(2) as cluster:
        cluster.client().load([Counter(f"c{i}", i) for i in range(100)])
        heard: dict[str, list[tuple[str, str, str]]] = {}

        def hear(change: PartitionChange) -> None:
            heard.setdefault(change.partition, []).append((change.before, change.now, change.happening))

        cluster.node("A").partitions.notify(hear)
        begin(cluster, by="B", ring_size=999)
        wait_done(cluster, 1)
        wanted = [("Active", "Updating", "objects change partition"), ("Updating", "Active", "done")]
        wait_until(lambda: heard == {f"test-{i}": wanted for i in range(4)}, "not every partition was Updating once")


def test_transactions_that_began_before_the_change_commit_behind_it() -> None:
    """What they found absent and create is routed anew when they end; nobody runs them again."""
    with cluster_of(2, sync_replicas=0) as cluster:
        client = cluster.client()
        names = [f"n{i}" for i in range(12)]
        with client.transaction():
            for name in names:
                assert client.find(Counter, name) is None
                client.create(Counter(name, 1))
            begin(cluster, ring_size=999)
            wait_done(cluster, 1)
        with client.transaction():
            for name in names:
                client.create(Counter(f"{name}-blind", 2))
            begin(cluster, ring_size=500)
            wait_until(lambda: mapping(cluster).version == 2, "the change is not open")
        with pytest.raises(DuplicateKeyError), client.transaction():
            client.create(Counter("n3"))
        wait_done(cluster, 2)
        check(cluster, cluster.config)
        assert len(where(cluster)) == 24


def in_the_last(cluster: Cluster, what: str) -> list[str]:
    """Names of counters that four partitions have in the fourth."""
    info, place = TYPES.info(Counter), places(cluster, cluster.config)
    names = (f"{what}{i}" for i in range(100))
    return [n for n in names if place("Counter", info.routing_key((n,))) == "test-3"][:4]


def test_what_is_under_way_outlives_a_change_that_drops_its_partition() -> None:
    """What a transaction changes has moved, which is a conflict; what it creates blindly, or found absent, is looked
    for where it belongs by now, and so is what is loaded. Nothing is left behind in the emptied partition."""
    with cluster_of(1, sync_replicas=0) as cluster:
        update, blind, absent, loaded = in_the_last(cluster, "c")
        clients = [cluster.client() for _ in range(4)]
        clients[0].load([Counter(update)])
        ended: dict[str, object] = {}

        def run(what: str, client: Node, work: Callable[[], object]) -> None:
            try:
                with client.transaction():
                    work()
                    ready.wait(60)
                    assert shrunk.wait(60)
                ended[what] = None
            except Exception as error:
                ended[what] = error

        def objects() -> Iterator[Counter]:
            yield Counter(loaded)
            ready.wait(60)
            assert shrunk.wait(60)

        def load() -> None:
            ended["load"] = clients[3].load(objects()).objects

        def looks() -> None:
            assert clients[2].find(Counter, absent) is None
            assert clients[2].find(Counter, absent + "?") is None

        works: list[Callable[[], None]] = [
            partial(run, "update", clients[0], lambda: clients[0].get(Counter, update).up()),
            partial(run, "blind", clients[1], lambda: clients[1].create(Counter(blind))),
            partial(run, "absent", clients[2], looks),
            load,
        ]
        ready, shrunk = threading.Barrier(len(works) + 1), threading.Event()
        threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in threads:
            thread.start()
        ready.wait(60)
        begin(cluster, partitions=2)
        wait_done(cluster, 1)
        shrunk.set()
        wait_until(lambda: len(ended) == len(works), "a transaction goes round in circles", 15)
        assert isinstance(ended.pop("update"), ConflictError)
        assert ended == {"blind": None, "absent": None, "load": 1}
        check(cluster, cluster.config)
        assert len(where(cluster)) == 3


@pytest.mark.parametrize("pause_ms", [20, None], ids=["fixed", "unset"])
def test_between_two_batches_of_a_partition_is_a_pause(pause_ms: int | None) -> None:
    """The one its policy asks for, or three times what the batch took."""
    batches: dict[str, list[tuple[float, float]]] = {}
    with configured(cluster_of(1, move_objects=5, sync_replicas=0), move_pause_ms=pause_ms) as cluster:
        cluster.client().load([Counter(f"c{i}", i) for i in range(100)])
        mover: Any = cluster.node("A").runtime.mover
        commit = mover.commit

        def noted(tx: bytes, works: Mapping[str, Work]) -> Any:
            began = time.monotonic()
            time.sleep(0.005)
            done = commit(tx, works)
            away = next(p for p, work in works.items() if work.writes[0].op == DELETE)
            batches.setdefault(away, []).append((began, time.monotonic()))
            return done

        mover.commit = noted
        begin(cluster, ring_size=999)
        wait_done(cluster, 1)
        check(cluster, cluster.config)
    pairs = [pair for of in batches.values() for pair in itertools.pairwise(of)]
    assert len(pairs) > 2
    longest = moving.MOST_REST_S
    for (began, ended), later in pairs:
        rest = min(longest, 3 * (ended - began)) if pause_ms is None else 0.02
        assert later[0] - ended >= 0.95 * rest
