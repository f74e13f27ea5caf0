"""A cluster's level rises while processes run that do not know it: they take part no more (U1)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest

from halog.adapters.memory import MemoryCoordinator, MemoryTree
from halog.adapters.zookeeper.access import PLAIN
from halog.config import Config, RemoteSiteConfig, SiteConfig
from halog.core.ids import Member
from halog.errors import HalogError, VersionMismatchError
from halog.metadata.cluster_level import LEVEL, check_level
from halog.runtime.node import coordinator_memo as remembering
from halog.runtime.node.cluster_recovery import RecoverySurvey
from halog.runtime.node.wiring import reach
from halog.runtime.sites.home_tables import returned
from halog.runtime.support.adapters import SiteAccess
from halog.testing.cluster import Cluster, wait_until
from halog.transactions.node import Node
from tests.unit.runtime.host.test_faults import REGISTRY, Counter

pytestmark = [pytest.mark.nodes, pytest.mark.feature("U1")]

SAYS = f"cluster test is at level {LEVEL + 1} "


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(2, partitions=2, registry=REGISTRY) as cluster:
        yield cluster


def higher(tree: MemoryTree) -> None:
    tree.create("level", json.dumps({"level": LEVEL + 1, "by": "ops"}).encode(), 0)


def refused(user: Node) -> bool:
    try:
        with user.transaction() as tx:
            tx.find(Counter, "c")
    except VersionMismatchError:
        return True
    except HalogError:
        return False
    return False


def test_a_client_refuses_every_verb_and_nodes_give_up_what_they_serve(cluster: Cluster) -> None:
    client = cluster.client()
    with client.transaction() as tx:
        tx.create(Counter("c"))
    higher(cluster.tree)
    wait_until(lambda: refused(client), "the client has heard")
    with pytest.raises(VersionMismatchError, match=SAYS), client.transaction() as tx:
        tx.create(Counter("d"))
    with pytest.raises(VersionMismatchError, match=SAYS), client.transaction(read="barrier") as tx:
        tx.get(Counter, "c")
    with pytest.raises(VersionMismatchError, match=SAYS), client.transaction() as tx:
        list(tx.extent(Counter))
    nodes = [cluster.node(name) for name in cluster.names]
    for node in nodes:
        wait_until(lambda: refused(node), "the node has heard")  # noqa: B023
        wait_until(lambda: not any(c.serving for c in node.runtime.copies.values()), "it serves nothing")  # noqa: B023
        assert str(node.runtime.status()["offline"]).startswith(SAYS)
        with pytest.raises(VersionMismatchError, match=SAYS):
            node.partitions["test-0"].disable()


def test_a_level_that_rose_while_the_session_was_lost_is_seen_behind_it(cluster: Cluster) -> None:
    session = cluster.running["B"].coordinator
    session.expire(reconnect=False)
    higher(cluster.tree)
    assert not cluster.node("B").runtime.status()["offline"]
    session.resume()
    wait_until(lambda: refused(cluster.node("B")), "it has looked again")


def test_a_level_that_cannot_be_read_changes_nothing_for_who_runs(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.tree.create("level", b"{}", 0)
    wait_until(lambda: "znode level is no level" in caplog.text, "it is said")
    with cluster.node("A").transaction() as tx:
        tx.create(Counter("c"))


def test_another_site_is_asked_for_its_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a ZooKeeper of its own, and may have been raised first."""
    sessions = [MemoryCoordinator(MemoryTree())]
    higher(sessions[0].tree)
    monkeypatch.setattr("halog.adapters.zookeeper.coordinator.ZkCoordinator", lambda *_, **__: sessions[0])
    with Cluster(1, registry=REGISTRY) as cluster:
        own: Config = replace(
            cluster.config, site=SiteConfig("east", "m:1", "m:2"), sites={"west": RemoteSiteConfig("w:1", "w:2")}
        )
    with pytest.raises(VersionMismatchError, match=SAYS):
        reach(own, "west", access=PLAIN)
    assert not sessions[0].is_connected


def test_a_node_does_not_start_past_a_site_whose_level_it_does_not_know() -> None:
    """That site is not away: it may have taken over what the node would serve."""

    def reached(site: str) -> SiteAccess:
        raise VersionMismatchError(f"{SAYS}there")

    with Cluster(1, partitions=1, registry=REGISTRY, site="east", others=("west",)) as cluster:
        tables = {name: (1, table) for name, table in cluster.tables().items()}
        for name in cluster.names:
            cluster.kill(name)
        coordinator = MemoryCoordinator(cluster.tree)
        coordinator.connect(lambda state: None)
        with pytest.raises(VersionMismatchError, match=SAYS):
            returned(cluster.config, coordinator, reached, tables, Member("east-A", 2))


def test_the_level_is_noted_and_restored(cluster: Cluster) -> None:
    """A coordinator that lost it would let everybody in. Who does not know it restores nothing."""
    cluster.tree.create("level", json.dumps({"level": LEVEL, "by": "ops"}).encode(), 0)
    stores = {name: cluster.node(name).runtime.adapters.store for name in cluster.names}
    wait_until(lambda: all("level" in remembering.noted(s) for s in stores.values() if s), "they have noted it")
    kept = {name: store for name, store in stores.items() if store is not None}
    empty = MemoryCoordinator(MemoryTree())
    empty.connect(lambda state: None)
    log = cluster.node("A").runtime.adapters.log
    plan = RecoverySurvey(log, empty, cluster.config, kept, {}).plan()
    assert json.loads(plan.znodes["level"])["level"] == LEVEL
    data = json.dumps({"level": LEVEL + 1}).encode()
    for store in kept.values():
        store.write([(b"halog:znode:level", msgspec.msgpack.encode((1 << 50, data)))])
    with pytest.raises(VersionMismatchError, match=SAYS.strip()):
        RecoverySurvey(log, empty, cluster.config, kept, {})
    check_level(empty, "test")
