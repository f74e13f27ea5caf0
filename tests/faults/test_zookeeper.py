"""ZooKeeper paused, killed, cut off, silent one way, restored from an old copy; sessions that end under live TCP."""

from __future__ import annotations

import shutil
import socket
import struct
from contextlib import closing
from pathlib import Path

import pytest
from kazoo.exceptions import KazooException

from halog.embedded import EmbeddedSite
from tests.faults.clients import Clients
from tests.faults.conftest import MODULE
from tests.faults.history import Outcome
from tests.faults.judge import judge
from tests.faults.links import Way
from tests.faults.mesh import Mesh
from tests.faults.scene import SERVER_BACK_S, SERVES_AGAIN_S, active, complete, epochs, replaced
from tests.faults.verdict import explained
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.processes import passes, wait

pytestmark = [pytest.mark.timeout(240), pytest.mark.feature("P10", "R5", "O3")]

CREATE, MULTI, CLOSE = 1, 14, -11
"""ZooKeeper's numbers of requests: what makes a znode, what a compare-and-set of a table is, a session's end."""
SUPER_SECRET = 0xB3415C00
"""What ZooKeeper mixes a session's number with to make its password; the same in every server ever built."""


@pytest.mark.promise(3)
def test_paused_for_seven_seconds(cluster: Cluster, site: EmbeddedSite) -> None:
    """All sessions have ended when it answers again: partitions served on, and nobody is deposed for it."""
    with Clients(cluster.client(), "zk-paused") as clients:
        before = epochs(cluster)
        site.pause("zookeeper")
        passes(7.0)
        clients.flows(SERVES_AGAIN_S)
        site.resume("zookeeper")
        clients.flows(SERVES_AGAIN_S)
        wait(lambda: sorted(cluster.registered()) == ["A", "B", "C"], "all are registered again", SERVER_BACK_S)
        assert epochs(cluster) == before
        complete(cluster)
    assert clients.told(Outcome.UNKNOWN) == []
    judge(cluster, clients)


@pytest.mark.promise(3)
@pytest.mark.quick_fault
def test_killed_and_started_again(cluster: Cluster, site: EmbeddedSite) -> None:
    """Partitions serve on without it; a node killed right after it is back is replaced as ever."""
    with Clients(cluster.client(), "zk-killed") as clients:
        site.kill("zookeeper")
        clients.flows(SERVES_AGAIN_S)
        site.start_server("zookeeper")
        victim = active(cluster)
        cluster.kill(victim)
        clients.flows(SERVER_BACK_S)
        cluster.start([victim])
        complete(cluster)
    judge(cluster, clients)


@pytest.mark.promise(1)
def test_an_active_dies_while_zookeeper_is_away(cluster: Cluster, site: EmbeddedSite) -> None:
    """Nobody can take over then; when ZooKeeper is back somebody does, and what was acknowledged is there."""
    with Clients(cluster.client(), "zk-away") as clients:
        site.pause("zookeeper")
        victim = cluster.client().runtime.router.active("p-0")
        assert victim is not None
        cluster.kill(victim)
        passes(3.0)
        site.resume("zookeeper")
        clients.flows(SERVER_BACK_S)
        cluster.start([victim])
        complete(cluster)
    judge(cluster, clients)


def end_session(site: EmbeddedSite, cluster: Cluster, node: str) -> None:
    """ZooKeeper ends a node's session that somebody else took over and closed; its TCP connection lives until then. One
    that has just ended by itself cannot be stolen: then the node's next one is."""
    wait(lambda: is_stolen(site, cluster, node), f"a session of {node} is stolen", SERVES_AGAIN_S)


def is_stolen(site: EmbeddedSite, cluster: Cluster, node: str) -> bool:
    """Steal the session that there is. Both are asked for at once: a thief that waits for its answer may lose the
    session to its owner, which is back."""
    try:
        session: int = cluster.zk.get(f"/halog/{cluster.name}/nodes/{node}")[1].ephemeralOwner
    except KazooException:
        return False
    host, port = site.info.zookeeper.rsplit(":", 1)
    taking = struct.pack(">iqiqi16s?", 0, 0, 10_000, session, 16, password(session), False)
    closing_it = struct.pack(">ii", 1, CLOSE)
    with socket.create_connection((host, int(port)), timeout=60.0) as thief:
        thief.sendall(framed(taking) + framed(closing_it))
        answer = b"".join(iter(lambda: thief.recv(4096), b""))
    return bool(len(answer) >= 20 and struct.unpack_from(">iiiq", answer)[3] == session)


def framed(request: bytes) -> bytes:
    return struct.pack(">i", len(request)) + request


def password(session: int) -> bytes:
    """As java.util.Random(session ^ SUPER_SECRET).nextBytes(16) gives it."""
    state = (session ^ SUPER_SECRET ^ 0x5DEECE66D) & (1 << 48) - 1
    said = b""
    for _ in range(4):
        state = (state * 0x5DEECE66D + 0xB) & (1 << 48) - 1
        said += (state >> 16 & 0xFFFFFFFF).to_bytes(4, "little")
    return said


