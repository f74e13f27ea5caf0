"""What only three brokers and three ZooKeeper servers can show: one of them is lost, and nobody waits for it."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

from halog.errors import UnreachableError
from tests.containers.site import COUNT, ContainerSite
from tests.integration.cluster.checker import check
from tests.integration.cluster.harness import SESSION_MS, Cluster
from tests.integration.cluster.load import Load
from tests.integration.cluster.processes import passes, wait
from tests.integration.cluster.test_kill import whole_again
from tests.integration.cluster.test_servers import SERVES_AGAIN_S

pytestmark = [pytest.mark.timeout(180), pytest.mark.usefixtures("mended")]


def actives(cluster: Cluster) -> dict[str, object]:
    return {t.name: (t.epoch, t.active) for t in cluster.tables()}


@pytest.mark.containers
@pytest.mark.feature("O3", "R1")
def test_every_topic_has_three_copies_of_which_two_must_have_a_record(cluster: Cluster, site: ContainerSite) -> None:
    """As configured, and as the brokers say."""
    admin: Any = AdminClient({"bootstrap.servers": site.info.bootstrap})
    topics = {n: t for n, t in admin.list_topics(timeout=10).topics.items() if n.startswith(f"{cluster.name}.")}
    assert len(topics) >= 2, "at least a log and the schemas"
    assert {len(p.replicas) for t in topics.values() for p in t.partitions.values()} == {COUNT}
    asked = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    for topic, future in admin.describe_configs(asked).items():
        assert future.result(10)["min.insync.replicas"].value == "2", topic


@pytest.mark.containers
@pytest.mark.feature("O3", "R1")
def test_commits_go_on_without_one_broker(cluster: Cluster, site: ContainerSite) -> None:
    """The broker that leads a partition's log is killed: another leads it, and the same nodes go on with it."""
    table = cluster.table("p-0")
    victim = site.broker_leading(table.topic, table.index)
    with Load(cluster.client(), "one-broker") as load:
        site.kill(victim)
        load.flows(SERVES_AGAIN_S)
        assert site.broker_leading(table.topic, table.index) != victim
        passes(1.0)
        load.flows(SERVES_AGAIN_S)
        site.start_server(victim)
        load.flows(SERVES_AGAIN_S)
        whole_again(cluster)
    assert load.errors == []
    check(cluster, load)


@pytest.mark.feature("O3", "P10", "R1")
def test_a_node_is_replaced_while_a_broker_is_gone(cluster: Cluster, site: ContainerSite) -> None:
    """Two brokers are enough for an epoch to end and the next one to begin, and for a node to come back."""
    victim = cluster.table("p-0").node_list[0]
    with Load(cluster.client(), "both-gone") as load:
        site.kill("kafka2")
        cluster.kill(victim)
        load.flows(SERVES_AGAIN_S)
        assert cluster.led_by(victim) == []
        cluster.start([victim])
        whole_again(cluster)
        site.start_server("kafka2")
        load.flows(SERVES_AGAIN_S)
    assert load.errors == []
    check(cluster, load)


@pytest.mark.containers
@pytest.mark.feature("O3", "P10", "R4")
def test_the_leading_zookeeper_server_is_killed(cluster: Cluster, site: ContainerSite) -> None:
    """Commits do not notice; the other two elect a leader, sessions live on, and a node killed then is replaced."""
    with Load(cluster.client(), "zk-leader") as load:
        before = actives(cluster)
        leader = site.zookeeper_leader()
        site.kill(leader)
        load.flows(SERVES_AGAIN_S)
        wait(lambda: sorted(cluster.registered()) == ["A", "B", "C"], "all nodes are registered", SERVES_AGAIN_S)
        assert actives(cluster) == before
        assert site.zookeeper_leader() != leader
        victim = cluster.table("p-0").node_list[0]
        cluster.kill(victim)
        load.flows(SERVES_AGAIN_S)
        assert cluster.led_by(victim) == []
        cluster.start([victim])
        whole_again(cluster)
        site.start_server(leader)
    assert load.errors == []
    check(cluster, load)


@pytest.mark.feature("O3", "P10", "R5")
def test_two_of_three_zookeeper_servers_are_lost(cluster: Cluster, site: ContainerSite) -> None:
    """No majority, for longer than sessions last: nobody fails, so everybody serves; what needs ZooKeeper is refused
    by its name. With a majority again the same nodes are registered, nobody was deposed, and failovers work."""
    lost = ("zookeeper1", "zookeeper2")
    with Load(cluster.client(), "zk-quorum") as load:
        before = actives(cluster)
        for server in lost:
            site.kill(server)
        passes(2 * SESSION_MS / 1_000)
        load.flows(SERVES_AGAIN_S)
        with pytest.raises(UnreachableError, match="ZooKeeper is not connected"):
            cluster.client().runtime.operators.rebalance("p")
        load.flows(SERVES_AGAIN_S)
        site.start_server("zookeeper")
        wait(lambda: sorted(cluster.registered()) == ["A", "B", "C"], "all nodes are registered", SERVES_AGAIN_S)
        whole_again(cluster)
        assert actives(cluster) == before
        victim = cluster.table("p-0").node_list[0]
        cluster.kill(victim)
        load.flows(SERVES_AGAIN_S)
        cluster.start([victim])
        whole_again(cluster)
    assert load.errors == []
    check(cluster, load)


@pytest.mark.feature("O3", "R1")
def test_all_brokers_restarted_one_after_the_other(cluster: Cluster, site: ContainerSite) -> None:
    """As an operator upgrades them, under load: nobody gets an error, nothing acknowledged is lost."""
    with Load(cluster.client(), "rolling") as load:
        for number in range(1, COUNT + 1):
            site.restart(f"kafka{number}")
            load.flows(SERVES_AGAIN_S)
        whole_again(cluster)
    assert load.errors == []
    check(cluster, load)


@pytest.mark.feature("O3", "R1")
def test_one_broker_alone_acknowledges_nothing(cluster: Cluster, site: ContainerSite) -> None:
    """What only one of three has could be lost with it: callers wait until there are two again, and are served."""
    with Load(cluster.client(), "alone") as load:
        site.kill("kafka1")
        site.kill("kafka2")
        passes(1.0)  # what was acknowledged by two before is told
        told = len(load.acked)
        passes(3.0)
        assert len(load.acked) == told
        site.start_server("kafka1")
        load.flows(2 * SERVES_AGAIN_S)
        site.start_server("kafka2")
        whole_again(cluster)
    assert load.errors == []
    check(cluster, load)
