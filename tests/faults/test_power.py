"""Machines of nodes that lose power: what a replica was asked to flush is on its disk, whatever the log has; and what
the log lacks is brought back from there, or it is told that it may be lost."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from halog.core.durability import Durability
from halog.embedded import EmbeddedSite
from halog.runtime.node.open import RunningNode
from tests.faults.conftest import MODULE
from tests.faults.power import Flushed
from tests.faults.scene import replica
from tests.faults.things import Counter
from tests.integration.cluster.checker import check
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.processes import passes, wait
from tests.integration.cluster.test_sync_policies import on_disk

pytestmark = [pytest.mark.timeout(180), pytest.mark.feature("R6"), pytest.mark.promise(1)]

EACH = 30
PUSHED = 20
FLUSHED = Durability(remote="SYNC", replicas=1)


def add(node: RunningNode, durability: Durability | None = None) -> None:
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
    flushed.started_again()
    stands = on_disk(cluster, victim, "p-0")
    assert stands == asked if by_policy else asked <= stands < lsn(cluster)
    cluster.start([victim])
    cluster.whole()
    check(cluster)


@pytest.mark.feature("R6", "R1")
@pytest.mark.parametrize("remote", ["WRITE_NO_SYNC", "SYNC"])
def test_all_nodes_lose_power_while_the_log_lacks_what_was_acknowledged(
    own_site: EmbeddedSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote: str
) -> None:
    """The log has all that copies have read, so none of them stops: what was flushed is appended again. What was only
    handed to the operating system is not there, and the store, of another run of its machine, stands for nobody."""
    cluster = Cluster(
        tmp_path, own_site, nodes="AB", partitions=1, async_=0, local_sync="NO_SYNC", remote_sync=remote, module=MODULE
    )
    cluster.timed(store_flush_ms=60_000)
    flushed = Flushed(tmp_path)
    with closing(cluster), flushed.preloaded(monkeypatch):
        cluster.start()
        cluster.whole()
        node, follower = cluster.client(), replica(cluster, "sync")
        for n in range(EACH):
            with node.transaction(durability=FLUSHED) as tx:  # and with it that the store stands for this incarnation
                tx.create(Counter("logged", str(n)))
        wait(lambda: _levels(cluster) == [lsn(cluster)] * 2, "the log has it, and both have read it")
        own_site.pause("kafka")
        acknowledged = []
        for n in range(PUSHED):
            with node.transaction() as tx:
                tx.create(Counter("pushed", str(n)))
            assert tx.id is not None
            acknowledged.append((tx.id, tx.lsn))
        for do in (cluster.freeze, cluster.kill):
            for name in "AB":
                do(name)
        lost = flushed.cut(f for name in "AB" for f in (cluster.directory / name).rglob("*.log"))
        flushed.started_again()
        assert (on_disk(cluster, follower, "p-0") == acknowledged[-1][1]) is (remote == "SYNC"), f"cut: {lost}"
        own_site.kill("kafka")  # with what it was sent and has not read
        own_site.start_server("kafka")
        cluster.whole()
        told = any("HALOG-1019 partition p-0" in cluster.log_of(name) for name in "AB")
        with node.transaction():
            found = [(c.group, int(c.name)) for c in node.extent(Counter)]
        assert sorted(n for group, n in found if group == "logged") == list(range(EACH))
        numbers = sorted(n for group, n in found if group == "pushed")
        history = check(cluster)["p-0"]
        if remote == "SYNC":
            assert numbers == list(range(PUSHED))
            assert [history.ids[tx] for tx, _ in acknowledged] == [[at] for _, at in acknowledged]
            assert not told
        else:
            assert numbers == []
            assert told


def _levels(cluster: Cluster) -> list[int]:
    return [int(cluster.copies(name)["p-0"]["lsn"]) for name in "AB"]
