"""Figures 2, 3 and 7 of the manual of high availability: which node gets which data, what a node that joins changes."""

from __future__ import annotations

from collections import Counter as Count
from typing import Any

import pytest

from halog.config import ApplicationConfig, PolicyConfig, TimingConfig
from halog.config.static import StaticPartition
from halog.runtime.node.paces import Paces
from halog.runtime.placement import auto_rebalance as rebalancing
from halog.runtime.placement.auto_rebalance import RebalancePaces
from halog.testing.cluster import Cluster, wait_until
from mappers import ConsistentHash
from tests.scenarios.test_figures import TYPES, Order, active, change, copies, per_partition, running

pytestmark = pytest.mark.timeout(120)

OFTEN = Paces(rebalance=RebalancePaces(look_s=0.05))
SOON = TimingConfig(call_deadline_ms=5_000, join_settle_ms=50, replace_after_ms=300)


def create(cluster: Cluster, first: int, count: int) -> None:
    """From one process, one after the other."""
    client = cluster.client()
    for i in range(first, first + count):
        with client.transaction():
            client.create(Order(f"o{i}", i))


def by_node(cluster: Cluster) -> Count[str]:
    """Objects of each node that is active for them."""
    held: Count[str] = Count()
    for partition, count in per_partition(cluster).items():
        held[active(cluster, partition)] += count
    return held


# --- figure 2: a dynamic data distribution policy ---


def actives(cluster: Cluster) -> Count[str]:
    """Partitions of each node that is active for them, once nothing moves."""
    tables = cluster.tables().values()
    if any(t.target or t.active is None or t.active.node != t.configured[0] for t in tables):
        return Count()
    return Count(t.configured[0] for t in tables)


@pytest.mark.feature("P2", "P13", "P6")
def test_figure_2_round_robin_goes_over_three_nodes_and_over_a_fourth_when_it_is_added() -> None:
    """Each of three nodes gets a third. D is added, nobody says a word: it gets its share of what there is, and each of
    the four a quarter of what comes."""
    policy = PolicyConfig("all", 12, sync_replicas=1, mapper="round_robin")
    with running(4, {"turns": policy}, OFTEN, timing=SOON) as cluster:
        cluster.kill("D")
        wait_until(lambda: actives(cluster) == dict.fromkeys("ABC", 4), "the partitions are on three nodes", 30)
        create(cluster, 0, 90)
        three = by_node(cluster)
        assert all(abs(three[node] - 30) <= 4 for node in "ABC"), three  # a partition has one more, or not
        cluster.restart("D")
        wait_until(lambda: actives(cluster) == dict.fromkeys("ABCD", 3), "D has its share", 30)
        wait_until(lambda: sum(by_node(cluster).values()) == 90, "everything is there")
        before = by_node(cluster)
        create(cluster, 90, 120)
        new = by_node(cluster)
        new.subtract(before)
        assert all(abs(new[node] - 30) <= 3 for node in "ABCD"), new
        assert sum(new.values()) == 120


# --- figure 3: a static data distribution policy ---


def by_parity(type_name: str, key: tuple[Any, ...]) -> str:
    """An application's mapper."""
    return "Odd" if int(key[0].removeprefix("o")) % 2 else "Even"


@pytest.mark.feature("P3", "P6")
def test_figure_3_what_is_odd_is_on_a_and_what_is_even_on_b_also_when_a_node_is_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks, real = list[str](), rebalancing.AutoRebalance.turn
    monkeypatch.setattr(
        rebalancing.AutoRebalance, "turn", lambda self, w: (looks.append(self._members.me.node), real(self, w))
    )
    places = {"Odd": StaticPartition(("A",)), "Even": StaticPartition(("B",))}
    policy = PolicyConfig("all", kind="static", static=places, sync_replicas=0, mapper=f"{__name__}:by_parity")
    with running(
        3, {"fixed": policy}, OFTEN, timing=SOON, application=ApplicationConfig(modules=(__name__,))
    ) as cluster:
        cluster.kill("C")
        create(cluster, 0, 20)
        assert by_node(cluster) == {"A": 10, "B": 10}
        cluster.restart("C")
        cluster.settle()
        looks.clear()
        wait_until(
            lambda: looks.count("A") > 3, "the first of them looks at who is there, and has for longer than SOON"
        )
        create(cluster, 20, 21)
        assert by_node(cluster) == {"A": 20, "B": 21}
        assert {p: copies(cluster, p) for p in places} == {"Odd": {"A"}, "Even": {"B"}}
        held = {i: cluster.partition_of(Order, f"o{i}") for i in range(41)}
        assert held == {i: "Odd" if i % 2 else "Even" for i in range(41)}


# --- figure 7: distributed consistent hashing ---

NAMES = ("One", "Two", "Three", "Four")


@pytest.mark.feature("P6", "P3", "D1")
def test_figure_7_data_is_on_the_node_of_the_partition_that_stands_at_its_place_on_the_ring() -> None:
    """Two of four data are in one partition, the others in one each, of four partitions on four nodes: by the buffer,
    whoever creates them. Found, changed and created anew they are there again."""
    places = {name: StaticPartition((node,)) for name, node in zip(NAMES, "ABCD", strict=True)}
    policy = PolicyConfig("all", kind="static", static=places, sync_replicas=0, ring_size=400)
    with running(4, {"ring": policy}) as cluster:
        buffer, info = ConsistentHash(4, 400), TYPES.info(Order)
        keys: dict[str, list[str]] = {name: [] for name in NAMES}
        for i in range(100):
            slot = buffer.slot(info.routing_key((f"o{i}",)))
            keys[NAMES[buffer.slots()[slot]]].append(f"o{i}")
        data = [*keys["Two"][:2], keys["Three"][0], keys["Four"][0]]
        for name, creator in zip(data, "ADBC", strict=True):
            with cluster.node(creator).transaction():
                cluster.node(creator).create(Order(name))
        assert per_partition(cluster) == {"One": 0, "Two": 2, "Three": 1, "Four": 1}
        assert by_node(cluster) == {"A": 0, "B": 2, "C": 1, "D": 1}
        for node in "ABCD":
            assert all(change(cluster.node(node), Order, name, "amount") for name in data)
        client = cluster.client()
        for name in data:
            with client.transaction():
                client.delete(client.get(Order, name))
            with client.transaction():
                client.create(Order(name))
        assert by_node(cluster) == {"A": 0, "B": 2, "C": 1, "D": 1}
