"""Cuts, silence, delay and flapping between any two of node, broker, ZooKeeper and client, by proxies."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.faults.clients import Clients
from tests.faults.conftest import MODULE
from tests.faults.history import Outcome
from tests.faults.judge import judge
from tests.faults.links import Way
from tests.faults.mesh import CLIENT, Mesh
from tests.faults.scene import GIVES_UP_S, SERVER_BACK_S, SERVES_AGAIN_S, active, complete, epochs, replaced, replica
from tests.integration.cluster.harness import Make
from tests.integration.cluster.processes import passes, wait

pytestmark = [pytest.mark.timeout(180), pytest.mark.feature("R4", "N4", "P10")]


@pytest.mark.promise(1)
@pytest.mark.quick_fault
def test_active_and_sync_replica_cannot_reach_each_other(mesh: Mesh) -> None:
    """Commits go on without the replica, or with the replica as active; healed, both are members again."""
    one, other = active(mesh.cluster), replica(mesh.cluster, "sync")
    with Clients(mesh.client, "cut") as clients:
        for link in mesh.between(one, other):
            link.cut()
        clients.flows(SERVES_AGAIN_S)
        mesh.heal()
        complete(mesh.cluster)
        clients.flows(SERVES_AGAIN_S)
    judge(mesh.cluster, clients)


@pytest.mark.promise(3)
def test_nodes_that_only_lose_each_other_change_no_role(mesh: Mesh) -> None:
    """Both reach log and ZooKeeper: an active node that answers through ZooKeeper stays, for as long as that lasts.
    Killed behind the cut, it is replaced."""
    one, other = active(mesh.cluster), replica(mesh.cluster, "sync")
    with Clients(mesh.client, "parted") as clients:
        before = epochs(mesh.cluster)
        for link in mesh.between(one, other):
            link.hold()
        passes(8.0)
        clients.flows(SERVES_AGAIN_S)
        assert epochs(mesh.cluster) == before, "no role went to anybody"
        mesh.cluster.kill(one)
        replaced(mesh.cluster, one)
        mesh.heal()
        mesh.cluster.whole()
        clients.flows(SERVES_AGAIN_S)
    judge(mesh.cluster, clients)


@pytest.mark.promise(3)
def test_nodes_whose_line_refuses_take_no_role_from_each_other_once_both_have_answered(mesh: Mesh) -> None:
    """A firewall that refuses looks like a process that has ended, so each may claim once. Then the role stays, until
    the active node is killed."""
    one, other = active(mesh.cluster), replica(mesh.cluster, "sync")
    with Clients(mesh.client, "refused") as clients:
        before = epochs(mesh.cluster)
        for link in mesh.between(one, other):
            link.cut()
        passes(1.5)
        settled = epochs(mesh.cluster)
        assert all(settled[p] - before[p] <= 4 for p in before), f"{before}, then {settled}"
        passes(6.0)
        clients.flows(SERVES_AGAIN_S)
        assert epochs(mesh.cluster) == settled, "no role went to anybody"
        one = active(mesh.cluster)
        mesh.cluster.kill(one)
        replaced(mesh.cluster, one)
        mesh.heal()
        mesh.cluster.whole()
        clients.flows(SERVES_AGAIN_S)
    judge(mesh.cluster, clients)


@pytest.mark.promise(3)
def test_with_a_quorum_nodes_that_only_lose_each_other_change_no_role_as_long_as_a_third_reaches_both(
    make: Make,
) -> None:
    """Each has a majority with the third one. Cut off from both, the active is replaced; killed behind the cut, too."""
    cluster = make(nodes="ABC", partitions=3, quorum=True, module=MODULE)
    with closing(Mesh(cluster)) as mesh:
        mesh.start()
        one, other = active(cluster), replica(cluster, "sync")
        with Clients(mesh.client, "parted-quorum") as clients:
            before = epochs(cluster)
            for link in mesh.between(one, other):
                link.hold()
            passes(8.0)
            clients.flows(SERVES_AGAIN_S)
            assert epochs(cluster) == before, "no role went to anybody"
            for link in mesh.around(one)[:-2]:  # but its servers'
                link.hold()
            replaced(cluster, one)
            mesh.whole()
            clients.flows(SERVES_AGAIN_S)
            one, other = active(cluster), replica(cluster, "sync")
            for link in mesh.between(one, other):
                link.hold()
            passes(4.0)
            cluster.kill(one)
            replaced(cluster, one)
            mesh.whole()
            clients.flows(SERVES_AGAIN_S)
        judge(cluster, clients)


@pytest.mark.promise(1)
@pytest.mark.parametrize("whose", ["active's", "replica's"])
def test_one_way_silence_between_active_and_sync_replica(mesh: Mesh, whose: str) -> None:
    """One hears the other and is not heard: whoever is suspected, commits go on, and both sides agree again."""
    one, other = active(mesh.cluster), replica(mesh.cluster, "sync")
    if whose == "replica's":
        one, other = other, one
    with Clients(mesh.client, f"one-way-{whose[0]}") as clients:
        mesh.silence(one, other)
        clients.flows(2 * SERVES_AGAIN_S)
        passes(2.0)
        clients.flows(2 * SERVES_AGAIN_S)
        mesh.heal()
        complete(mesh.cluster)
        clients.flows(SERVES_AGAIN_S)
    judge(mesh.cluster, clients)


@pytest.mark.promise(3)
@pytest.mark.parametrize("how", ["cut", "hold"])
def test_the_active_is_cut_off_from_everything(mesh: Mesh, how: str) -> None:
    """Broken or silent connections, beyond its session: it is replaced; back, it finds that out from the log."""
    victim = active(mesh.cluster)
    with Clients(mesh.client, f"island-{how}") as clients:
        for link in mesh.around(victim):
            link.cut() if how == "cut" else link.hold()
        clients.flows(2 * SERVES_AGAIN_S)
        wait(lambda: victim not in mesh.cluster.registered(), "its session has ended")
        replaced(mesh.cluster, victim)
        mesh.heal()
        complete(mesh.cluster)
        clients.flows(SERVES_AGAIN_S)
    judge(mesh.cluster, clients)


@pytest.mark.promise(3)
@pytest.mark.quick_fault
def test_the_active_sees_only_the_log_and_its_clients(mesh: Mesh) -> None:
    """Cut off from ZooKeeper and all peers while it can still append and is still asked: the log lets one history
    through, and no client reads or writes on the wrong side of it."""
    victim = active(mesh.cluster)
    with Clients(mesh.client, "split") as clients:
        for pair, link in mesh.channel.items():
            if victim in pair and CLIENT not in pair:
                link.cut()
        mesh.zookeeper[victim].cut()
        replaced(mesh.cluster, victim, 2 * SERVES_AGAIN_S)
        clients.flows(2 * SERVES_AGAIN_S)
        passes(2.0)  # it goes on trying
        clients.flows(SERVES_AGAIN_S)
        mesh.heal()
        complete(mesh.cluster)
        clients.flows(SERVES_AGAIN_S)
    judge(mesh.cluster, clients)


@pytest.mark.promise(3)
@pytest.mark.parametrize("sync", [0, 1])
def test_neither_the_old_active_nor_its_client_hears_of_the_new_one(make: Make, sync: int) -> None:
    """Both lost ZooKeeper, the node its peer too, and they go on with each other, while others work on the same
    objects at the new active. Without sync replicas nothing but the fence at the log keeps it from acknowledging."""
    cluster = make(nodes="AB", partitions=2, sync=sync, async_=1 - sync, module=MODULE)
    with closing(Mesh(cluster)) as mesh:
        mesh.start()
        victim = active(cluster)
        with Clients(mesh.client, "deposed") as clients, Clients(cluster.client(), "deposed", seat=1) as others:
            mesh.zookeeper[CLIENT].hold()
            mesh.zookeeper[victim].cut()
            for link in mesh.between("A", "B"):
                link.cut()
            replaced(cluster, victim, 2 * SERVES_AGAIN_S)
            others.flows(SERVES_AGAIN_S)
            passes(2.0)
            others.flows(SERVES_AGAIN_S)
            mesh.heal()
            complete(cluster)
            clients.flows(SERVES_AGAIN_S)
        judge(cluster, clients, others)


@pytest.mark.promise(1)
@pytest.mark.parametrize("how", ["cut", "hold", "requests", "replies"])
def test_the_active_alone_cannot_reach_the_broker(mesh: Mesh, how: str) -> None:
    """Nor the other way, or one way only, whatever it asks or is told: it gives up its epochs when the append deadline
    has passed; a node that reaches the log goes on, and what lands late counts for nothing."""
    victim = active(mesh.cluster)
    ways = {"hold": Way.BOTH, "requests": Way.OUT, "replies": Way.BACK}
    with Clients(mesh.client, f"no-log-{how}") as clients:
        mesh.kafka[victim].cut() if how == "cut" else mesh.kafka[victim].hold(ways[how])
        clients.flows(GIVES_UP_S)
        mesh.heal()
        complete(mesh.cluster)
        clients.flows(SERVES_AGAIN_S)
    judge(mesh.cluster, clients)


@pytest.mark.promise(4)
def test_a_client_alone_cannot_reach_the_active(mesh: Mesh) -> None:
    """Nobody is deposed for it; its calls wait, and nothing happens twice when the way is open again."""
    victim, before = active(mesh.cluster), epochs(mesh.cluster)
    with Clients(mesh.client, "far") as clients, Clients(mesh.cluster.client(), "near") as near:
        mesh.channel[CLIENT, victim].hold()
        passes(4.0)
        near.flows(SERVES_AGAIN_S)
        mesh.channel[CLIENT, victim].reset()
        mesh.heal()
        clients.flows(SERVES_AGAIN_S)
    assert epochs(mesh.cluster) == before
    assert clients.told(Outcome.UNKNOWN) == []
    judge(mesh.cluster, clients)
    judge(mesh.cluster, near, copies=False)


@pytest.mark.promise(1)
def test_a_client_loses_replies(mesh: Mesh) -> None:
    """Its commits arrive and the answers do not: asked again by their ids, each has happened once."""
    link = mesh.channel[CLIENT, active(mesh.cluster)]
    with Clients(mesh.client, "deaf") as clients:
        for _ in range(5):
            link.lose(-1, 3)
            wait(lambda: link.lost >= 3, "three replies were lost", SERVES_AGAIN_S)
            link.lost = 0
            clients.flows(SERVES_AGAIN_S)
    assert clients.told(Outcome.UNKNOWN) == []
    judge(mesh.cluster, clients)


@pytest.mark.promise(2)
def test_a_flapping_channel(mesh: Mesh) -> None:
    """Connections between two nodes break three times a second, for five seconds."""
    one, other = active(mesh.cluster), replica(mesh.cluster, "sync")
    with Clients(mesh.client, "flapping") as clients:
        for _ in range(15):
            for link in mesh.between(one, other):
                link.reset()
            passes(0.33)
        clients.flows(SERVES_AGAIN_S)
        complete(mesh.cluster)
    judge(mesh.cluster, clients)


@pytest.mark.promise(2)
def test_the_active_is_cut_off_again_and_again(mesh: Mesh) -> None:
    """A second of island, a second of network, five times: roles may move each time, the history is one."""
    victim = active(mesh.cluster)
    with Clients(mesh.client, "flickering") as clients:
        for _ in range(5):
            for link in mesh.around(victim):
                link.cut()
            passes(1.0)
            mesh.heal()
            passes(1.0)
        clients.flows(2 * SERVES_AGAIN_S)
        complete(mesh.cluster)
    judge(mesh.cluster, clients)


@pytest.mark.promise(4)
def test_slow_links_everywhere(mesh: Mesh) -> None:
    """Every frame takes 25 ms, each way, in all connections: slower, nothing else."""
    before = epochs(mesh.cluster)
    with Clients(mesh.client, "slow", threads=6) as clients:
        for link in mesh.links():
            link.slow(0.025)
        passes(6.0)
        clients.flows(2 * SERVES_AGAIN_S)
        mesh.heal()
        clients.flows(SERVES_AGAIN_S)
    assert epochs(mesh.cluster) == before, "nobody is deposed for a slow network"
    judge(mesh.cluster, clients)


@pytest.mark.promise(1)
def test_a_replica_is_cut_off_from_everything(mesh: Mesh) -> None:
    """It leaves the node list; healed, it reads what it missed."""
    victim = replica(mesh.cluster, "sync")
    with Clients(mesh.client, "lone-replica") as clients:
        for link in mesh.around(victim):
            link.hold()
        clients.flows(2 * SERVES_AGAIN_S)
        wait(lambda: victim not in mesh.cluster.table("p-0").node_list, "it left the node list")
        mesh.heal()
        complete(mesh.cluster, SERVER_BACK_S)
        clients.flows(SERVES_AGAIN_S)
    judge(mesh.cluster, clients)
