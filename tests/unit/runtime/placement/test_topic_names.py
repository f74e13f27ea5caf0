"""Two clusters never come to the same topic or transactional id by their names; old ones keep theirs (N2, P1)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, strategies as st

from halog.adapters.memory import MemoryBroker, MemoryCoordinator, MemoryLog, MemoryTree
from halog.config import ClusterConfig, Config, parse_config
from halog.config.check import wrong_name
from halog.config.names import ambiguous
from halog.errors import ConfigError, RefusedError
from halog.runtime.keys import policy_agreement as agreement
from halog.runtime.node import cluster_identity as belonging
from halog.runtime.placement import config_admission as refusals
from halog.runtime.support.adapters import Adapters
from halog.runtime.topics import topic_names
from halog.testing.cluster import Cluster
from tests.unit.counting import REGISTRY, Counter

pytestmark = pytest.mark.feature("N2", "P1")

NAMES = st.text("ab._-", min_size=1, max_size=5).filter(lambda name: not wrong_name(name))


def config(name: str, policy: str, static: dict[str, Any] | None = None) -> Config:
    of: dict[str, Any] = {"zone": "main", "partitions": 2} if static is None else {"zone": "main", "kind": "static"}
    return parse_config(
        {
            "cluster": {"name": name},
            "site": {"bootstrap": "127.0.0.1:1", "zookeeper": "127.0.0.1:2"},
            "zones": {"main": {"nodes": ["A", "B"]}},
            "policies": {policy: {**of, **({} if static is None else {"partitions": static})}},
            "bindings": {"*": policy},
            "nodes": {n: {"data_dir": n} for n in "AB"},
        },
        "halog.toml",
        Path("/tmp"),
    )


def derived(name: str, policy: str) -> set[str]:
    """All that other clusters on these servers must not come to."""
    of = config(name, policy)
    topics = {
        topic_names.log_topic(of, policy),
        topic_names.state_topic(of, policy),
        topic_names.merge_topic(of, policy),
        topic_names.schemas_topic(of),
        topic_names.events_topic(name),
        topic_names.audit_topic(name),
        topic_names.arrived_topic(of),
    }
    return topics | {f"halog.{name}.{partition}" for partition in of.partition_names(policy)}


@given(NAMES, NAMES, NAMES, NAMES)
def test_names_without_dots_behind_the_clusters_lead_to_different_topics(c1: str, p1: str, c2: str, p2: str) -> None:
    assume(c1 != c2)
    assume(not list(ambiguous(config(c1, p1), p1)) and not list(ambiguous(config(c2, p2), p2)))
    assert not derived(c1, p1) & derived(c2, p2)


def outside(broker: MemoryBroker, tree: MemoryTree) -> Adapters:
    coordinator = MemoryCoordinator(tree)
    coordinator.connect(lambda state: None)
    return Adapters(MemoryLog(broker), coordinator, None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("policy", "static", "key"),
    [("eu.p", None, "policies.eu.p"), ("p", {"eu.x": ["A"]}, "policies.p.partitions.eu.x")],
    ids=["a policy", "a partition"],
)
def test_a_new_name_with_a_dot_is_refused_by_name_and_makes_nothing(
    policy: str, static: dict[str, Any] | None, key: str
) -> None:
    broker, tree = MemoryBroker(), MemoryTree()
    with pytest.raises(ConfigError) as refused:
        belonging.create_topics(outside(broker, tree), config("fleet", policy, static), "A")
    assert key in refused.value.message
    assert "fleet.eu" in refused.value.message
    assert not any(map(broker.partitions, ("fleet.schemas", "fleet.events", f"fleet.{policy}.log")))
    assert not tree.children("")


def test_a_policy_of_before_keeps_its_name() -> None:
    broker, tree = MemoryBroker(), MemoryTree()
    before = config("fleet", "eu.p")
    tree.create("policies/eu.p", agreement.mapping(before, "eu.p"), 0)
    belonging.create_topics(outside(broker, tree), before, "A")
    assert broker.partitions("fleet.eu.p.log")
    assert broker.partitions("fleet.schemas")
    assert broker.partitions("fleet.events")


def test_it_is_not_activated_either() -> None:
    known = refusals.Facts("fleet")
    keys = [key for key, why in refusals.refusals(None, config("fleet", "eu.p"), known) if "without a dot" in why]
    assert keys == [("policies", "eu.p")]
    assert not [w for _, w in refusals.refusals(config("fleet", "eu.p"), config("fleet", "eu.p"), known) if "dot" in w]


@pytest.mark.nodes
def test_a_cluster_that_comes_to_the_topics_of_an_older_one_is_refused() -> None:
    """Those of a policy whose name has a dot: its logs have a history, and this cluster knows nothing of it."""
    with Cluster(2, partitions=2, registry=REGISTRY) as old:
        tree, broker = old.tree, old.broker
        with old.client().transaction() as tx:
            tx.create(Counter("c"))
        other = Cluster(2, partitions=2, registry=REGISTRY)
        other.config = replace(other.config, cluster=ClusterConfig(old.config.cluster.name))
        other.broker, other.tree = broker, MemoryTree()
        with pytest.raises(RefusedError, match="another cluster and policy have the same topics"):
            other.restart("A")
        assert tree.children("partitions")
