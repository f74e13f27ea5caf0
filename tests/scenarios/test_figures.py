"""Numbered figures of the manual of high availability, as stories of whole nodes in memory; each test is named after
its own. Here the one site has both data centres of figure 5: what crosses them is zones, not logs.

Figures 2, 3 and 7 are in `test_figures_of_policies`, 17 to 20 in `test_restore_figures`. Others are told where their
matter is; figure 1 shows what there is, and of 10 the text says nothing.

    4   one zone with a quorum: tests/unit/runtime/membership/test_zones.py, tests/integration/cluster/test_zones.py
    9   a foreign partition: tests/integration/cluster/test_foreign.py
    11  the state machine of partitions: tests/unit/core/table/test_states.py; in histories: tests/sim/test_sim.py
    12, 13  replication, also of what began on a replica: tests/integration/cluster/test_replicas.py
    14  failover: tests/integration/cluster/test_kill.py
    15  two actives: figure 18 of `test_restore_figures`; on real sites tests/integration/sites/test_going_on_alone.py
    16  the state machine of quorums: tests/unit/core/table/test_zones.py
    17, 18, 19  the merge on real sites: tests/integration/sites/test_restoring.py
    20  sub-clusters, one class for all: tests/unit/sites/test_sub_clusters.py
    21  two data centres: tests/integration/sites/test_two_data_centres.py
"""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec
import pytest

import halog
from halog.config import PolicyConfig, TimingConfig, ZoneConfig, ZoneQuorumConfig
from halog.config.static import StaticPartition
from halog.errors import AvailabilityError, ZoneQuorumError
from halog.runtime.support.clock import monotonic_ms
from halog.schema import Registry
from halog.testing.cluster import Cluster, wait_until
from halog.transactions.node import Node

pytestmark = pytest.mark.timeout(120)

TYPES = Registry()
TIMING = TimingConfig(call_deadline_ms=5_000)  # a story waits for it


@halog.managed(key="name", registry=TYPES)
class Order:
    """What must survive."""

    name: str
    amount: int = 0


@halog.managed(key="name", registry=TYPES)
class WestVisit:
    """Of interest in the west only."""

    name: str
    pages: int = 0


@halog.managed(key="name", registry=TYPES)
class EastVisit:
    name: str
    pages: int = 0


@contextmanager
def running(nodes: int, policies: dict[str, PolicyConfig], **config: Any) -> Iterator[Cluster]:
    cluster = Cluster(nodes, registry=TYPES)
    usual = {"zones": {"all": ZoneConfig(cluster.names)}, "bindings": {"*": next(iter(policies))}, "timing": TIMING}
    cluster.config = replace(cluster.config, policies=policies, **{**usual, **config}).validate()
    with cluster:
        yield cluster


def active(cluster: Cluster, partition: str) -> str:
    member = cluster.tables()[partition].active
    return "" if member is None else member.node


def copies(cluster: Cluster, partition: str) -> set[str]:
    """The running nodes with a copy."""
    return {n for n in cluster.running if partition in cluster.node(n).runtime.copies}


def change(node: Node, cls: type[Any], name: str, field: str) -> int:
    with node.transaction():
        found = node.get(cls, name)
        setattr(found, field, getattr(found, field) + 1)
    return int(getattr(found, field))


# --- figure 5: an availability zone for disaster recovery ---

ZONES = {
    "west-coast": ZoneConfig(("A", "B", "C"), ZoneQuorumConfig(minimum_votes=2)),
    "east-coast": ZoneConfig(("D", "E"), ZoneQuorumConfig(percentage=51)),
    "disaster-recovery": ZoneConfig(("C", "E")),
}
POLICIES = {
    "critical": PolicyConfig("disaster-recovery", 3, sync_replicas=1),
    "west": PolicyConfig("west-coast", 2, sync_replicas=1),
    "east": PolicyConfig("east-coast", 2, sync_replicas=1),
}
CRITICAL = [f"critical-{i}" for i in range(3)]


