"""A whole site is lost under load: its nodes, its Kafka and its ZooKeeper. Its commits waited for the other site's log
(`sync_sites`), which takes over: everything that was acknowledged is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.integration.cluster.fleet import Aircraft
from tests.integration.sites.test_sync_sites import LINE_S, Traffic, waited_for
from tests.integration.sites.test_taking_over import command, land
from tests.integration.sites.two import EAST, WEST, Between, TwoSites

pytestmark = [pytest.mark.timeout(300), pytest.mark.feature("M5", "R1", "R6")]

THREADS = 4
DEADLINE_S = 10.0
"""For a call: who waits for a site that is lost is told so."""


@pytest.fixture
def two_sites(between: Between, tmp_path: Path) -> Iterator[TwoSites]:
    """Each waits for the other one, whichever serves."""
    made = TwoSites(tmp_path, between, sync_sites=(WEST, EAST), deadline_ms=int(1000 * DEADLINE_S))
    try:
        yield made
    finally:
        between.heal()
        made.close()


def kill_all(two_sites: TwoSites, site: str) -> None:
    """kill -9 of everything there, at once. The line is whole: whatever leaves before that arrives."""
    cluster, servers = two_sites.clusters[site], two_sites.between.sites[site].site
    kills: list[Callable[[], object]] = [partial(cluster.kill, name) for name in cluster.nodes]
    kills += [partial(servers.kill, server) for server in ("kafka", "zookeeper")]
    with ThreadPoolExecutor(len(kills)) as pool:
        for done in [pool.submit(kill) for kill in kills]:
            done.result()


@pytest.mark.promise(1)
@pytest.mark.quick_fault
def test_what_was_acknowledged_is_at_the_other_site_when_one_is_lost(two_sites: TwoSites) -> None:
    """And nothing else but what nobody could tell of; commits go on there, alone."""
    two_sites.start()
    waited_for(two_sites)
    two_sites.between.delay(LINE_S)
    traffic = Traffic(two_sites.west.client(), THREADS)
    traffic.flows()
    kill_all(two_sites, WEST)
    traffic.stopped.set()
    told = command(two_sites.east, "promote", "--may-fork")
    assert {(d["from"], d["may_fork"], d["lacks"]) for d in told} == {(WEST, True, "")}
    two_sites.east.whole()
    node = two_sites.east.client()
    land(node, "after", 3)
    with node.transaction(read="active"):
        here = {a.tail for a in node.extent(Aircraft)} - {"after"}
    traffic.end(2 * DEADLINE_S)
    acknowledged, unknown = traffic.acknowledged, traffic.unknown
    assert not acknowledged - here, f"{len(acknowledged - here)} of {len(acknowledged)} acknowledged commits are lost"
    assert here <= acknowledged | unknown, here - acknowledged - unknown
