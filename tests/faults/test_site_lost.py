"""A whole site is lost under load: its nodes, its Kafka and its ZooKeeper. Its commits waited for the other site's log
(`sync_sites`), which takes over: everything that was acknowledged is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.processes import wait
from tests.integration.sites.test_sync_sites import LINE_S, Traffic, waited_for
from tests.integration.sites.test_taking_over import command, land
from tests.integration.sites.two import EAST, WEST, Between, TwoSites

pytestmark = [pytest.mark.timeout(300), pytest.mark.feature("M5", "R1", "R6")]

THREADS = 4
DEADLINE_S = 10.0
"""For a call: who waits for a site that is lost is told so."""


BY_VOTES: dict[str, Any] = {"takeover": "quorum", "takeover_after_ms": 4_000, "votes": {WEST: 1, EAST: 2}}
TAKES_S = 90.0
"""For a takeover that nobody asks for."""


@pytest.fixture(params=[{}])
def two_sites(request: pytest.FixtureRequest, between: Between, tmp_path: Path) -> Iterator[TwoSites]:
    """Each waits for the other one, whichever serves."""
    deadline_ms = int(1000 * DEADLINE_S)
    made = TwoSites(tmp_path, between, sync_sites=(WEST, EAST), deadline_ms=deadline_ms, **request.param)
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


def asked(two_sites: TwoSites) -> None:
    """By an operator, who is told that nothing is missing."""
    told = command(two_sites.east, "promote", "--may-fork", "--cluster", two_sites.east.name)
    assert {(d["from"], d["may_fork"], d["lacks"]) for d in told} == {(WEST, True, "")}


def by_itself(two_sites: TwoSites) -> None:
    """East has the votes."""
    east = two_sites.east
    wait(lambda: not any(east.table(p).owner for p in east.partitions()), "east takes over", TAKES_S)


@pytest.mark.promise(1)
@pytest.mark.parametrize(
    ("two_sites", "takes_over"),
    [pytest.param({}, asked, marks=pytest.mark.quick_fault), pytest.param(BY_VOTES, by_itself)],
    indirect=["two_sites"],
)
def test_what_was_acknowledged_is_at_the_other_site_when_one_is_lost(
    two_sites: TwoSites, takes_over: Callable[[TwoSites], None]
) -> None:
    """And nothing else but what nobody could tell of; commits go on there, alone."""
    two_sites.start()
    waited_for(two_sites)
    two_sites.between.delay(LINE_S)
    traffic = Traffic(two_sites.west.client(), THREADS)
    traffic.flows()
    kill_all(two_sites, WEST)
    traffic.stopped.set()
    takes_over(two_sites)
    two_sites.east.whole()
    node = two_sites.east.client()
    land(node, "after", 3)
    with node.transaction(read="active"):
        here = {a.tail for a in node.extent(Aircraft)} - {"after"}
    traffic.end(6 * DEADLINE_S)
    acknowledged, unknown = traffic.acknowledged, traffic.unknown
    assert not acknowledged - here, f"{len(acknowledged - here)} of {len(acknowledged)} acknowledged commits are lost"
    assert here <= acknowledged | unknown, here - acknowledged - unknown
