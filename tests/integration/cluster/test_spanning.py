"""Transactions over several partitions on real processes: whoever is killed, they happen everywhere or nowhere."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from halog.runtime.rpc import frames
from halog.transactions import commit as commits
from halog.transactions.node import Node
from tests.integration.cluster.bankers import ACCOUNTS, BALANCE, opened, total
from tests.integration.cluster.checker import check
from tests.integration.cluster.fleet import Aircraft, Flight
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.load import tails
from tests.integration.cluster.processes import Process, passes, wait

pytestmark = [pytest.mark.timeout(300), pytest.mark.feature("D4")]

WHOLE = len(ACCOUNTS) * BALANCE


def banker(cluster: Cluster, name: str) -> Process:
    argv = ["tests.integration.cluster.bankers", str(cluster.toml), name, "3"]
    process = Process(name, cluster.directory, argv)
    cluster.helpers.append(process)
    process.ready()
    return process


def said(process: Process, what: str) -> list[list[str]]:
    return [words[1:] for words in map(str.split, process.lines()) if words[0] == what]


def flows(process: Process, count: int = 5) -> None:
    had = len(said(process, "done"))
    wait(lambda: len(said(process, "done")) >= had + count, "transfers go on")


def judged(cluster: Cluster, processes: list[Process]) -> int:
    """Every transfer is beside both accounts or none, each that was said to be done is there, none that was said to
    have failed is; the money is the same, and every copy is the log's. How many happened."""
    node = cluster.client()
    wait(lambda: total(node) == WHOLE, f"{total(node)} is not {WHOLE}")
    with node.transaction():
        flights = {(f.tail, f.number) for f in node.extent(Flight) if f.of in {p.name for p in processes}}
    tried = [(int(n), frm, to) for p in processes for n, frm, to in said(p, "try")]
    for number, frm, to in tried:
        assert ((frm, number) in flights) == ((to, number) in flights), f"half of transfer {number}"
    for p in processes:
        for n, frm, _ in said(p, "failed"):
            assert (frm, int(n)) not in flights, f"transfer {n} had failed: {p.last_words()}"
        for n, frm, _ in said(p, "done"):
            assert (frm, int(n)) in flights, f"transfer {n} was done"
    check(cluster)
    return sum((frm, number) in flights for number, frm, _ in tried)


@contextmanager
def banking(cluster: Cluster, name: str) -> Iterator[Process]:
    opened(cluster.client())
    process = banker(cluster, name)
    flows(process)
    yield process
    process.kill()


@pytest.mark.feature("D4", "D5")
def test_an_initiator_killed_at_any_moment_leaves_whole_transactions_or_nothing(cluster: Cluster) -> None:
    killed = []
    for round_ in range(6):
        with banking(cluster, f"dying{round_}-{cluster.name}") as process:
            passes(random.uniform(0.0, 0.3))
        killed.append(process)
    assert judged(cluster, killed) > 30


def test_the_money_is_the_same_whoever_is_killed(cluster: Cluster) -> None:
    """Each node in turn, each active for some of the partitions, and for what they decide."""
    node = cluster.client()
    with banking(cluster, f"steady-{cluster.name}") as process:
        for victim in cluster.nodes:
            cluster.kill(victim)
            flows(process)
            assert total(node) == WHOLE
            cluster.start([victim])
            wait(cluster.complete, "every node list is complete again")
            flows(process)
            assert total(node) == WHOLE
    assert judged(cluster, [process]) > 30
    assert said(process, "unknown") + said(process, "failed") == [], process.last_words()


@pytest.mark.long
def test_the_money_is_the_same_through_a_restart_of_the_brokers(cluster: Cluster) -> None:
    """A transfer may fail meanwhile, and then nothing of it has happened."""
    with banking(cluster, f"brokers-{cluster.name}") as process:
        cluster.site.restart("kafka")
        flows(process)
        assert total(cluster.client()) == WHOLE
    assert judged(cluster, [process]) > 10


def prepared(node: Node, names: list[str]) -> tuple[bytes, tuple[str, ...]]:
    """An initiator that goes no further than the votes."""
    tx = node.transaction()
    tx.begin()
    for name in names:
        tx.get(Aircraft, name).miles += 1
    presented = commits.prepare(tx)
    assert presented is not None
    assert presented.works is not None
    assert tx.id is not None
    parts = tuple(sorted(presented.works))
    for part in parts:
        vote = frames.PrepareRequest(part, tx.id, parts[0], parts, b"digest", presented.works[part])
        node.backend.ballots.prepare(vote, time.monotonic() + 10)  # type: ignore[attr-defined]
    return tx.id, parts


@pytest.mark.parametrize("decided", ["decided", "decided later", "never decided"])
@pytest.mark.parametrize("victim", ["first", "participant"])
def test_an_active_node_killed_between_the_votes_and_the_outcome(cluster: Cluster, victim: str, decided: str) -> None:
    """What is in the log is known to the next one: the votes, and the decision."""
    node = cluster.client()
    of = tails(node, f"between-{victim}-{decided.replace(' ', '-')}-{time.monotonic_ns()}-")
    names = [of[p][0] for p in sorted(of)[:3]]
    with node.transaction():
        for name in names:
            node.create(Aircraft(tail=name))
    tx, parts = prepared(node, names)
    decide = frames.Decide(parts[0], tx, True, True)
    ballots = node.backend.ballots  # type: ignore[attr-defined]
    if decided == "decided":
        assert ballots.decide(decide, time.monotonic() + 10)[0] == "committed"
    active = cluster.table(parts[0] if victim == "first" else parts[1]).active
    assert active is not None
    cluster.kill(active.node)
    if decided == "decided later":
        assert ballots.decide(decide, time.monotonic() + 10)[0] == "committed"
    with node.transaction():  # waits for the decision
        found = [node.get(Aircraft, name).miles for name in names]
    assert found == ([0] * 3 if decided == "never decided" else [1] * 3)
    with node.transaction():  # and nothing is held any more
        for name in names:
            node.get(Aircraft, name).miles += 1
