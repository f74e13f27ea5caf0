"""A replica's machine that loses power: what it was asked to flush is on its disk, whatever the log has."""

from __future__ import annotations

from pathlib import Path

import pytest

from halog.core.durability import Durability
from halog.runtime.open import Node
from tests.faults.conftest import MODULE
from tests.faults.power import Flushed
from tests.faults.scene import replica
from tests.faults.things import Counter
from tests.integration.cluster.checker import check
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.processes import passes
from tests.integration.cluster.test_sync_policies import on_disk

pytestmark = [pytest.mark.timeout(180), pytest.mark.feature("R6"), pytest.mark.promise(1)]

EACH = 30
FLUSHED = Durability(remote="SYNC", replicas=1)


def add(node: Node, durability: Durability | None = None) -> None:
    for _ in range(EACH):
        with node.transaction(durability=durability) as tx:
            tx.get(Counter, "power", "c").value += 1


def lsn(cluster: Cluster) -> int:
    active = cluster.table("p-0").active
    assert active is not None
    return int(cluster.copies(active.node)["p-0"]["lsn"])


@pytest.mark.parametrize("who", ["the policy", "the transaction"])
def test_what_was_asked_to_be_flushed_is_on_a_disk_that_lost_power(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    """It flushes by itself once a minute here, so nothing else has."""
    by_policy = who == "the policy"
    cluster = make(nodes="AB", partitions=1, async_=0, remote_sync="SYNC" if by_policy else "NO_SYNC", module=MODULE)
    cluster.timed(store_flush_ms=60_000)
    flushed = Flushed(tmp_path)
    with flushed.preloaded(monkeypatch):
        cluster.start()
    cluster.whole()
    victim, node = replica(cluster, "sync"), cluster.client()
    with node.transaction() as tx:
        tx.create(Counter("power", "c"))
    add(node, None if by_policy else FLUSHED)
    asked = lsn(cluster)
    if not by_policy:
        add(node)
        passes(0.5)  # they are in its store, and in no flush
    cluster.kill(victim)
    lost = flushed.cut((cluster.directory / victim).rglob("*.log"))
    assert by_policy or sum(lost.values()) > 500, "nothing was lost: this shows nothing"
    stands = on_disk(cluster, victim, "p-0")
    assert stands == asked if by_policy else asked <= stands < lsn(cluster)
    cluster.start([victim])
    cluster.whole()
    check(cluster)
