"""Transactions over several partitions through every kind of fault: each happens everywhere or nowhere, as its caller
was told, and one order of them all explains what was read (D4, D5)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from halog.embedded import EmbeddedSite
from tests.faults.clients import ClientProcess
from tests.faults.history import Outcome
from tests.faults.links import Link
from tests.faults.mesh import CLIENT, Mesh
from tests.faults.scene import SERVER_BACK_S, SERVES_AGAIN_S, active, complete, epochs
from tests.faults.spread import Spread, judge
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.processes import passes, wait

pytestmark = [pytest.mark.timeout(180), pytest.mark.feature("D4")]

FIRST, OTHER = "p-0", "p-2"
"""The first partition of whatever it takes part in, and never the first of any."""


def apart(cluster: Cluster) -> None:
    """Two nodes are active for these."""
    if active(cluster, FIRST) == active(cluster, OTHER):
        cluster.lead(OTHER, next(n for n in cluster.table(OTHER).node_list if n != active(cluster, FIRST)))


@pytest.mark.promise(5)
@pytest.mark.quick_fault
def test_the_active_node_of_a_participant_is_killed(cluster: Cluster) -> None:
    """What it had voted for is known to the next one; callers wait, and none is told that it is unknown."""
    apart(cluster)
    victim = active(cluster, OTHER)
    with Spread(cluster.client(), "spread-other") as clients:
        cluster.kill(victim)
        clients.flows(SERVES_AGAIN_S)
        cluster.start([victim])
        complete(cluster)
        clients.flows(SERVES_AGAIN_S)
    assert clients.told(Outcome.UNKNOWN) == []
    judge(cluster, clients)


@pytest.mark.promise(5)
def test_the_active_node_of_the_first_partition_is_killed(cluster: Cluster) -> None:
    """Which decides: the next one decides what is undecided, and knows what is not."""
    apart(cluster)
    with Spread(cluster.client(), "spread-first") as clients:
        for _ in range(3):
            victim = active(cluster, FIRST)
            cluster.kill(victim)
            clients.flows(SERVES_AGAIN_S)
            cluster.start([victim])
            complete(cluster)
    assert clients.told(Outcome.UNKNOWN) == []
    judge(cluster, clients)


@pytest.mark.promise(5)
@pytest.mark.feature("D5")
def test_the_initiator_is_killed(cluster: Cluster) -> None:
    """Whatever of its transactions was under way is decided without it, and blocks nobody."""
    killed: list[ClientProcess] = []
    with Spread(cluster.client(), "spread-initiator") as clients:
        while len(killed) < 6 and not under_way(killed):
            killed.append(ClientProcess(cluster, clients, seat=1 + len(killed)))
            killed[-1].process.kill()
            clients.flows(SERVES_AGAIN_S)
    assert under_way(killed), "nothing was in flight"
    judge(cluster, clients, *killed)


def under_way(killed: list[ClientProcess]) -> bool:
    return any(p.ended is None for k in killed for p in k.pairs())


@pytest.mark.promise(5)
@pytest.mark.feature("D5")
def test_the_initiator_and_a_participant_are_killed_at_once(cluster: Cluster) -> None:
    apart(cluster)
    victim = active(cluster, OTHER)
    with Spread(cluster.client(), "spread-both") as clients:
        other = ClientProcess(cluster, clients)
        other.process.kill()
        cluster.kill(victim)
        clients.flows(SERVES_AGAIN_S)
        cluster.start([victim])
        complete(cluster)
    judge(cluster, clients, other)


@pytest.mark.promise(3)
def test_the_active_node_of_a_participant_is_frozen_and_wakes(cluster: Cluster) -> None:
    """Beyond its session: its votes of then count for nothing now, its prepared ones do."""
    apart(cluster)
    victim = active(cluster, OTHER)
    with Spread(cluster.client(), "spread-zombie") as clients:
        cluster.freeze(victim)
        clients.flows(SERVES_AGAIN_S)
        wait(lambda: victim not in cluster.registered(), "its session has ended")
        cluster.wake(victim)
        complete(cluster)
        clients.flows(SERVES_AGAIN_S)
    judge(cluster, clients)


@pytest.mark.promise(5)
@pytest.mark.feature("D5")
def test_the_initiator_is_frozen_and_wakes(cluster: Cluster) -> None:
    """What it was at is aborted meanwhile, or committed; when it wakes it is told which."""
    with Spread(cluster.client(), "spread-sleeper") as clients:
        other = ClientProcess(cluster, clients)
        for _ in range(2):
            other.process.freeze()
            clients.flows(SERVES_AGAIN_S)
            passes(3.0)
            other.process.signal(18)
            other.flows(SERVES_AGAIN_S)
        other.process.kill()
    judge(cluster, clients, other)


@pytest.mark.promise(1)
def test_the_broker_is_killed_and_started_again(cluster: Cluster, site: EmbeddedSite) -> None:
    """Votes and decisions in flight are settled by their ids."""
    with Spread(cluster.client(), "spread-broker") as clients:
        site.kill("kafka")
        site.start_server("kafka")
        clients.flows(SERVER_BACK_S)
        complete(cluster)
    judge(cluster, clients)


@pytest.mark.promise(5)
@pytest.mark.parametrize("how", [Link.cut, Link.hold], ids=["refuses", "silent"])
def test_two_participants_cannot_reach_each_other(mesh: Mesh, how: Callable[[Link], None]) -> None:
    """For long, and both stay active: decisions go by the coordinator, whoever dies of those who wait for them."""
    apart(mesh.cluster)
    one, other = active(mesh.cluster, FIRST), active(mesh.cluster, OTHER)
    with Spread(mesh.client, f"spread-{how.__name__}") as clients:
        for link in mesh.between(one, other):
            how(link)
        passes(1.0)
        clients.flows(SERVES_AGAIN_S)
        passes(4.0)
        began = epochs(mesh.cluster)
        other_clients = ClientProcess(mesh.cluster, clients)
        other_clients.process.kill()
        clients.flows(SERVES_AGAIN_S)
        assert epochs(mesh.cluster) == began, "no role went to anybody"
        mesh.heal()
        complete(mesh.cluster)
        clients.flows(SERVES_AGAIN_S)
    judge(mesh.cluster, clients, other_clients)


@pytest.mark.promise(5)
@pytest.mark.feature("D5")
@pytest.mark.parametrize("partition", [FIRST, OTHER])
def test_the_initiator_cannot_reach_one_of_the_participants(mesh: Mesh, partition: str) -> None:
    """Its transactions wait, or are told truly; those of others go on where it holds nothing."""
    apart(mesh.cluster)
    link = mesh.channel[CLIENT, active(mesh.cluster, partition)]
    with (
        Spread(mesh.client, f"spread-far-{partition}") as clients,
        Spread(mesh.cluster.client(), f"spread-near-{partition}") as near,
    ):
        link.hold()
        passes(3.0)
        near.flows(SERVES_AGAIN_S)
        link.reset()
        mesh.heal()
        clients.flows(SERVES_AGAIN_S)
    judge(mesh.cluster, clients)
    judge(mesh.cluster, near)
