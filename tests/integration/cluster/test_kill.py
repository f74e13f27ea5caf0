"""kill -9 under load: nothing acknowledged is lost or doubled, and nobody but the log is asked."""

from __future__ import annotations

import time

import pytest

from halog.core.table.table import PartitionTable
from halog.transactions.node import Node
from tests.integration.cluster.checker import check
from tests.integration.cluster.client import FLIGHTS
from tests.integration.cluster.fleet import Aircraft, Flight
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.load import Load, tails
from tests.integration.cluster.pauses import Control
from tests.integration.cluster.processes import Process, passes, wait
from tests.integration.cluster.waits import DIED, Wait

pytestmark = pytest.mark.timeout(600)


def whole_again(cluster: Cluster) -> None:
    wait(lambda: all(cluster.complete(t) for t in cluster.tables()), "every node list is complete again")


@pytest.mark.containers
@pytest.mark.feature("P10", "R1", "P1")
def test_a_killed_active_is_replaced_and_comes_back_into_its_place(cluster: Cluster) -> None:
    """The next node is active, the dead one leaves the node list; restarted it reads only what it missed, and stands
    again where the configuration places it."""
    victim = cluster.table("p-0").node_list[0]
    with Load(cluster.client(), "kill") as load:
        had = {p: c["next_offset"] for p, c in cluster.copies(victim).items()}
        assert len(had) == 6
        assert min(had.values()) > 2, "there is something it need not read again"
        load.flows()
        passes(0.5)  # stores are written behind, by tens of ms
        cluster.kill(victim)
        load.flows()
        # No commit waits for an async replica to be gone.
        wait(lambda: not any(victim in t.node_list for t in cluster.tables()), f"{victim} is in no node list")
        for table in cluster.tables():
            assert table.active is not None
            assert table.active.node in table.configured
        cluster.start([victim])
        whole_again(cluster)
        load.flows()
    assert load.errors == []
    again = cluster.copies(victim)
    assert again.keys() == had.keys()
    for p, copy in again.items():
        assert had[p] <= copy["began_at"] < copy["next_offset"], "it went on from its store"
    wait(lambda: all(map(as_configured, cluster.tables())), "replicas are as the configuration has them")
    check(cluster, load)


def as_configured(table: PartitionTable) -> bool:
    """Are the replicas in the configured order, the first one sync? One that comes back is behind the others first."""
    others = [n for n in table.configured if table.active is None or n != table.active.node]
    return [(r.node, r.kind) for r in table.replicas] == list(zip(others, ["sync", "async"], strict=True))


@pytest.mark.feature("X1", "P10", "R1")
def test_a_killed_active_is_replaced_and_no_timeout_is_waited_for(cluster: Cluster, control: Control) -> None:
    """From the kill to the end of the first write behind it, five times, beside a control: how long that takes on an
    idle machine is for `make bench` (`failover`). Of all that was acknowledged meanwhile nothing is lost."""
    waits: list[Wait] = []
    created: list[str] = []
    node = cluster.client()
    with Load(node, "tenth") as load:
        for n in range(5):
            victim = cluster.table("p-0").node_list[0]
            (tail,) = tails(node, f"tenth-{n}-")["p-0"]
            load.flows()
            at = time.monotonic()
            cluster.kill(victim)
            with node.transaction():
                node.create(Aircraft(tail=tail))
            waits.append(Wait(at, time.monotonic(), tail))
            created.append(tail)
            cluster.start([victim])
            whole_again(cluster)
        load.flows()
    assert load.errors == []
    control.check([*waits, *load.waits], DIED)
    with node.transaction():
        assert [node.get(Aircraft, tail).tail for tail in created] == created
    check(cluster, load)


