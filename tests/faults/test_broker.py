"""The broker killed, paused, full, orphaned; its requests and replies of one kind held or lost for one node."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from halog.embedded import EmbeddedSite
from halog.embedded.model import SERVERS
from tests.faults.clients import Clients
from tests.faults.conftest import MODULE
from tests.faults.history import Outcome
from tests.faults.judge import judge
from tests.faults.links import Way
from tests.faults.mesh import Mesh
from tests.faults.scene import GIVES_UP_S, SERVER_BACK_S, SERVES_AGAIN_S, active, complete, epochs
from tests.faults.verdict import explained
from tests.integration.cluster.checker import copies_equal
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.processes import passes, wait
from tests.integration.cluster.test_restore import log_start

pytestmark = [pytest.mark.timeout(240), pytest.mark.feature("R1", "R5", "O3")]

PRODUCE, INIT_PRODUCER_ID, END_TXN = 0, 22, 26
"""Kafka's numbers of requests."""
DISK_MB = 300
"""The smallest disk an embedded site accepts, and some."""


@pytest.mark.promise(1)
def test_killed_and_started_again(cluster: Cluster, site: EmbeddedSite) -> None:
    """What was in flight is settled by its id; callers only wait."""
    with Clients(cluster.client(), "broker") as clients:
        site.kill("kafka")
        site.start_server("kafka")
        clients.flows(SERVER_BACK_S)
        complete(cluster)
    assert clients.told(Outcome.UNKNOWN) == []
    judge(cluster, clients)


@pytest.mark.promise(1)
def test_paused_for_less_than_the_append_deadline(cluster: Cluster, site: EmbeddedSite) -> None:
    """Nobody is deposed, nobody gets an error."""
    with Clients(cluster.client(), "paused") as clients:
        before = epochs(cluster)
        site.pause("kafka")
        passes(3.0)
        site.resume("kafka")
        clients.flows(SERVES_AGAIN_S)
        assert epochs(cluster) == before
    assert clients.told(Outcome.UNKNOWN) == []
    judge(cluster, clients)


@pytest.mark.promise(1)
def test_paused_for_thirty_seconds(cluster: Cluster, site: EmbeddedSite) -> None:
    """Far beyond the append deadline: epochs end, and whatever lands late counts for one of them only."""
    with Clients(cluster.client(), "long-paused") as clients:
        site.pause("kafka")
        passes(30.0)
        site.resume("kafka")
        clients.flows(SERVER_BACK_S)
        complete(cluster)
        clients.flows(SERVES_AGAIN_S)
    judge(cluster, clients)


@pytest.mark.promise(1)
def test_both_servers_and_the_active_are_killed(cluster: Cluster, site: EmbeddedSite) -> None:
    """As one machine that fails with all that runs on it."""
    victim = active(cluster)
    with Clients(cluster.client(), "machine") as clients:
        site.kill("zookeeper")
        site.kill("kafka")
        cluster.kill(victim)
        site.start_server("zookeeper")
        site.start_server("kafka")
        clients.flows(SERVER_BACK_S)
        cluster.start([victim])
        complete(cluster)
    judge(cluster, clients)


@pytest.mark.promise(1)
def test_the_parent_of_the_embedded_servers_is_killed(own_site: EmbeddedSite, tmp_path: Path) -> None:
    """Both servers go with it; brought up again on their data, the nodes go on."""
    with closing(Cluster(tmp_path, own_site, partitions=3, module=MODULE)) as cluster:
        cluster.start()
        cluster.whole()
        with Clients(cluster.client(), "orphans") as clients:
            before = own_site.info
            os.kill(before.pid, signal.SIGKILL)
            servers = [Path(f"/proc/{before.pids[s]}") for s in ("kafka", "zookeeper")]
            wait(lambda: not any(s.exists() for s in servers), "both servers are gone", SERVES_AGAIN_S)
            own_site.stop()  # reaps it
            assert own_site.start().bootstrap == before.bootstrap
            clients.flows(SERVER_BACK_S)
            complete(cluster)
        judge(cluster, clients)


# --- one node's way to the broker ---


@pytest.mark.promise(1)
@pytest.mark.quick_fault
def test_acknowledgements_of_appends_are_lost(mesh: Mesh) -> None:
    """The record is in the log and its writer does not know: sent again, it stands there once."""
    link = mesh.kafka[active(mesh.cluster)]
    with Clients(mesh.client, "ack-lost") as clients:
        for _ in range(4):
            link.lost = 0
            link.lose(PRODUCE)
            wait(lambda: link.lost == 1, "an acknowledgement was lost", SERVES_AGAIN_S)
            clients.flows(GIVES_UP_S)
        complete(mesh.cluster)
    assert clients.told(Outcome.UNKNOWN) == []
    judge(mesh.cluster, clients)


@pytest.mark.promise(1)
def test_acknowledgements_of_appends_are_late(mesh: Mesh) -> None:
    """Two seconds, which is within the append deadline: callers wait, the epoch stays."""
    link = mesh.kafka[active(mesh.cluster)]
    with Clients(mesh.client, "ack-late") as clients:
        before = epochs(mesh.cluster)
        link.hold(Way.BACK, {PRODUCE})
        passes(2.0)
        link.heal()
        clients.flows(SERVES_AGAIN_S)
        assert epochs(mesh.cluster) == before
        assert link.held > 0
    assert clients.told(Outcome.UNKNOWN) == []
    judge(mesh.cluster, clients)


