"""Leases with real processes (R5): a killed node's witness is believed, a stopped one is waited for, and what is read
under a lease meanwhile is linearizable."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.faults import linearizability
from tests.faults.history import Outcome
from tests.integration.cluster.checker import check
from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.harness import SILENT_MS, Cluster, Make
from tests.integration.cluster.load import Load, tails
from tests.integration.cluster.processes import passes, wait
from tests.integration.cluster.test_kill import whole_again
from tests.integration.cluster.test_reads import THINGS, readers

pytestmark = [pytest.mark.timeout(600), pytest.mark.feature("R5", "P10")]

TTL_MS = 13_000
"""Longer than any takeover without one takes, on a busy machine too."""
WAITED_S = 0.8 * TTL_MS / 1000
"""Who takes over sooner has not waited for a lease: it was extended a moment before the fault."""


def witness_of(pid: int) -> int:
    """The process beside the node: its only child that runs the witness's program."""
    for each in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in each.read_text().split():
            if b"witness_process" in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
    raise AssertionError(f"{pid} has no witness")


def begun(make: Make) -> Cluster:
    """Everybody is up."""
    cluster = make(partitions=2, lease_ms=TTL_MS)
    cluster.start()
    cluster.whole()
    return cluster


def leased(make: Make) -> Cluster:
    """And for long enough that a death is proof."""
    cluster = begun(make)
    passes(1.1 * TTL_MS / 1000)
    return cluster


def takeover_s(cluster: Cluster, tail: str) -> float:
    """Until a commit goes through again."""
    began = time.monotonic()
    with cluster.client().transaction():
        cluster.client().get(Aircraft, tail).land(1)
    return time.monotonic() - began


def landed(cluster: Cluster) -> tuple[str, str]:
    """An aircraft, and who is active for it."""
    node = cluster.client()
    tail = tails(node, "leased-")["p-0"][0]
    with node.transaction():
        node.create(Aircraft(tail=tail))
    active = cluster.table("p-0").active
    assert active is not None
    with node.transaction(read="lease"):
        assert node.get(Aircraft, tail).landings == 0
    return tail, active.node


@pytest.mark.long
def test_the_word_of_a_killed_nodes_witness_is_proof(make: Make) -> None:
    cluster = leased(make)
    tail, victim = landed(cluster)
    cluster.kill(victim)
    took = takeover_s(cluster, tail)
    print(f"takeover with proof: {took * 1000:.0f} ms")
    assert took < WAITED_S
    check(cluster, copies=False)


@pytest.mark.long
def test_without_a_witness_a_killed_nodes_lease_is_waited_for(make: Make) -> None:
    cluster = leased(make)
    tail, victim = landed(cluster)
    os.kill(witness_of(cluster.processes[victim].pid), signal.SIGKILL)
    cluster.kill(victim)
    took = takeover_s(cluster, tail)
    print(f"takeover without proof: {took * 1000:.0f} ms")
    assert took > WAITED_S


@pytest.mark.long
def test_a_stopped_node_is_waited_for_though_its_witness_runs(make: Make) -> None:
    """And its witness stopped too, which makes no difference: neither says that it died."""
    cluster = leased(make)
    tail, victim = landed(cluster)
    witness = witness_of(cluster.processes[victim].pid)
    os.kill(witness, signal.SIGSTOP)
    cluster.freeze(victim)
    took = takeover_s(cluster, tail)
    assert took > WAITED_S
    cluster.wake(victim)
    os.kill(witness, signal.SIGCONT)
    whole_again(cluster)
    with cluster.client().transaction(read="lease"):
        assert cluster.client().get(Aircraft, tail).landings == 1
    check(cluster)


@pytest.mark.feature("R5", "Q5")
def test_a_hand_over_waits_for_no_lease(make: Make) -> None:
    cluster = begun(make)
    tail, victim = landed(cluster)
    with Load(cluster.client(), "leaves", threads=1) as load:
        assert cluster.processes[victim].terminate() == 0
        load.flows()
    assert load.errors == []
    assert load.longest_s < WAITED_S
    with cluster.client().transaction(read="lease"):
        assert cluster.client().get(Aircraft, tail).landings == 0


@pytest.mark.long
def test_what_is_read_under_a_lease_is_linearizable_while_the_active_is_stopped_and_woken(make: Make) -> None:
    """Shorter leases than it takes to suspect a node, and longer ones; read inside the zombie and from outside."""
    for ttl_ms in (600, SILENT_MS + 1_000):
        cluster = make(partitions=2, module=THINGS, stay_ms=400, lease_ms=ttl_ms)
        with readers(cluster, "lease") as operations:
            for _ in range(2):
                wait(lambda c=cluster: c.led_by("A") != [], "A is active")  # type: ignore[misc]
                cluster.freeze("A")
                passes(max(SILENT_MS, ttl_ms) / 1000 + 1.0)
                cluster.wake("A")
                passes(0.3)
        reads = [o for o in operations if o.kind == "read" and o.outcome is Outcome.OK]
        assert {o.process for o in reads} >= {"A", "outside"}
        assert linearizability.check(operations, linearizability.register) == []
        cluster.close()


def test_what_is_read_under_a_lease_is_linearizable_while_actives_are_killed(make: Make) -> None:
    cluster = make(partitions=2, module=THINGS, lease_ms=1_000)
    with readers(cluster, "lease") as operations:
        for name in "BC":
            cluster.kill(name)
            passes(1.5)
            cluster.start([name])
            whole_again(cluster)
    assert linearizability.check(operations, linearizability.register) == []