@pytest.fixture
def coasts() -> Iterator[Cluster]:
    """C and E are in two zones each; what is critical is on both coasts, the rest on its own."""
    bindings = {"Order": "critical", "WestVisit": "west", "EastVisit": "east"}
    with running(5, POLICIES, zones=ZONES, bindings=bindings) as cluster:
        client = cluster.client()
        client.load([Order(f"o{i}", i) for i in range(20)])
        with client.transaction():
            client.create(WestVisit("w"))
            client.create(EastVisit("e"))
        yield cluster


def orders(cluster: Cluster) -> int:
    """How many there are, each changed once more."""
    client = cluster.client()
    return sum(change(client, Order, f"o{i}", "amount") > i for i in range(20))


@pytest.mark.feature("P5", "Q1")
def test_figure_5_what_is_critical_is_on_both_coasts_and_the_rest_on_its_own(coasts: Cluster) -> None:
    assert {frozenset(copies(coasts, p)) for p in CRITICAL} == {frozenset("CE")}
    assert all(copies(coasts, f"west-{i}") <= set("ABC") for i in range(2))
    assert all(copies(coasts, f"east-{i}") == set("DE") for i in range(2))
    zones = {n: {z["zone"] for z in coasts.node(n).runtime.zoning.view()} for n in "ACE"}
    assert zones == {
        "A": {"west-coast"},
        "C": {"west-coast", "disaster-recovery"},
        "E": {"east-coast", "disaster-recovery"},
    }


@pytest.mark.feature("P5", "P10")
def test_figure_5_the_east_goes_on_with_what_is_critical_when_the_west_is_lost(coasts: Cluster) -> None:
    for name in "ABC":
        coasts.kill(name)
    wait_until(lambda: {active(coasts, p) for p in CRITICAL} == {"E"}, "E takes over", 30)
    assert orders(coasts) == 20
    assert change(coasts.client(), EastVisit, "e", "pages") == 1
    with pytest.raises(AvailabilityError):
        change(coasts.client(), WestVisit, "w", "pages")


@pytest.mark.feature("P5", "Q1")
def test_figure_5_a_node_without_a_quorum_on_its_coast_is_offline_in_both_its_zones(coasts: Cluster) -> None:
    """Alone in the east E has half of the votes there, and would be enough in the other zone."""
    coasts.kill("D")
    wait_until(lambda: coasts.node("E").runtime.members.offline, "E is offline", 30)
    wait_until(lambda: {active(coasts, p) for p in CRITICAL} == {"C"}, "C takes over", 30)
    assert orders(coasts) == 20
    with pytest.raises(ZoneQuorumError, match="east-coast"):
        change(coasts.node("E"), Order, "o1", "amount")
    coasts.restart("D")
    coasts.settle(30)
    wait_until(lambda: {frozenset(copies(coasts, p)) for p in CRITICAL} == {frozenset("CE")}, "E is back", 30)


# --- figure 6: partition definitions ---

MIXED = StaticPartition(("A", "B", "C"), ("C",))


@pytest.fixture
def three() -> Iterator[Cluster]:
    """One and Two on A, with B sync and C async; Three on B alone."""
    static = {"One": MIXED, "Two": MIXED, "Three": StaticPartition(("B",))}
    with running(3, {"fixed": PolicyConfig("all", kind="static", static=static)}) as cluster:
        cluster.client().load([Order(f"o{i}") for i in range(30)])
        yield cluster


def one_of(cluster: Cluster, partition: str) -> str:
    """An object that is there."""
    return next(f"o{i}" for i in range(30) if cluster.partition_of(Order, f"o{i}") == partition)


def are_equal(cluster: Cluster, partition: str) -> bool:
    """Would its first copy win an election? All have read the log, and none has just stood back in another one."""
    cores = [cluster.node(name).runtime.copies[partition].core for name in copies(cluster, partition)]
    return len({c.state.position for c in cores}) == 1 and all(c.campaign.not_before < monotonic_ms() for c in cores)


def see_all(cluster: Cluster, name: str) -> bool:
    """That it has followed the active node tells nothing of the others: it has just come."""
    return {member.node for member in cluster.node(name).runtime.members.alive} == set(cluster.names)


def used(cluster: Cluster, *partitions: str) -> None:
    """From everywhere."""
    for name in cluster.running:
        for partition in partitions:
            assert change(cluster.node(name), Order, one_of(cluster, partition), "amount") > 0


