"""`read="lease"` through whole nodes: who may read without asking, who waits for whom, and what a witness says (R5)."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from halog import aio
from halog.core.ids import Member
from halog.errors import FrameError, RefusedError
from halog.runtime.membership.witness import Witness, is_secret
from halog.runtime.replica.driver import Copy
from halog.runtime.rpc import frames
from halog.testing.cluster import Cluster, wait_until
from halog.transactions.node import Node
from tests.unit.counting import REGISTRY, Counter

pytestmark = pytest.mark.feature("R5")
TTL_MS = 1_500
LONG_MS = 15_000
"""Where it must not be waited for: a busy machine is no lease."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, partitions=1, lease_ttl_ms=TTL_MS, registry=REGISTRY) as cluster:
        with cluster.client().transaction() as tx:
            tx.create(Counter("c"))
        yield cluster


@pytest.fixture
def long() -> Iterator[Cluster]:
    """The same with leases that are longer than anything takes."""
    with Cluster(3, partitions=1, lease_ttl_ms=LONG_MS, registry=REGISTRY) as cluster:
        with cluster.client().transaction() as tx:
            tx.create(Counter("c"))
        yield cluster


def active(cluster: Cluster) -> str:
    return cluster.active_for(Counter, "c")


def copy_of(cluster: Cluster, node: str) -> Copy:
    return cluster.node(node).runtime.copies["test-0"]


@pytest.fixture(params=["client", "active", "replica"])
def node(request: pytest.FixtureRequest, cluster: Cluster) -> Any:
    wait_until(lambda: copy_of(cluster, active(cluster)).leased, "the active has its lease")
    if request.param == "client":
        return cluster.client()
    return cluster.node(next(n for n in cluster.names if (n == active(cluster)) is (request.param == "active")))


def value(node: Node, mode: Any = "lease") -> int:
    with node.transaction(read=mode) as tx:
        return tx.get(Counter, "c").value


def test_a_leased_read_asks_nobody_for_the_log(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node.backend, "barrier", None)
    for n in range(3):
        assert value(node) == n
        with node.transaction() as tx:
            tx.get(Counter, "c").value += 1


def test_without_a_valid_lease_it_is_a_barrier(cluster: Cluster, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Copy, "leased", False)
    asked: list[str] = []
    real = node.backend.barrier
    monkeypatch.setattr(node.backend, "barrier", lambda p: (asked.append(p), real(p))[1])
    assert value(node) == 0
    assert asked == ["test-0"]


def test_extents_calls_and_writes_go_on_behind_a_barrier(node: Node) -> None:
    with node.transaction(read="lease") as tx:
        assert [c.value for c in tx.extent(Counter)] == [0]
        tx.get(Counter, "c").add(4)
    assert value(node) == 4


def test_tasks_have_it_too(node: Node) -> None:
    async def body() -> int:
        async with aio.Node(node).transaction(read="lease") as tx:
            return (await tx.get(Counter, "c")).value

    assert asyncio.run(body()) == 0


def test_where_the_policy_has_none_it_is_refused_by_name() -> None:
    with Cluster(2, partitions=1, registry=REGISTRY) as cluster:
        for node in (cluster.client(), cluster.node("A")):
            with (
                pytest.raises(RefusedError, match=r"the policy of test-0 has no leases.*lease_ttl_ms"),
                node.transaction(read="lease") as tx,
            ):
                tx.find(Counter, "c")


def test_the_lease_is_renewed_while_the_coordinator_answers_and_no_longer(cluster: Cluster) -> None:
    name = active(cluster)
    copy = copy_of(cluster, name)
    wait_until(lambda: copy.leased, "leased")
    time.sleep(2 * TTL_MS / 1000)
    wait_until(lambda: copy.leased, "leased still, or again where the machine stood still")
    cluster.running[name].coordinator.suspend()
    wait_until(lambda: not copy.leased, "its lease ends")
    assert value(cluster.client(), "barrier") == 0
    cluster.running[name].coordinator.resume()
    wait_until(lambda: copy.leased, "leased again")


