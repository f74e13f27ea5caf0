"""Nodes come and go for good while applications write: partitions are spread anew by themselves (P2, P13)."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.integration.cluster.checker import check
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.load import Load
from tests.integration.cluster.pauses import Control
from tests.integration.cluster.processes import wait
from tests.integration.cluster.test_activation import begun
from tests.integration.cluster.test_zones import halog
from tests.integration.cluster.waits import DIED, MOVED

pytestmark = [pytest.mark.timeout(600), pytest.mark.feature("P2", "P13")]

PATIENCE_S = 90.0
"""Six partitions move two at a time, each by a copy and a hand-over."""


def spread(cluster: Cluster) -> dict[str, int]:
    """Copies of each node; empty while something moves."""
    tables = cluster.tables()
    if any(t.target is not None for t in tables) or not cluster.complete(*tables):
        return {}
    return dict(Counter(n for t in tables for n in t.configured))


@pytest.mark.long
def test_a_node_joins_and_another_is_gone_for_good(make: Make, control: Control) -> None:
    """The file names D, which has never run: the others take over its copies. Then it comes, and gets a share; then B
    dies, and is replaced. Callers get no error, nothing is lost or doubled, and nobody says a word to the cluster."""
    cluster = make(nodes="ABCD", async_=0)
    cluster.timed(join_settle_ms=500, replace_after_ms=3_000)
    cluster.start(["A", "B", "C"])
    wait(lambda: spread(cluster) == dict.fromkeys("ABC", 4), "D's copies are on the others", PATIENCE_S)
    with Load(cluster.client(), "turnover") as load:
        cluster.start(["D"])
        wait(lambda: spread(cluster) == dict.fromkeys("ABCD", 3), "D gets its share", PATIENCE_S)
        load.flows()
        cluster.kill("B")
        load.flows()
        wait(lambda: spread(cluster) == dict.fromkeys("ACD", 4), "B's copies are on the others", PATIENCE_S)
        load.flows()
    assert load.errors == []
    control.check(load.waits, DIED)
    check(cluster, load)


@pytest.mark.feature("P13", "P4")
def test_a_version_with_another_number_of_replicas_is_activated(make: Make, control: Control) -> None:
    """Each partition gets a third copy, and gives one up again, while applications write; nobody makes a plan."""
    cluster = make(nodes="ABC", partitions=3, sync=1, async_=0)
    cluster.start()
    cluster.whole()
    assert begun(cluster, cluster.toml).wait(60) == 0
    with Load(cluster.client(), "activated") as load:
        for copies, count in (("more", 3), ("fewer", 2)):
            assert begun(cluster, cluster.configuration(f"{copies}.toml", async_=count - 2)).wait(60) == 0
            wait(lambda count=count: spread(cluster) == dict.fromkeys("ABC", count), f"{copies} copies", PATIENCE_S)  # type: ignore[misc]
            load.flows()
    assert load.errors == []
    control.check(load.waits, MOVED)
    check(cluster, load)

    def causes() -> list[str]:
        return [e["cause"] for e in halog(cluster, "events")[1] if e["code"] == "HALOG-1030"]

    whys = [f"version {n} of the configuration places it otherwise" for n in (2, 3)]
    wait(lambda: causes() == whys, lambda: f"the history has both plans and no other: {causes()}")
