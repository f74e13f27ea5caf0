"""What a policy fixes beside where its partitions are: how many replicas of which kind, for which types, and how many
objects move in one transaction (P4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from halog.core.records import Prepare, decode
from halog.ports import TopicPartition
from halog.testing.cluster import Cluster, wait_until
from tests.unit.runtime.remapped import POLICY, TYPES, Counter, changed, check, cluster_of, configured, wait_done

pytestmark = pytest.mark.feature("P4")


@pytest.mark.parametrize(("sync", "async_"), [(0, 0), (0, 2), (1, 0), (1, 1), (2, 0), (2, 1)])
def test_each_partition_has_as_many_replicas_of_each_kind_as_its_policy_says(sync: int, async_: int) -> None:
    """By the nodes' own doing."""
    made = Cluster(4, partitions=4, registry=TYPES)
    with configured(made, sync_replicas=sync, async_replicas=async_) as cluster:
        wanted = ["async"] * async_ + ["sync"] * sync

        def kinds() -> dict[str, list[str]]:
            return {name: sorted(r.kind for r in t.replicas) for name, t in cluster.tables().items()}

        wait_until(lambda: kinds() == dict.fromkeys(cluster.tables(), wanted), f"replicas are not {wanted}")


def test_policies_side_by_side_have_replicas_of_their_own() -> None:
    """Types bound to one live on that one's partitions."""
    made = Cluster(3, partitions=2, registry=TYPES)
    both = {POLICY: made.config.policies[POLICY], "few": replace(made.config.policies[POLICY], partitions=1,
            sync_replicas=0, async_replicas=0)}  # fmt: skip
    made.config = replace(made.config, policies=both, bindings={"*": POLICY, "Order": "few"}).validate()
    with made as cluster:
        assert sorted(len(t.configured) for t in cluster.tables().values()) == [1, 3, 3]
        assert cluster.tables()["few-0"].configured in {("A",), ("B",), ("C",)}
        assert cluster.partition_of(Counter, "x") in {"test-0", "test-1"}
        assert cluster.node("A").runtime.partition_of("Order", b"s") == "few-0"


@pytest.mark.parametrize("most", [1, 7])
def test_a_move_holds_no_more_objects_than_the_policy_says(most: int) -> None:
    """Each transaction that moves objects names so many on either side at most, and some name as many."""
    with cluster_of(2, partitions=2, move_objects=most) as cluster:
        client = cluster.client()
        client.load([Counter(f"c{i}", i) for i in range(60)])
        cluster.config = changed(cluster.config, ring_size=999)
        cluster.node("A").runtime.operators.rebalance(POLICY, cluster.config)
        wait_done(cluster, 1)
        sizes = [len(p.changes) for name in sorted(cluster.tables()) for p in prepares(cluster, name)]
        assert max(sizes) == most
        check(cluster, cluster.config)


def prepares(cluster: Cluster, partition: str) -> list[Prepare]:
    table = cluster.tables()[partition]
    rows = cluster._broker.shelf(TopicPartition(table.topic, table.index)).rows
    found = [decode(row.value) for row in rows]
    return [r for r in found if isinstance(r, Prepare)]