@pytest.mark.promise(3)
@pytest.mark.quick_fault
def test_a_session_expires_under_live_tcp(cluster: Cluster, site: EmbeddedSite) -> None:
    """The active's, three times: the same run registers again, and whoever leads then, the history is one."""
    victim = active(cluster)
    with Clients(cluster.client(), "expired") as clients:
        run = cluster.registered()[victim]
        for _ in range(3):
            end_session(site, cluster, victim)
            clients.flows(SERVES_AGAIN_S)
            wait(lambda: cluster.registered().get(victim) == run, "it is registered again", SERVES_AGAIN_S)
        complete(cluster)
    judge(cluster, clients)


@pytest.mark.promise(3)
@pytest.mark.parametrize("way", [Way.OUT, Way.BACK], ids=["its requests", "the replies"])
def test_one_way_silence_between_the_active_and_zookeeper(mesh: Mesh, way: Way) -> None:
    """Its session ends although it lives, serves and half of the way works; healed, it is a replica."""
    victim = active(mesh.cluster)
    with Clients(mesh.client, f"zk-{way.value}") as clients:
        mesh.zookeeper[victim].hold(way)
        wait(lambda: victim not in mesh.cluster.registered(), "its session has ended")
        replaced(mesh.cluster, victim, 2 * SERVES_AGAIN_S)
        clients.flows(SERVES_AGAIN_S)
        mesh.heal()
        complete(mesh.cluster)
        clients.flows(SERVES_AGAIN_S)
    judge(mesh.cluster, clients)


@pytest.mark.promise(3)
def test_the_reply_to_a_takeover_is_lost(mesh: Mesh) -> None:
    """The compare-and-set went through and nobody knows: the winner finds out that it was it, or another one wins."""
    cluster, victim = mesh.cluster, active(mesh.cluster)
    others = [mesh.zookeeper[n] for n in cluster.nodes if n != victim]
    with Clients(mesh.client, "unsure") as clients:
        for link in others:
            link.lose(MULTI, 2)
        cluster.freeze(victim)
        clients.flows(2 * SERVES_AGAIN_S)
        assert sum(link.lost for link in others) > 0
        mesh.heal()
        cluster.wake(victim)
        complete(cluster)
    judge(cluster, clients)


@pytest.mark.promise(3)
def test_the_reply_to_a_registration_is_lost(mesh: Mesh, site: EmbeddedSite) -> None:
    """The znode was made and nobody knows, three times: the node finds that it is its own, as the run that it was."""
    cluster, victim = mesh.cluster, active(mesh.cluster)
    link, run = mesh.zookeeper[victim], cluster.registered()[victim]
    with Clients(mesh.client, "registered") as clients:
        for _ in range(3):
            link.lost = 0
            link.lose(CREATE)
            end_session(site, cluster, victim)
            wait(lambda: link.lost == 1, "the reply was lost", SERVES_AGAIN_S)
            wait(lambda: cluster.registered().get(victim) == run, "it is registered again", SERVES_AGAIN_S)
            clients.flows(SERVES_AGAIN_S)
        complete(cluster)
    judge(cluster, clients)


@pytest.mark.promise(3)
def test_a_flapping_way_to_zookeeper(mesh: Mesh) -> None:
    """Every node's connection breaks three times a second, for five seconds: sessions hold, roles stay or move."""
    with Clients(mesh.client, "zk-flapping") as clients:
        for _ in range(15):
            for link in mesh.zookeeper.values():
                link.reset()
            passes(0.33)
        clients.flows(SERVES_AGAIN_S)
        complete(mesh.cluster)
    judge(mesh.cluster, clients)


@pytest.mark.promise(3)
def test_data_restored_from_yesterday(own_site: EmbeddedSite, tmp_path: Path) -> None:
    """Its epochs are older than the log's then: the log wins (E4), epochs go on growing, nothing is lost.

    Nodes are started anew, as an operator must: ZooKeeper turns clients away that have seen newer data than it has."""
    data = Path(own_site.info.data_dir, "zookeeper/data")
    with closing(Cluster(tmp_path, own_site, partitions=3, module=MODULE)) as cluster:
        cluster.start()
        cluster.whole()
        yesterday = epochs(cluster)
        own_site.shut("zookeeper")
        shutil.copytree(data, tmp_path / "yesterday")
        own_site.start_server("zookeeper")
        with Clients(cluster.client(), "yesterday") as before:
            for name in "ABC":
                cluster.kill(name)
                before.flows(SERVER_BACK_S)
                cluster.start([name])
                complete(cluster)
        reached = epochs(cluster)
        assert all(epoch > yesterday[p] for p, epoch in reached.items())
        for name in "ABC":
            cluster.kill(name)
        own_site.shut("zookeeper")
        shutil.rmtree(data)
        shutil.copytree(tmp_path / "yesterday", data)
        own_site.start_server("zookeeper")
        cluster.forget()
        assert epochs(cluster) == yesterday
        cluster.whole()
        with Clients(cluster.client(), "today") as after:
            after.flows(SERVES_AGAIN_S)
        assert all(epoch > reached[p] for p, epoch in epochs(cluster).items())
        before.node = cluster.client()
        explained(judge(cluster, after) + before.pairs())
        judge(cluster, before)