@pytest.mark.promise(3)
@pytest.mark.parametrize("way", [Way.OUT, Way.BACK], ids=["requests", "replies"])
def test_appends_held_beyond_the_deadline_land_in_a_dead_epoch(mesh: Mesh, way: Way) -> None:
    """An idempotent producer is not fenced (fact 1): what lands after a new epoch began is no commit, and nobody was
    told that it is."""
    link = mesh.kafka[active(mesh.cluster)]
    with Clients(mesh.client, f"late-{way.value}") as clients:
        before = epochs(mesh.cluster)["p-0"]
        link.hold(way, {PRODUCE})
        wait(lambda: epochs(mesh.cluster)["p-0"] > before, "the epoch was given up", GIVES_UP_S)
        passes(2.0)
        link.heal()
        clients.flows(SERVES_AGAIN_S)
        complete(mesh.cluster)
        assert link.held > 0
    judge(mesh.cluster, clients)


@pytest.mark.promise(5)
def test_producer_ids_are_held_during_a_failover(mesh: Mesh) -> None:
    """No node gets a new producer for three seconds: whoever takes over then, or with the one it has, serves."""
    cluster, victim = mesh.cluster, active(mesh.cluster)
    with Clients(mesh.client, "no-producer") as clients:
        for name in cluster.nodes:
            mesh.kafka[name].hold(Way.BACK, {INIT_PRODUCER_ID})
        cluster.freeze(victim)
        passes(3.0)
        mesh.heal()
        clients.flows(2 * SERVES_AGAIN_S)
        cluster.wake(victim)
        complete(cluster)
    judge(cluster, clients)


@pytest.mark.promise(5)
def test_producer_ids_are_lost_after_appends_were(mesh: Mesh) -> None:
    """The active's appends go unanswered until it gives up; of the producers that are made then, by whomever, the first
    replies are lost: they are asked for again, and each record stands in the log once."""
    cluster, victim = mesh.cluster, active(mesh.cluster)
    links = [mesh.kafka[name] for name in cluster.nodes]
    with Clients(mesh.client, "lost-producer") as clients:
        before = epochs(cluster)["p-0"]
        for link in links:
            link.lost = 0
            link.lose(INIT_PRODUCER_ID, 2)
        mesh.kafka[victim].hold(Way.BACK, {PRODUCE})
        wait(lambda: epochs(cluster)["p-0"] > before, "the epoch was given up", GIVES_UP_S)
        mesh.kafka[victim].hold(Way(0))
        wait(lambda: any(link.lost for link in links), "a producer's id was lost", SERVES_AGAIN_S)
        clients.flows(2 * SERVES_AGAIN_S)
        mesh.heal()
        complete(cluster)
    judge(cluster, clients)


@pytest.mark.promise(1)
def test_a_flapping_way_to_the_broker(mesh: Mesh) -> None:
    """Every node's connections break three times a second, for five seconds: what was on its way is settled by its id,
    and nobody is told of it."""
    with Clients(mesh.client, "kafka-flapping") as clients:
        for _ in range(15):
            for name in mesh.cluster.nodes:
                mesh.kafka[name].reset()
            passes(0.33)
        clients.flows(GIVES_UP_S)
        complete(mesh.cluster)
        clients.flows(SERVES_AGAIN_S)
    assert clients.told(Outcome.UNKNOWN) == []
    judge(mesh.cluster, clients)


@pytest.mark.promise(5)
@pytest.mark.parametrize("how", ["lost", "late"])
def test_the_end_of_a_snapshots_transaction_is(make: Make, how: str) -> None:
    """Snapshots go on and the log is trimmed only behind what was verified: an emptied node finds everything."""
    cluster = make(nodes="AB", partitions=2, async_=0, module=MODULE, every=60, keep=20)
    with closing(Mesh(cluster)) as mesh:
        mesh.start()
        with Clients(mesh.client, f"snapshot-{how}") as clients:
            for link in mesh.kafka.values():
                link.lose(END_TXN, 3) if how == "lost" else link.hold(Way.BACK, {END_TXN})
            wait(lambda: any(k.lost or k.held for k in mesh.kafka.values()), "a snapshot was hit", 30)
            passes(3.0)
            mesh.heal()
            wait(lambda: all(log_start(cluster, i) > 50 for i in range(2)), "the logs are trimmed", 60)
            clients.flows(SERVES_AGAIN_S)
        assert clients.told(Outcome.UNKNOWN) == []
        clients.read_all(cluster.client())
        explained(clients.pairs())
        wait(lambda: copies_equal(cluster), "all copies hold the same", 30)


# --- its disk ---


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of its own."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a tmpfs")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(disk)], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.promise(1)
def test_its_disk_is_full(small_disk: Path, tmp_path: Path) -> None:
    """The broker ends by itself (fact 9) and callers wait; with room again, everything acknowledged is there."""
    filler = small_disk / "filler"
    site = EmbeddedSite(small_disk / "site")
    with site, closing(Cluster(tmp_path, site, partitions=3, module=MODULE)) as cluster:
        cluster.start()
        cluster.whole()
        with Clients(cluster.client(), "disk-full") as clients:
            broker = Path(f"/proc/{site.info.pids['kafka']}")
            fill(filler)
            wait(lambda: not broker.exists(), "the broker has ended", 30)
            filler.unlink()
            wait(lambda: "kafka" not in site.info.pids, "the site says so", SERVES_AGAIN_S)
            for server in SERVERS:
                if server not in site.info.pids:
                    site.start_server(server)
            clients.flows(SERVER_BACK_S)
            complete(cluster)
            clients.flows(SERVES_AGAIN_S)
        judge(cluster, clients)


def fill(path: Path) -> None:
    """Until not one page is left."""
    with path.open("wb", buffering=0) as out:
        for size in (1 << 20, 4096):
            try:
                while True:
                    out.write(bytes(size))
            except OSError:
                continue
