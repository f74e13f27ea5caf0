"""What a merge of two real sites left to an operator is settled by him, over a failover, and is known at both sites."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.processes import wait
from tests.integration.sites.test_restoring import EXPECTED, check, halog, parted
from tests.integration.sites.test_taking_over import level
from tests.integration.sites.two import EAST, Between, TwoSites

pytestmark = [pytest.mark.timeout(300), pytest.mark.feature("M2", "M3")]

LEFT = {"S1", "S2", "S3", "S4", "K", *(f"W{i}" for i in range(5))}
"""Both have changed S and K; W was created at west alone."""


@pytest.fixture
def two_sites(between: Between, tmp_path: Path) -> Iterator[TwoSites]:
    """Nodes whose application defers every conflict."""
    made = TwoSites(tmp_path, between, module="tests.integration.sites.deferring")
    try:
        yield made
    finally:
        between.heal()
        made.close()


def waiting(site: Cluster) -> set[str]:
    shown = halog(site, "conflicts", "show", "--open")
    return {o["key"][0] for d in shown for o in d["objects"]}


def settle(site: Cluster, tail: str, *words: str, code: int = 0) -> dict[str, object] | None:
    found: dict[str, object] | None = halog(site, "conflicts", "settle", "Aircraft", tail, *words, code=code)
    return found


def conflicts_told(site: Cluster) -> int:
    """So many were left to operators, by events."""
    return sum(e["more"]["count"] for e in halog(site, "events") if e["code"] == "HALOG-1052")


@pytest.mark.long
def test_what_was_left_to_an_operator_is_settled_and_both_sites_know(two_sites: TwoSites) -> None:
    parted(two_sites)
    west, east = two_sites.west, two_sites.east
    told = halog(west, "restore", "--source", EAST)
    assert sum(d["deferred"] for d in told) == len(LEFT)
    level(two_sites)
    assert waiting(east) == waiting(west) == LEFT
    settle(east, "S1", "--as", "initiating", "--reason", "the tower says so")
    settle(east, "S2", "--fields", '{"landings": 7}')
    settle(east, "W0", "--as", "nothing")  # there is nothing
    settle(west, "S3", "--as", "base", code=5)
    wait(lambda: conflicts_told(east) == len(LEFT), "all of them are told to operators")
    active = east.tables()[0].active
    assert active is not None
    east.kill(active.node)
    settle(east, "W1", "--as", "initiating")
    settle(east, "S3", "--as", "base")
    settle(east, "S1", "--as", "source", code=5)
    east.start([active.node])
    level(two_sites)
    assert waiting(east) == waiting(west) == LEFT - {"S1", "S2", "S3", "W0", "W1"}
    halog(east, "conflicts", "settle", "--all", "--as", "source")
    level(two_sites)
    assert waiting(east) == waiting(west) == set()
    there = {"S1": 3, "S2": 7, "S3": 1, "S4": 5, "K": 4, "W1": 1}
    check(two_sites, east, there | {tail: n for tail, n in EXPECTED.items() if tail.startswith("E")})
    client = east.client("after")
    with client.transaction():
        assert [i for i in range(5) if client.find(Aircraft, f"W{i}") is not None] == [1]
    assert conflicts_told(east) == len(LEFT)
