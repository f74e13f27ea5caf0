"""Transactions over several partitions on real processes: whoever is killed, they happen everywhere or nowhere."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from halog.config import TimingConfig
from halog.errors import HalogError
from halog.runtime.rpc import frames
from halog.transactions import commit as commits
from halog.transactions.node import Node
from tests.integration.cluster.bankers import ACCOUNTS, BALANCE, opened, total
from tests.integration.cluster.checker import check
from tests.integration.cluster.fleet import Aircraft, Flight
from tests.integration.cluster.harness import ANSWERS_S, Cluster
from tests.integration.cluster.load import tails
from tests.integration.cluster.processes import Process, passes, wait
from tests.integration.cluster.test_remapping import undecided

pytestmark = [pytest.mark.timeout(600), pytest.mark.feature("D4")]

WHOLE = len(ACCOUNTS) * BALANCE
DOUBT_S = TimingConfig().doubt_timeout_ms / 1000


def banker(cluster: Cluster, name: str) -> Process:
    argv = ["tests.integration.cluster.bankers", str(cluster.toml), name, "3"]
    process = Process(name, cluster.directory, argv)
    cluster.helpers.append(process)
    process.ready()
    return process


def said(process: Process, what: str) -> list[list[str]]:
    return [words[1:] for words in map(str.split, process.lines()) if words[0] == what]


def flows(process: Process, count: int = 6) -> None:
    had = len(said(process, "done"))
    wait(lambda: len(said(process, "done")) >= had + count, "transfers go on")


def judged(cluster: Cluster, processes: list[Process]) -> int:
    """Every transfer is beside both accounts or none, each that was said to be done is there, none that was said to
    have failed is; the money is the same, and every copy is the log's. How many happened."""
    node = cluster.client()
    flights = _settled(cluster, {p.name for p in processes})
    assert total(node) == WHOLE
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


def _settled(cluster: Cluster, of: set[str]) -> set[tuple[str, int]]:
    """(tail, number) of what the processes left: what they had under way may still be decided, so it is read until
    nothing is in doubt, and nothing changes any more."""
    node, seen = cluster.client(), list[set[tuple[str, int]]]()

    @node.transactional(retries=200)
    def flights() -> set[tuple[str, int]]:
        return {(f.tail, f.number) for f in node.extent(Flight) if f.of in of}

    def same_twice() -> bool:
        seen.append(flights())
        return undecided(cluster) == 0 and len(seen) > 1 and seen[-1] == seen[-2]

    wait(same_twice, "the last transfers are settled")
    return seen[-1]


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


class Initiator:
    """An initiator that goes no further than the votes. Until it is no more it asks for them again and again, as any
    does: nobody doubts what it has prepared."""

    def __init__(self, node: Node, names: list[str]) -> None:
        self._ballots = node.backend.ballots  # type: ignore[attr-defined]
        self.tx, votes = self._votes(node, names)
        self.parts = tuple(vote.partition for vote in votes)
        self._gone = threading.Event()
        self._threads = [threading.Thread(target=self._live, args=(vote,), daemon=True) for vote in votes]
        for vote, thread in zip(votes, self._threads, strict=True):
            self._ballots.prepare(vote, time.monotonic() + ANSWERS_S)
            thread.start()

    def _votes(self, node: Node, names: list[str]) -> tuple[bytes, list[frames.PrepareRequest]]:
        tx = node.transaction()
        tx.begin()
        for name in names:
            tx.get(Aircraft, name).miles += 1
        presented = commits.prepare(tx)
        assert presented is not None
        assert presented.works is not None
        assert tx.id is not None
        parts = tuple(sorted(presented.works))
        works = presented.works
        return tx.id, [frames.PrepareRequest(part, tx.id, parts[0], parts, b"digest", works[part]) for part in parts]

    def _live(self, vote: frames.PrepareRequest) -> None:
        while not self._gone.wait(DOUBT_S / 10):
            with suppress(HalogError):
                self._ballots.prepare(vote, time.monotonic() + DOUBT_S)

    def decide(self) -> str:
        decide = frames.Decide(self.parts[0], self.tx, True, True)
        return str(self._ballots.decide(decide, time.monotonic() + ANSWERS_S)[0])

    def ends(self) -> None:
        self._gone.set()
        for thread in self._threads:
            thread.join(60)


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
    initiator = Initiator(node, names)
    if decided == "decided":
        assert initiator.decide() == "committed"
        initiator.ends()
    active = cluster.table(initiator.parts[0] if victim == "first" else initiator.parts[1]).active
    assert active is not None
    cluster.kill(active.node)
    if decided == "decided later":
        assert initiator.decide() == "committed"
    initiator.ends()
    with node.transaction():  # waits for the decision
        found = [node.get(Aircraft, name).miles for name in names]
    assert found == ([0] * 3 if decided == "never decided" else [1] * 3)
    with node.transaction():  # and nothing is held any more
        for name in names:
            node.get(Aircraft, name).miles += 1
