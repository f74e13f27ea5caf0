"""Kafka and ZooKeeper fail under load: nothing is lost, and everything serves again within a stated time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from halog.embedded.model import ServerName
from halog.errors import SiteError
from tests.contract.proxy import Proxy
from tests.integration.cluster.checker import check
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.load import Load
from tests.integration.cluster.processes import passes, wait
from tests.integration.cluster.test_kill import whole_again
from tests.integration.site import Site

pytestmark = pytest.mark.timeout(600)

SERVERS: tuple[ServerName, ...] = ("kafka", "zookeeper")
SERVES_AGAIN_S = 60.0
"""After a server answers again: a new session and an election are a second; the machine is busy."""
STILL_S = 2.0
FENCED_S = 3.0
"""After this time Kafka fences a broker that is silent."""


def roles(cluster: Cluster) -> dict[str, object]:
    """Return who is active."""
    return {t.name: (t.epoch, t.active) for t in cluster.tables()}


def in_place(cluster: Cluster) -> dict[str, object]:
    """Return who is active, once every role is where it is preferred."""
    cluster.in_place()
    return roles(cluster)


def stood_still(site: Site, load: Load) -> float:
    """Stop the broker until all callers have waited for two seconds. Return how long it stood still."""
    site.pause("kafka")
    began = time.monotonic()
    wait(lambda: load.shortest_s >= STILL_S, "every caller waits")
    site.resume("kafka")
    return time.monotonic() - began


@pytest.fixture(autouse=True)
def mended(site: Site) -> Iterator[None]:
    """Whatever a test did to the servers, both run afterwards."""
    yield
    for server in SERVERS:
        for mend in (site.resume, site.start_server):
            with suppress(SiteError):  # it is not stopped, it runs
                mend(server)


@pytest.mark.long
@pytest.mark.feature("O3", "R1")
def test_the_broker_is_killed_and_started_again(cluster: Cluster, site: Site) -> None:
    """Callers wait and are served; what was in flight is settled by its id."""
    with Load(cluster.client(), "broker") as load:
        site.kill("kafka")
        site.start_server("kafka")
        load.flows(SERVES_AGAIN_S)
        whole_again(cluster)
    assert load.errors == []
    check(cluster, load)


@pytest.mark.feature("O3", "R1")
def test_the_broker_stands_still_for_two_seconds(cluster: Cluster, site: Site) -> None:
    """Less than the append deadline, and than the time after which Kafka fences a silent broker (3 s): nobody is
    deposed for it, and nobody gets an error."""
    with Load(cluster.client(), "pause") as load:
        before = in_place(cluster)
        while stood_still(site, load) >= FENCED_S:  # this process stood still meanwhile: that was another fault
            load.flows(SERVES_AGAIN_S)
            before = in_place(cluster)
        load.flows(SERVES_AGAIN_S)
        assert roles(cluster) == before
    assert load.errors == []
    assert load.longest_s >= STILL_S
    check(cluster, load)


@pytest.mark.feature("O3", "P10", "R4")
def test_commits_go_on_without_zookeeper(cluster: Cluster, site: Site) -> None:
    """Killed, it is away for longer than its sessions; partitions serve on. Back, it is told who is there, and a node
    killed then is replaced as ever."""
    with Load(cluster.client(), "zookeeper") as load:
        before = in_place(cluster)
        site.kill("zookeeper")
        passes(4.0)
        load.flows(SERVES_AGAIN_S)
        site.start_server("zookeeper")
        wait(lambda: sorted(cluster.registered()) == ["A", "B", "C"], "all nodes are registered again", SERVES_AGAIN_S)
        assert roles(cluster) == before
        victim = cluster.table("p-0").node_list[0]
        cluster.kill(victim)
        load.flows(SERVES_AGAIN_S)
        cluster.start([victim])
        whole_again(cluster)
    assert load.errors == []
    check(cluster, load)


@pytest.mark.long
@pytest.mark.feature("O3", "R1")
def test_both_servers_are_killed_and_started_again(cluster: Cluster, site: Site) -> None:
    """As after the machine came back with the nodes still there."""
    with Load(cluster.client(), "both") as load:
        site.kill("zookeeper")
        site.kill("kafka")
        site.start_server("zookeeper")
        site.start_server("kafka")
        load.flows(SERVES_AGAIN_S)
        whole_again(cluster)
    assert load.errors == []
    check(cluster, load)


@pytest.mark.feature("N4", "R5", "P10")
def test_a_node_cut_off_from_zookeeper_serves_on_until_it_is_replaced(cluster: Cluster, site: Site) -> None:
    """Its session ends although it lives and answers. Callers still reach it; since it could change no node list any
    more, the others take over; back, the same run is registered again and a replica."""
    proxy = Proxy(site.info.zookeeper.split(",")[0])
    cut_off = cluster.table("p-0").node_list[0]
    try:
        cluster.processes[cut_off].terminate()
        cluster.launch(cut_off, cluster.configuration("behind-proxy.toml", zookeeper=proxy.address)).ready()
        whole_again(cluster)
        cluster.lead("p-0", cut_off)
        whole_again(cluster)
        run = cluster.registered()[cut_off]
        with Load(cluster.client(), "expired") as load:
            proxy.cut(reopen=False)
            wait(lambda: cut_off not in cluster.registered(), "its session has ended", SERVES_AGAIN_S)
            load.flows(SERVES_AGAIN_S)
            wait(lambda: cluster.led_by(cut_off) == [], "it is replaced", SERVES_AGAIN_S)
            load.flows(SERVES_AGAIN_S)
            proxy.open()
            whole_again(cluster)
            assert cluster.registered()[cut_off] == run
            load.flows(SERVES_AGAIN_S)
        assert load.errors == []
        check(cluster, load)
    finally:
        cluster.kill(cut_off)
        proxy.close()
