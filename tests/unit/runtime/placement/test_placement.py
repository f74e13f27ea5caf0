"""What a new cluster gets, and one that grows: copies and preferred nodes within one partition per node, and nothing
that is there moves for it (P2)."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from halog.adapters.memory import MemoryCoordinator
from halog.config import Config, PolicyConfig, parse_config
from halog.core.table.table import PartitionTable
from halog.metadata import drains as drained
from halog.runtime.placement import plan as plans
from halog.runtime.placement.bootstrap import create_tables, planned_tables
from halog.testing.cluster import Cluster, wait_until
from tests.unit.counting import REGISTRY

pytestmark = pytest.mark.feature("P2")

Tables = Sequence[PartitionTable]


def config_of(
    nodes: int, partitions: int, copies: int, *, policies: int = 1, domains: int = 0, backups: int = 0
) -> Config:
    """`domains`: that many, in turn; none without."""
    names = [f"n{i}" for i in range(nodes)]
    racks: dict[str, dict[str, Any]] = {
        n: {"failure_domain": f"r{i % domains}"} if domains else {} for i, n in enumerate(names)
    }
    shape = {"zone": "main", "partitions": partitions, "sync_replicas": copies - 1, "backup": names[nodes - backups :]}
    return parse_config(
        {
            "cluster": {"name": "t"},
            "site": {"bootstrap": "127.0.0.1:1", "zookeeper": "127.0.0.1:2"},
            "zones": {"main": {"nodes": names}},
            "policies": {f"p{i}": shape for i in range(policies)},
            "bindings": {"*": "p0"},
            "nodes": {n: {"data_dir": n, **racks[n]} for n in names},
        },
        "halog.toml",
        Path("/tmp"),
    )


def grown(config: Config, partitions: int, policy: str = "p0") -> Config:
    more = replace(config.policies[policy], partitions=partitions)
    return replace(config, policies={**config.policies, policy: more})


def loads(config: Config, tables: Iterable[PartitionTable], count: int) -> list[int]:
    """Of each node, the first `count` nodes of each list counted."""
    load = Counter(n for t in tables for n in t.configured[:count])
    return [load[n] for n in config.nodes]


def gap(found: Sequence[int]) -> int:
    return max(found) - min(found)


SIZES = st.tuples(st.integers(2, 9), st.integers(1, 24), st.integers(1, 3)).filter(lambda s: s[0] >= s[2])


@given(SIZES)
def test_a_new_cluster_is_within_one_partition_per_node(size: tuple[int, int, int]) -> None:
    config = config_of(*size)
    tables = list(planned_tables(config))
    assert all(len(set(t.configured)) == size[2] for t in tables)
    assert gap(loads(config, tables, size[2])) <= 1
    assert gap(loads(config, tables, 1)) <= 1


@given(SIZES, st.integers(1, 12), st.integers(0, 2))
def test_a_policy_that_grows_is_within_one_and_nothing_moves(size: tuple[int, int, int], more: int, times: int) -> None:
    config, tables = config_of(*size), list[PartitionTable]()
    for time in range(times + 2):
        before = list(tables)
        config = grown(config, size[1] + more * time)
        tables += planned_tables(config, tables)
        assert tables[: len(before)] == before
        assert len(tables) == config.policies["p0"].partitions
        assert gap(loads(config, tables, size[2])) <= 1
        assert gap(loads(config, tables, 1)) <= 1


@given(st.integers(2, 9), st.integers(1, 9), st.integers(2, 3))
def test_the_partitions_of_a_node_that_dies_fall_to_all_others_alike(nodes: int, each: int, copies: int) -> None:
    """Where each node is preferred for as many, and even within one."""
    config = config_of(max(nodes, copies), max(nodes, copies) * each, copies)
    tables = list(planned_tables(config))
    for dead in config.nodes:
        heirs = Counter(t.configured[1] for t in tables if t.configured[0] == dead)
        assert gap([heirs[n] for n in config.nodes if n != dead]) <= 1


def test_those_of_a_node_that_dies_do_not_all_fall_to_one_over_racks_either() -> None:
    config = config_of(6, 60, 2, domains=2)
    tables = list(planned_tables(config))
    assert gap(loads(config, tables, 2)) == gap(loads(config, tables, 1)) == 0
    for dead in config.nodes:
        heirs = Counter(t.configured[1] for t in tables if t.configured[0] == dead)
        assert len(heirs) == 3, "all in the other rack"


@given(st.integers(4, 9), st.integers(1, 12), st.integers(1, 9))
def test_what_is_added_makes_up_for_what_is_uneven(nodes: int, partitions: int, more: int) -> None:
    """An operator has moved all to two nodes: the others get what is new, until they have as much."""
    config = config_of(nodes, partitions, 2)
    moved = [msgspec.structs.replace(t, configured=("n0", "n1")) for t in planned_tables(config)]
    new = list(planned_tables(grown(config, partitions + more), moved))
    load = loads(config, [*moved, *new], 2)
    if load[0] > partitions:  # n0 got some: the others have no fewer
        assert gap(load) <= 1
    assert gap(load[2:]) <= 1


def test_a_node_that_is_gone_gets_no_partition_that_is_added() -> None:
    config = config_of(4, 6, 2)
    left = [
        msgspec.structs.replace(t, configured=nodes)
        for t, nodes in zip(
            planned_tables(config), itertools.cycle([("n1", "n2"), ("n2", "n3"), ("n3", "n1")]), strict=False
        )
    ]
    up = ["n1", "n2", "client"]
    new = list(planned_tables(grown(config, 9), left, up=up))
    assert loads(config, [*left, *new], 2) == [0, 6, 6, 6], "n3 is down, and has copies"
    new = list(planned_tables(grown(config, 9), [], up=["n1"]))
    assert gap(loads(config, new, 2)) <= 1, "there are not enough"


# --- beside nodes that were drained ---


@given(SIZES.filter(lambda s: s[0] > s[2]), st.integers(1, 12), st.data())
def test_a_drained_node_gets_nothing_that_is_added_and_the_others_are_even(
    size: tuple[int, int, int], more: int, data: st.DataObject
) -> None:
    """An operator emptied it: it has the fewest copies of all, and would get most."""
    config = config_of(*size)
    empty = data.draw(st.sets(st.sampled_from(list(config.nodes)), min_size=1, max_size=size[0] - size[2]))
    there = list(planned_tables(config, drained=empty))
    tables = [*there, *planned_tables(grown(config, size[1] + more), there, up=config.nodes, drained=empty)]
    assert len(tables) == size[1] + more
    assert all(len(set(t.configured)) == size[2] for t in tables)
    assert not empty.intersection(n for t in tables for n in t.configured)
    for count in (1, size[2]):
        assert gap([n for n, name in zip(loads(config, tables, count), config.nodes) if name not in empty]) <= 1


def test_a_drained_node_gets_a_copy_where_there_are_not_others_enough_and_is_not_preferred() -> None:
    """Of three that are drained one is needed, and the same one for all."""
    config = config_of(5, 6, 3)
    tables = list(planned_tables(config, drained=["n0", "n2", "n3"]))
    assert loads(config, tables, 3) == [6, 6, 0, 0, 6]
    assert loads(config, tables, 1) == [0, 3, 0, 0, 3]
    everyone = list(planned_tables(config, drained=config.nodes))
    assert all(len(t.configured) == 3 for t in everyone), "all are drained: it is created all the same"


def test_a_drained_node_that_runs_is_rather_taken_than_one_that_is_gone() -> None:
    config = config_of(4, 6, 2)
    tables = list(planned_tables(config, up=["n1", "n2"], drained=["n2"]))
    assert loads(config, tables, 2) == [0, 6, 6, 0]


def test_others_of_its_rack_stand_in_for_a_drained_node() -> None:
    config = config_of(4, 6, 2, domains=2)
    tables = list(planned_tables(config, drained=["n0"]))
    assert loads(config, tables, 2) == [0, 3, 6, 3], "n2 is in its rack"


def test_of_drained_nodes_that_are_needed_one_in_a_rack_without_a_copy_is_taken() -> None:
    """n2 is not drained, n0 stands in its rack and before n1."""
    config = config_of(3, 4, 2, domains=2)
    assert loads(config, list(planned_tables(config, drained=["n0", "n1"])), 2) == [0, 4, 4]


def test_of_drained_nodes_that_are_needed_a_primary_one_is_taken() -> None:
    """n2 is for replicas, as n0, which stands before n1."""
    config = config_of(3, 4, 2)
    config = replace(config, policies={"p0": replace(config.policies["p0"], backup=("n0", "n2"))})
    assert loads(config, list(planned_tables(config, drained=["n0", "n1"])), 2) == [0, 4, 4]


# --- beside other policies ---


@pytest.mark.parametrize(("partitions", "copies"), [(1, 2), (1, 1), (2, 1), (2, 2)])
def test_small_policies_do_not_all_begin_at_the_same_nodes(partitions: int, copies: int) -> None:
    config = config_of(4, partitions, copies, policies=8)
    tables = list(planned_tables(config))
    assert loads(config, tables, copies) == [8 * partitions * copies // 4] * 4
    assert loads(config, tables, 1) == [8 * partitions // 4] * 4


@given(SIZES, st.integers(2, 6))
def test_many_policies_are_even_each_and_nearly_so_together(size: tuple[int, int, int], policies: int) -> None:
    config = config_of(*size, policies=policies)
    tables = list(planned_tables(config))
    for name in config.policies:
        theirs = [t for t in tables if t.policy == name]
        assert gap(loads(config, theirs, size[2])) <= 1
        assert gap(loads(config, theirs, 1)) <= 1
    assert gap(loads(config, tables, size[2])) <= 2
    assert gap(loads(config, tables, 1)) <= 2


def test_a_policy_that_grows_minds_the_others() -> None:
    """A and B have all of another policy: what is added goes to C and D."""
    config = config_of(4, 2, 1, policies=2)
    there = [t for t in planned_tables(config) if t.policy == "p1"]
    busy = [msgspec.structs.replace(t, configured=("n0", "n1")) for t in there]
    first = list(planned_tables(config, busy))
    assert {t.configured[0] for t in first} == {"n2", "n3"}


SMALL_PLAN = st.tuples(st.integers(2, 5), st.integers(1, 5), st.integers(1, 3)).filter(lambda s: s[0] >= s[2])


@given(SMALL_PLAN, st.integers(0, 2**32))
def test_of_plans_that_move_as_little_the_one_that_is_more_even_over_all_policies_is_taken(
    size: tuple[int, int, int], seed: int
) -> None:
    """Never more moves for it, nor less even within the policy: beside other policies a plan is as good as without."""
    config, chance = config_of(*size, policies=2), Random(seed)
    names = list(config.nodes)
    tables = [
        msgspec.structs.replace(t, configured=tuple(chance.sample(names, size[2]))) for t in planned_tables(config)
    ]
    theirs = [t for t in tables if t.policy == "p0"]

    def found(known: Tables) -> tuple[int, int, int, int]:
        moves = {m.partition: m.target.nodes for m in plans.make(config, known, names, names, ["p0"]).moves}
        then = [msgspec.structs.replace(t, configured=moves.get(t.name, t.configured)) for t in theirs]
        before = {t.name: t.configured for t in theirs}
        made = sum(len(set(t.configured) - set(before[t.name])) for t in then)
        load, beside = loads(config, then, size[2]), loads(config, [t for t in tables if t.policy == "p1"], size[2])
        together = sum(a * b for a, b in zip(load, beside, strict=True))
        return sum(n * n for n in load), made, sum(n * n for n in loads(config, then, 1)), together

    with_, without = found(tables), found(theirs)
    assert with_[:2] == without[:2]
    assert with_[3] <= without[3]


def test_a_plan_breaks_ties_by_all_policies_tables() -> None:
    config = config_of(4, 3, 1, policies=2)
    p0, p1 = (["p0-0", "p0-1", "p0-2"], ["p1-0", "p1-1", "p1-2"])
    on = dict(zip(p0, ["n0", "n0", "n1"], strict=True)) | dict(zip(p1, ["n2", "n0", "n1"], strict=True))
    tables = [msgspec.structs.replace(t, configured=(on[t.name],)) for t in planned_tables(config)]
    (move,) = plans.make(config, tables, list(config.nodes), list(config.nodes)).moves
    assert move.target.nodes == ("n3",), "n2 would be as even within p0, and has one of p1"


# --- in the coordinator ---


class Racing:
    """A coordinator in which somebody who knows something else makes each table a moment earlier, now and then."""

    def __init__(self, inner: MemoryCoordinator, rival: Config, seed: int) -> None:
        self._inner = inner
        self._rival = rival
        self._chance = Random(seed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> bool:
        if path.startswith("partitions/") and (path.endswith("-2") or self._chance.random() < 0.4):
            names = self._inner.children("partitions")
            there = [PartitionTable.from_bytes(z.data) for n in names if (z := self._inner.get(f"partitions/{n}"))]
            for table in itertools.islice(planned_tables(self._rival, there), self._chance.randint(1, 3)):
                assert self._inner.create(f"partitions/{table.name}", table.to_bytes())
        return self._inner.create(path, data, ephemeral=ephemeral)


@pytest.mark.parametrize("seed", range(20))
def test_nodes_that_make_a_policy_at_the_same_time_and_plan_otherwise_make_it_as_even(
    coordinator: MemoryCoordinator, seed: int
) -> None:
    """Who is second plans the rest anew."""
    nodes, partitions, copies = [(4, 7, 2), (5, 12, 3), (8, 12, 2), (3, 5, 1)][seed % 4]
    config = config_of(nodes, partitions, copies)
    backwards = dict(reversed(list(config.nodes.items())))
    rival = replace(config, nodes=backwards, zones={"main": replace(config.zones["main"], nodes=tuple(backwards))})
    racing: Any = Racing(coordinator, rival, seed)
    told: list[str] = []
    tables = [t for _, t in create_tables(racing, config, told.append).values()]
    assert {t.name for t in tables} == set(config.partition_names("p0"))
    assert len(told) < partitions, "some were made by the other one"
    assert gap(loads(config, tables, copies)) <= 1
    assert gap(loads(config, tables, 1)) <= 1


def test_a_policy_that_is_new_begins_without_nodes_that_were_drained(coordinator: MemoryCoordinator) -> None:
    config = config_of(4, 6, 2, policies=2)
    create_tables(coordinator, replace(config, policies={"p1": config.policies["p1"]}, bindings={"*": "p1"}))
    drained.mark(coordinator, "n3", 0)
    tables = [t for _, t in create_tables(coordinator, config).values()]
    assert loads(config, [t for t in tables if t.policy == "p0"], 2) == [4, 4, 4, 0]
    assert loads(config, [t for t in tables if t.policy == "p1"], 2) == [3, 3, 3, 3], "nothing that is there moves"


def test_a_real_cluster_is_even_and_stays_so_when_it_grows() -> None:
    cluster = Cluster(4, partitions=2, registry=REGISTRY, sync_replicas=1)
    policy: PolicyConfig = replace(cluster.config.policies["test"], async_replicas=0)
    cluster.config = replace(cluster.config, policies={"test": policy}).validate()
    with cluster:
        before = cluster.tables()
        assert Counter(n for t in before.values() for n in t.configured) == dict.fromkeys("ABCD", 1)
        more = replace(cluster.config, policies={"test": replace(policy, partitions=6)}).validate()
        cluster.node("A").runtime.operators.rebalance("test", more, wait_s=20)
        wait_until(lambda: len(cluster.tables()) == 6, "partitions are added")
        tables = cluster.tables()
        assert {name: tables[name].configured for name in before} == {n: t.configured for n, t in before.items()}
        assert Counter(n for t in tables.values() for n in t.configured) == dict.fromkeys("ABCD", 3)
        assert max(Counter(t.configured[0] for t in tables.values()).values()) <= 2


def test_what_a_running_cluster_adds_goes_to_no_drained_node() -> None:
    """D is registered, and empty."""
    cluster = Cluster(4, partitions=3, registry=REGISTRY, sync_replicas=1)
    policy: PolicyConfig = replace(cluster.config.policies["test"], async_replicas=0, rebalance="manual")
    cluster.config = replace(cluster.config, policies={"test": policy}).validate()
    with cluster:
        tree = cluster.node("A").runtime.adapters.coordinator
        drained.mark(tree, "D", 0)
        before = cluster.tables()
        more = replace(cluster.config, policies={"test": replace(policy, partitions=9)}).validate()
        cluster.node("A").runtime.operators.rebalance("test", more, wait_s=20)
        added = [t for name, t in cluster.tables().items() if name not in before]
        assert len(added) == 6
        assert "D" not in {n for t in added for n in t.configured}
