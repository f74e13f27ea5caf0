"""Nothing is begun anew over what there is: logs with a history, and data directories of other clusters (P10, N2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from halog.adapters.memory import MemoryBroker, MemoryCoordinator, MemoryLog, MemoryTree
from halog.config import ClusterConfig
from halog.errors import RefusedError, UnreachableError
from halog.runtime.node import cluster_identity as belonging
from halog.runtime.node.open import RunningNode
from halog.testing.cluster import Cluster
from tests.unit.runtime.host.test_faults import REGISTRY, Counter, add

pytestmark = pytest.mark.nodes


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(2, partitions=2, registry=REGISTRY) as cluster:
        with cluster.client().transaction() as tx:
            tx.create(Counter("c"))
        yield cluster


def stop(cluster: Cluster) -> None:
    cluster.close_clients()
    for name in list(cluster.running):
        cluster.running.pop(name).node.close()


def start(cluster: Cluster, name: str) -> RunningNode:
    return cluster.restart(name)


def began_nothing(cluster: Cluster) -> bool:
    return not cluster.tree.children("partitions") and cluster.tree.get("bindings") is None


@pytest.mark.feature("P10")
@pytest.mark.parametrize("who", ["a node", "a node with an empty disk", "a client"])
def test_nobody_begins_a_cluster_anew_over_logs_with_a_history(cluster: Cluster, who: str) -> None:
    """The coordinator's data are lost: tables made anew would name other histories, and every copy would stop."""
    stop(cluster)
    cluster.tree = MemoryTree()
    if who == "a node with an empty disk":
        cluster.disks["A"].data.clear()
    with pytest.raises(RefusedError) as refused:
        cluster.client() if who == "a client" else start(cluster, "A")
    assert "halog recover --from-logs" in refused.value.message
    assert "test.test.log partition 0" in refused.value.message
    assert began_nothing(cluster)


@pytest.mark.feature("P10")
def test_one_table_that_is_lost_is_not_made_anew_either(cluster: Cluster) -> None:
    stop(cluster)
    cluster.tree.delete("partitions/test-1", -1)
    with pytest.raises(RefusedError, match=r"test\.test\.log partition 1"):
        start(cluster, "A")
    assert cluster.tree.get("partitions/test-1") is None


@pytest.mark.feature("P10", "P6")
@pytest.mark.parametrize("who", ["a node", "a client"])
def test_what_was_agreed_on_of_a_policy_is_not_made_anew_over_its_tables(cluster: Cluster, who: str) -> None:
    """Its mapping may have changed since: a file would have keys where they are not, and say that all is well."""
    stop(cluster)
    cluster.tree.delete("policies/test", -1)
    with pytest.raises(RefusedError) as refused:
        cluster.client() if who == "a client" else start(cluster, "A")
    assert "partitions of policy test, and nothing of what was agreed on of it" in refused.value.message
    assert "halog recover --from-logs" in refused.value.message
    assert cluster.tree.get("policies/test") is None


@pytest.mark.feature("P10")
def test_a_node_that_comes_while_another_one_makes_the_tables_is_not_refused(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It saw no table; by the time it looks at the log the other one has made it, and leads."""
    stop(cluster)
    tree = cluster.tree
    kept = {name: tree.get(f"partitions/{name}") for name in tree.children("partitions")}
    for name in kept:
        tree.delete(f"partitions/{name}", -1)
    made = belonging._made

    def meanwhile(coordinator: object, name: str) -> bool:
        found = kept[name]
        assert found is not None
        tree.create(f"partitions/{name}", found.data, 0)
        return made(coordinator, name)  # type: ignore[arg-type]

    monkeypatch.setattr(belonging, "_made", meanwhile)
    cluster.start()
    assert add(cluster) == 1


@pytest.mark.feature("P10")
def test_nobody_starts_while_the_tables_are_made_anew(cluster: Cluster) -> None:
    stop(cluster)
    cluster.tree.create(belonging.RECOVERY, b"{}", 0)
    with pytest.raises(RefusedError, match="repeat `halog recover --from-logs`"):
        start(cluster, "A")


@pytest.mark.feature("N2")
def test_a_data_directory_of_another_cluster_is_refused_by_name(cluster: Cluster) -> None:
    """The name was mistyped: an empty cluster would be begun without a word."""
    stop(cluster)
    before, tree = dict(cluster.disks["A"].data), cluster.tree
    cluster.config = replace(cluster.config, cluster=ClusterConfig("tset"))
    cluster.tree, cluster.broker = MemoryTree(), MemoryBroker()
    with pytest.raises(RefusedError) as refused:
        start(cluster, "A")
    assert "belongs to cluster test" in refused.value.message
    assert "cluster tset" in refused.value.message
    assert cluster.disks["A"].data == before
    assert not cluster.tree.children("")
    cluster.config, cluster.tree = replace(cluster.config, cluster=ClusterConfig("test")), tree


@pytest.mark.feature("N2")
def test_a_data_directory_of_another_cluster_of_that_name_is_refused(cluster: Cluster) -> None:
    """The servers are others: those of a test set-up, perhaps."""
    stop(cluster)
    with Cluster(2, partitions=2, registry=REGISTRY) as other:
        stop(other)
        other.disks["A"] = cluster.disks["A"]
        with pytest.raises(RefusedError, match="this is another cluster of that name"):
            start(other, "A")
        other.tree, other.broker = MemoryTree(), MemoryBroker()
        with pytest.raises(RefusedError, match="ZooKeeper knows no cluster test, and its logs are empty"):
            start(other, "A")
        assert began_nothing(other)


@pytest.mark.feature("N2")
def test_a_data_directory_of_before_there_were_ids_belongs_to_whom_it_is_used_with_next(cluster: Cluster) -> None:
    stop(cluster)
    for disk in cluster.disks.values():
        del disk.data[belonging._KEY]
    cluster.tree.delete(belonging.ID, -1)
    cluster.start()
    assert add(cluster) == 1
    known = belonging.remembered(cluster.running["A"].node.runtime.adapters.store)  # type: ignore[arg-type]
    assert known is not None
    assert known.cluster == "test"
    assert known.id


@pytest.mark.feature("N2")
def test_a_cluster_whose_id_was_lost_or_put_back_is_known_by_its_copies(cluster: Cluster) -> None:
    """The coordinator's data were put back to a time before there was one, and a new disk's node came first."""
    stop(cluster)
    cluster.disks["A"].data.clear()
    cluster.tree.delete(belonging.ID, -1)
    cluster.start()
    assert add(cluster) == 1
    known = [belonging.remembered(r.node.runtime.adapters.store) for r in cluster.running.values()]  # type: ignore[arg-type]
    assert known[0].id == known[1].id  # type: ignore[union-attr]


@pytest.mark.feature("P10")
def test_a_log_that_does_not_answer_is_not_taken_for_an_empty_one(cluster: Cluster) -> None:
    """While Kafka is still starting nobody is told that the cluster does not exist, and that a node would create it."""
    stop(cluster)
    tree, log = MemoryCoordinator(MemoryTree()), MemoryLog(cluster.broker)
    tree.connect(lambda state: None)

    with cluster.broker.faults.fail("partitions", UnreachableError("Kafka does not answer")):
        with pytest.raises(UnreachableError):
            belonging.check_exists(log, tree, cluster.config)
        said = belonging.why_absent(log, tree, cluster.config)
    assert said.endswith("whether its logs have a history is not known: Kafka does not answer")
