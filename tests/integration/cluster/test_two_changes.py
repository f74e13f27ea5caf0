"""Two changes of placement at once, under load, while a node dies: nothing lost, doubled, misplaced (P6, P12, P13)."""

from __future__ import annotations

from pathlib import Path

import pytest

from halog.config import load_config
from tests.integration.cluster.checker import copies_equal
from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.load import Load
from tests.integration.cluster.pauses import Control
from tests.integration.cluster.processes import wait
from tests.integration.cluster.test_rebalancing import spread
from tests.integration.cluster.test_remapping import STEADY, Looker, begins, check_objects, check_places, done
from tests.integration.cluster.waits import DOUBTED

pytestmark = [pytest.mark.timeout(600), pytest.mark.feature("P6", "P12", "P13")]

PATIENCE_S = 120.0
"""Six partitions move two at a time beside the moves of hundreds of objects, and a node comes back meanwhile."""


def with_ring(cluster: Cluster, size: int) -> Path:
    """The configuration with another ring, whose objects move in small batches, so that it takes a while."""
    file = cluster.configuration(f"ring{size}.toml")
    text = file.read_text().replace("[policies.p]\n", f"[policies.p]\nring_size = {size}\nmove_objects = 10\n")
    file.write_text(text)
    return file


def judged(cluster: Cluster, load: Load, looker: Looker, control: Control, file: Path) -> None:
    """Nobody got an error or missed what was there; every object exists once, where the mapping has it, on all copies
    of its partition; every landing that was told stands."""
    assert (load.errors, looker.missed[:3], looker.looks > 20) == ([], [], True)
    control.check(load.waits, DOUBTED)
    wait(lambda: copies_equal(cluster), "every copy holds the same")
    check_places(cluster, file)
    check_objects(load, cluster)


def test_the_ring_changes_while_a_node_joins_and_another_is_killed(make: Make, control: Control) -> None:
    """Objects begin to move; D comes, and is given partitions by the nodes themselves; B is killed, and comes back."""
    cluster = make(nodes="ABCD", async_=0)
    cluster.timed(join_settle_ms=500, replace_after_ms=4_000)
    cluster.start(["A", "B", "C"])
    wait(lambda: spread(cluster) == dict.fromkeys("ABC", 4), "D's copies are on the others", PATIENCE_S)
    client = cluster.client()
    client.load([Aircraft(f"steady{i}") for i in range(STEADY)])
    ring = with_ring(cluster, 3_000)
    with Load(client, "joined") as load, Looker(cluster) as looker:
        client.runtime.operators.rebalance("p", load_config(ring))
        wait(lambda: begins(cluster, 1), "objects begin to move", PATIENCE_S)
        cluster.start(["D"])
        wait(lambda: any("D" in t.hosts for t in cluster.tables()), "D is given something", PATIENCE_S)
        cluster.kill("B")
        load.flows()
        cluster.start(["B"])
        wait(lambda: done(cluster, 1), "every object is where the new ring has it", PATIENCE_S)
        wait(lambda: spread(cluster) == dict.fromkeys("ABCD", 3), "partitions are spread over four", PATIENCE_S)
        load.flows()
    judged(cluster, load, looker, control, ring)


@pytest.mark.long
def test_the_ring_changes_while_partitions_are_migrated_and_one_of_their_nodes_is_killed(
    make: Make, control: Control
) -> None:
    """Three partitions are to change a node while objects move between all of them. The node that two are to come to is
    killed before it has them, and comes back."""
    cluster = make(nodes="ABC", async_=0)
    cluster.start()
    cluster.whole()
    client = cluster.client()
    client.load([Aircraft(f"steady{i}") for i in range(STEADY)])
    ring = with_ring(cluster, 2_000)
    with Load(client, "migrated") as load, Looker(cluster) as looker:
        client.runtime.operators.rebalance("p", load_config(ring))
        wait(lambda: begins(cluster, 1), "objects begin to move", PATIENCE_S)
        wished = {}
        for table in cluster.tables()[:3]:
            new = next(n for n in "ABC" if n not in table.configured)
            wished[table.name] = (new, table.configured[-1])
            client.runtime.operators.migrate(table.name, wished[table.name])
        victim = wished["p-0"][0]
        cluster.kill(victim)
        load.flows()
        cluster.start([victim])
        wait(lambda: done(cluster, 1), "every object is where the new ring has it", PATIENCE_S)
        wait(lambda: all(t.target is None and cluster.complete(t) for t in cluster.tables()), "all moved", PATIENCE_S)
        assert {name: cluster.table(name).configured for name in wished} == wished
        load.flows()
    judged(cluster, load, looker, control, ring)