def test_what_was_taken_in_an_earlier_epoch_is_not_given_under_a_later_lease(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread was held up between the value and the clock for as long as another epoch lasted."""
    copy = copy_of(cluster, active(cluster))
    wait_until(lambda: copy.leased, "leased")
    with copy.lock:
        earlier, later = copy.core.leading, SimpleNamespace(lease=SimpleNamespace(ends=1 << 60))
        assert copy.find_leased([b"key"]) == [None]
        monkeypatch.setattr(copy.objects, "find", lambda key: setattr(copy.core, "leading", later))
        try:
            assert copy.find_leased([b"key"]) is None
        finally:
            copy.core.leading = earlier


@pytest.mark.feature("R5", "P10")
def test_a_successor_serves_nothing_before_the_lease_has_ended(cluster: Cluster) -> None:
    """Killed, as far as anybody knows; nobody's word proves it."""
    client, name = cluster.client(), active(cluster)
    wait_until(lambda: copy_of(cluster, name).leased, "leased")
    at = time.monotonic()
    cluster.kill(name)
    heir = wait_until(lambda: _claimed(cluster, name), "somebody claimed")
    assert value(client, "active") == 0
    assert time.monotonic() - at > 0.7 * TTL_MS / 1000
    assert copy_of(cluster, heir).serving


def _claimed(cluster: Cluster, before: str) -> str:
    now = cluster.tables()["test-0"].active
    return "" if now is None or now.node == before else now.node


@pytest.mark.feature("R5", "P10")
def test_the_same_directory_opened_again_is_proof(long: Cluster) -> None:
    client, name = long.client(), active(long)
    time.sleep(1.1 * LONG_MS / 1000)  # its own epoch is old enough
    long.kill(name)
    wait_until(lambda: _claimed(long, name), "somebody claimed")
    at = time.monotonic()
    long.restart(name)
    assert value(client, "active") == 0
    assert time.monotonic() - at < 0.7 * LONG_MS / 1000


@pytest.mark.feature("R5", "Q5")
def test_a_hand_over_needs_no_wait(long: Cluster) -> None:
    client = long.client()
    to = next(r.node for r in long.tables()["test-0"].replicas)
    at = time.monotonic()
    client.runtime.operators.hand_over("test-0", to)  # type: ignore[attr-defined]
    wait_until(lambda: copy_of(long, to).serving, "it serves")
    assert time.monotonic() - at < 0.7 * LONG_MS / 1000
    assert value(client) == 0


# --- the witness ---


def test_only_who_knows_the_secret_is_believed(cluster: Cluster) -> None:
    assert is_secret(b"s", hashlib.sha256(b"s").hexdigest())
    assert not is_secret(b"s", "")
    assert not is_secret(b"", hashlib.sha256(b"s").hexdigest())
    there = cluster.node("A").runtime
    member = Member("B", cluster.node("B").runtime.incarnation)
    with pytest.raises(FrameError, match="does not know its secret"):
        there.service._control(member, frames.DeathNotice(b"guess"))
    assert member in there.members.alive
    there.service._control(member._replace(incarnation=1), frames.DeathNotice(b"guess"))
    assert member in there.members.alive, "of a run nobody knows here nothing is said"


PROGRAM = """
import sys, time
from halog.runtime.rpc import frames
from halog.runtime.membership.witness import Witness
w = Witness()
w.start()
w.others(frames.Hello("c", "A", 7), ["127.0.0.1:1", sys.argv[1]])
print(w.registered, flush=True)
time.sleep(60)
"""


def test_a_killed_process_is_told_by_its_witness() -> None:
    """Real processes: kill -9; the other address refuses, which keeps nobody."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        argv = [sys.executable, "-c", PROGRAM, address]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            registered = process.stdout.readline().strip()
            os.kill(process.pid, signal.SIGKILL)
            server.settimeout(10)
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as said:
                found = [frames.decode_incoming(said.read(int.from_bytes(said.read(4), "big"))) for _ in range(2)]
    hello, died = found
    assert hello == frames.Hello("c", "A", 7)
    assert isinstance(died, frames.DeathNotice)
    assert is_secret(died.secret, registered)


def test_a_witness_that_is_stopped_holds_up_nobody() -> None:
    witness = Witness()
    witness.start()
    assert witness._process is not None
    os.kill(witness._process.pid, signal.SIGSTOP)
    try:
        for port in range(2_000):  # far more than its pipe takes
            witness.others(frames.Hello("c", "A", 7), [f"127.0.0.1:{port}"])
        assert witness._process.poll() is None
    finally:
        witness._process.kill()
        witness._process.wait()


def test_a_stopped_process_is_not_told_to_be_dead() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        argv = [sys.executable, "-c", PROGRAM, f"127.0.0.1:{server.getsockname()[1]}"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            os.kill(process.pid, signal.SIGSTOP)
            server.settimeout(0.7)
            with pytest.raises(TimeoutError):
                server.accept()
            os.kill(process.pid, signal.SIGKILL)
            server.settimeout(10)
            server.accept()[0].close()