@pytest.mark.feature("P1", "R1", "P3")
def test_figure_6_two_partitions_have_both_kinds_of_replica_and_the_third_has_none(three: Cluster) -> None:
    tables = three.tables()
    assert {p: active(three, p) for p in tables} == {"One": "A", "Two": "A", "Three": "B"}
    kinds = {p: [(r.node, r.kind) for r in t.replicas] for p, t in tables.items()}
    assert kinds == {"One": [("B", "sync"), ("C", "async")], "Two": [("B", "sync"), ("C", "async")], "Three": []}
    assert copies(three, "Three") == {"B"}
    used(three, "One", "Two", "Three")


@pytest.mark.feature("P1", "P10")
def test_figure_6_b_takes_over_one_and_two_when_a_fails_and_three_stays(three: Cluster) -> None:
    for name in "BC":  # on a busy machine an answer takes longer than the 40 ms that an election waits
        for copy in three.node(name).runtime.copies.values():
            copy.core.state.settings = msgspec.structs.replace(copy.core.state.settings, election_ms=5_000)
    wait_until(lambda: all(see_all(three, name) for name in "BC"), "C goes without B")
    wait_until(lambda: all(are_equal(three, p) for p in ("One", "Two")), "C goes before B")
    three.kill("A")
    wait_until(lambda: {p: active(three, p) for p in ("One", "Two")} == {"One": "B", "Two": "B"}, "B takes over")
    assert active(three, "Three") == "B"
    used(three, "One", "Two", "Three")


@pytest.mark.feature("P1", "P10")
def test_figure_6_three_goes_with_b_and_comes_back_from_the_log(three: Cluster) -> None:
    """There it is lost; here its objects are in the log, for B or for any other node that gets it."""
    name = one_of(three, "Three")
    change(three.client(), Order, name, "amount")
    three.kill("B")
    wait_until(lambda: all(three.tables()[p].node_list == ("A", "C") for p in ("One", "Two")), "B is out of both", 30)
    used(three, "One", "Two")
    with pytest.raises(AvailabilityError):
        change(three.client(), Order, name, "amount")
    three.node("A").runtime.operators.migrate("Three", ("C",), wait_s=30)
    assert copies(three, "Three") == {"C"}
    assert change(three.client(), Order, name, "amount") == 2


# --- figure 8: round robin ---


def per_partition(cluster: Cluster) -> Count[str]:
    held: Count[str] = Count()
    client: Any = cluster.client()
    for name in cluster.tables():
        held[name] = len(list(client.runtime.scan(name, TYPES.info(Order).family_id)))
    return held


@pytest.mark.feature("P6", "P3")
def test_figure_8_with_two_of_three_partitions_a_node_gets_two_thirds_of_the_data() -> None:
    """Round robin goes over partitions, not nodes: One and Two are on A, Three is on B."""
    static = {"One": StaticPartition(("A",)), "Two": StaticPartition(("A",)), "Three": StaticPartition(("B",))}
    policy = PolicyConfig("all", kind="static", static=static, sync_replicas=0, mapper="round_robin")
    with running(2, {"turns": policy}) as cluster:
        spread(cluster, {"A": 60, "B": 30})


@pytest.mark.feature("P6", "P2")
def test_figure_8_a_dynamic_policy_spreads_the_partitions_by_itself_and_the_data_likewise() -> None:
    with running(2, {"turns": PolicyConfig("all", 4, sync_replicas=0, mapper="round_robin")}) as cluster:
        spread(cluster, {"A": 45, "B": 45})


def spread(cluster: Cluster, by_node: dict[str, int]) -> None:
    """Ninety objects from one process: each partition gets as many as any other."""
    client = cluster.client()
    for i in range(90):
        with client.transaction():
            client.create(Order(f"o{i}"))
    held = per_partition(cluster)
    assert held.total() == 90
    assert max(held.values()) - min(held.values()) <= 1
    found: Count[str] = Count()
    for partition, count in held.items():
        found[active(cluster, partition)] += count
    assert all(abs(found[node] - count) <= 2 for node, count in by_node.items()), found
