"""kill -9 and SIGSTOP of nodes and clients, while clients work."""

from __future__ import annotations

import shutil
import threading
from contextlib import suppress

import pytest

from halog.errors import HalogError
from tests.faults.clients import ClientProcess, Clients
from tests.faults.history import Outcome
from tests.faults.judge import judge
from tests.faults.scene import SERVES_AGAIN_S, active, complete, epochs, replaced, replica
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.processes import passes, wait

pytestmark = [pytest.mark.timeout(180), pytest.mark.feature("P10", "R1")]


@pytest.mark.promise(1)
@pytest.mark.quick_fault
@pytest.mark.feature("X1")
@pytest.mark.parametrize("whom", ["active", "sync", "async"])
def test_kill_9(cluster: Cluster, whom: str) -> None:
    """Callers wait a moment; the dead node comes back into its place."""
    victim = active(cluster) if whom == "active" else replica(cluster, whom)
    with Clients(cluster.client(), f"kill-{whom}") as clients:
        cluster.kill(victim)
        clients.flows(SERVES_AGAIN_S)
        cluster.start([victim])
        complete(cluster)
        clients.flows(SERVES_AGAIN_S)
    assert clients.told(Outcome.UNKNOWN) == []
    judge(cluster, clients)


@pytest.mark.promise(2)
def test_the_new_active_is_killed_while_it_takes_over(cluster: Cluster) -> None:
    """As soon as ZooKeeper names it, before or after its epoch opened: the third node goes on alone (KIP-101)."""
    first, before = active(cluster), epochs(cluster)["p-0"]
    with Clients(cluster.client(), "twice") as clients:
        cluster.kill(first)
        wait(lambda: epochs(cluster)["p-0"] > before, "somebody took over", SERVES_AGAIN_S)
        second = active(cluster)
        cluster.kill(second)
        clients.flows(SERVES_AGAIN_S)
        assert len(cluster.running()) == 1
        cluster.start([first, second])
        complete(cluster)
        clients.flows(SERVES_AGAIN_S)
    judge(cluster, clients)


@pytest.mark.promise(2)
def test_rolling_kills_without_a_pause(cluster: Cluster) -> None:
    """Each node in turn, started again and killed as soon as it is up, the next one right behind it."""
    with Clients(cluster.client(), "rolling") as clients:
        for name in "ABCAB":
            cluster.kill(name)
            clients.flows(SERVES_AGAIN_S)
            cluster.start([name])
        complete(cluster)
    judge(cluster, clients)


@pytest.mark.promise(1)
def test_all_nodes_are_killed_at_once(cluster: Cluster) -> None:
    """Callers wait for the restarted nodes, which go on where the log ends."""
    with Clients(cluster.client(), "all") as clients:
        for name in "ABC":
            cluster.processes[name].signal(9)
        for name in "ABC":
            cluster.kill(name)
        cluster.start()
        clients.flows(3 * SERVES_AGAIN_S)
        complete(cluster)
    judge(cluster, clients)


@pytest.mark.promise(3)
@pytest.mark.quick_fault
@pytest.mark.feature("X2")
def test_a_zombie_active_wakes_after_it_was_replaced(cluster: Cluster) -> None:
    """SIGSTOP beyond its session, then SIGCONT: it acknowledges nothing, steps down by itself, is a replica again."""
    victim = active(cluster)
    with Clients(cluster.client(), "zombie") as clients:
        cluster.freeze(victim)
        clients.flows(SERVES_AGAIN_S)
        wait(lambda: victim not in cluster.registered(), "its session has ended")
        cluster.wake(victim)
        complete(cluster)
        clients.flows(SERVES_AGAIN_S)
    judge(cluster, clients)


@pytest.mark.promise(3)
def test_a_stall_shorter_than_the_timeout_deposes_nobody(cluster: Cluster) -> None:
    """As a long pause of the interpreter: every partition keeps its epoch, and callers see a delay only."""
    before, victim = epochs(cluster), active(cluster)
    with Clients(cluster.client(), "stall") as clients:
        for _ in range(3):
            cluster.freeze(victim)
            passes(0.6)
            cluster.wake(victim)
            clients.flows(SERVES_AGAIN_S)
    assert epochs(cluster) == before
    assert clients.told(Outcome.UNKNOWN) == []
    judge(cluster, clients)