@pytest.mark.feature("R4", "R1", "P2")
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_commits_go_on_without_a_killed_replica(cluster: Cluster, kind: str) -> None:
    """It leaves the node list with a warning, nothing is lost, and it is waited for again once it is back."""
    cluster.in_place()
    table = cluster.table("p-0")
    victim = next(r.node for r in table.replicas if r.kind == kind)
    leader = table.node_list[0]
    said = f"HALOG-1006 partition p-0: {victim} leaves the node list"
    told = cluster.log_of(leader).count(said)
    with Load(cluster.client(), f"replica-{kind}") as load:
        cluster.kill(victim)
        load.flows()
        wait(lambda: victim not in cluster.table("p-0").node_list, f"{victim} is not in the node list of p-0")
        # It becomes sync once it has what was given out before.
        wait(lambda: [r.kind for r in cluster.table("p-0").replicas] == ["sync"], "commits wait for the other replica")
        now = cluster.table("p-0")
        assert (now.active, now.epoch) == (table.active, table.epoch), "nobody else became active for it"
        wait(lambda: cluster.log_of(leader).count(said) > told, f"{leader} says so")
        assert cluster.log_of(leader).count(said) == told + 1
        cluster.start(victim)
        whole_again(cluster)
        load.flows()
    assert load.errors == []
    check(cluster, load)


@pytest.mark.feature("R1", "D1")
def test_a_client_killed_in_the_middle_leaves_whole_transactions_or_nothing(cluster: Cluster) -> None:
    """What it said was done is there; what it was about to do is there with all its objects, or with none."""
    argv = ["tests.integration.cluster.client", str(cluster.toml), "dying", "3"]
    client = Process("killed-client", cluster.directory, argv)
    cluster.helpers.append(client)
    wait(lambda: sum(line.startswith("done") for line in client.lines()) >= 60, "60 transactions", 90)
    client.kill()
    done = {line.split()[1] for line in client.lines() if line.startswith("done")}
    tried = {line.split()[1] for line in client.lines() if line.startswith("try")}
    aircraft, flights = _settled(cluster.client())
    assert done <= aircraft.keys() <= tried
    assert {tail: flights.count(tail) for tail in aircraft} == aircraft, f"{FLIGHTS} flights each"
    assert set(flights) == aircraft.keys()
    check(cluster)


def _settled(node: Node) -> tuple[dict[str, int], list[str]]:
    """What the client left: its last commit may still be in flight, so it is read until nothing changes any more."""
    seen: list[tuple[dict[str, int], list[str]]] = []

    def same_twice() -> bool:
        with node.transaction():
            aircraft = {a.tail: a.landings for a in node.extent(Aircraft) if a.tail.startswith("dying")}
        with node.transaction():
            flights = [f.tail for f in node.extent(Flight) if f.of == "dying"]
        seen.append((aircraft, flights))
        return len(seen) > 1 and seen[-1] == seen[-2]

    wait(same_twice, "its last commit is settled")
    return seen[-1]


@pytest.mark.feature("P10", "R1")
def test_both_other_nodes_may_die_one_after_the_other(cluster: Cluster) -> None:
    """The last one serves everything alone, and the others catch up from the log."""
    with Load(cluster.client(), "two") as load:
        cluster.kill("B")
        load.flows()
        cluster.kill("C")
        load.flows()
        wait(lambda: [t.node_list for t in cluster.tables()] == [("A",)] * 6, "A is alone in every node list")
        cluster.start("BC")
        whole_again(cluster)
        load.flows()
    assert load.errors == []
    check(cluster, load)


@pytest.mark.feature("R1", "P1")
def test_all_nodes_killed_at_once_go_on_where_the_log_ends(cluster: Cluster) -> None:
    """Callers wait and are served by the restarted nodes; each goes on from its store, none begins anew."""
    with Load(cluster.client(), "all") as load:
        for name in "ABC":
            cluster.processes[name].signal(9)
        for name in "ABC":
            cluster.kill(name)
        cluster.start()
        load.flows(60)
        whole_again(cluster)
    assert load.errors == []
    assert all(c["began_at"] > 2 for n in "ABC" for c in cluster.copies(n).values())
    check(cluster, load)