@pytest.mark.promise(1)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_replica_is_stopped_and_goes_on(cluster: Cluster, kind: str) -> None:
    """It leaves the node list, and reads what it missed when it wakes."""
    victim = replica(cluster, kind)
    with Clients(cluster.client(), f"stopped-{kind}") as clients:
        cluster.freeze(victim)
        clients.flows(SERVES_AGAIN_S)
        wait(lambda: victim not in cluster.table("p-0").node_list, "it left the node list", SERVES_AGAIN_S)
        clients.flows(SERVES_AGAIN_S)
        cluster.wake(victim)
        complete(cluster)
        clients.flows(SERVES_AGAIN_S)
    judge(cluster, clients)


@pytest.mark.promise(5)
@pytest.mark.quick_fault
def test_the_initiator_is_killed(cluster: Cluster) -> None:
    """Each of its last transactions happened whole or not at all; others go on at the same objects. Now and then all of
    its threads are between two transactions: then another one is killed."""
    killed: list[ClientProcess] = []
    with Clients(cluster.client(), "initiator") as clients:
        while len(killed) < 6 and not any(p.ended is None for k in killed for p in k.pairs()):
            killed.append(ClientProcess(cluster, clients, seat=1 + len(killed)))
            killed[-1].process.kill()
            clients.flows(SERVES_AGAIN_S)
    assert any(p.ended is None for k in killed for p in k.pairs()), "nothing was in flight"
    judge(cluster, clients, *killed)


@pytest.mark.promise(4)
def test_the_initiator_is_stopped_and_goes_on(cluster: Cluster) -> None:
    """What it presents when it wakes is checked against what others did meanwhile."""
    with Clients(cluster.client(), "sleeper") as clients:
        other = ClientProcess(cluster, clients)
        for _ in range(2):
            other.process.freeze()
            clients.flows(SERVES_AGAIN_S)
            passes(1.5)
            other.process.signal(18)
            other.flows(SERVES_AGAIN_S)
        other.process.kill()
    judge(cluster, clients, other)


@pytest.mark.promise(5)
@pytest.mark.parametrize("whom", ["giver", "taker"])
def test_a_kill_during_a_hand_over(cluster: Cluster, whom: str) -> None:
    """At any step: the role ends up at exactly one living node, and nothing acknowledged is lost."""
    with Clients(cluster.client(), f"handing-{whom}") as clients:
        for turn in range(3):
            giver, taker = active(cluster), replica(cluster, "sync")
            operator = threading.Thread(target=hand_over, args=(cluster, taker))
            operator.start()
            passes(0.004 * turn)
            victim = giver if whom == "giver" else taker
            cluster.kill(victim)
            clients.flows(SERVES_AGAIN_S)
            operator.join(45)
            cluster.start([victim])
            complete(cluster)
    judge(cluster, clients)


def hand_over(cluster: Cluster, to: str) -> None:
    with suppress(HalogError):  # it may be called off, refused, or nobody may be left to answer
        cluster.client().runtime.operators.hand_over("p-0", to)


@pytest.mark.promise(5)
def test_a_node_is_killed_while_it_restores(cluster: Cluster) -> None:
    """Emptied, started and killed again at several moments of its restore; at last it holds what the others hold."""
    victim = replica(cluster, "async")
    with Clients(cluster.client(), "restoring") as clients:
        for after_s in (0.0, 0.1, 0.3):
            cluster.kill(victim)
            replaced(cluster, victim)
            shutil.rmtree(cluster.directory / victim, ignore_errors=True)
            gone = cluster.registered().get(victim)
            cluster.launch(victim)
            wait(lambda gone=gone: cluster.registered().get(victim) not in (None, gone), "it registered")  # type: ignore[misc]
            passes(after_s)
        cluster.kill(victim)
        cluster.start([victim])
        complete(cluster)
        clients.flows(SERVES_AGAIN_S)
    judge(cluster, clients)
