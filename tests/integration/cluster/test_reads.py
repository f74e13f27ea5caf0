"""Reads that must not be old, with real frozen and killed processes: what a woken zombie answers is judged (R5)."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from halog.core.ids import Member
from halog.runtime.rpc import frames
from halog.transactions.node import Node
from tests.faults import linearizability
from tests.faults.history import Operation, Outcome
from tests.integration.cluster import registers
from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.harness import SILENT_MS, Cluster, Make
from tests.integration.cluster.load import tails
from tests.integration.cluster.processes import Process, passes, wait
from tests.integration.cluster.test_freeze import Waiting
from tests.integration.cluster.test_kill import whole_again

pytestmark = [pytest.mark.timeout(600), pytest.mark.feature("R5")]

THINGS = "tests.faults.things"


def active_of(cluster: Cluster, partition: str) -> Member | None:
    return cluster.table(partition).active


def landings(node: Node, reply: frames.Reply) -> int | None:
    """Of an aircraft that a node sent; None: it sent none."""
    if not isinstance(reply, frames.Objects) or reply.items[0] is None:
        return None
    return int(node.space.decoded(reply.items[0], "p-0").values["landings"])


@pytest.mark.feature("R5", "P10")
def test_a_woken_zombie_may_answer_a_plain_read_with_what_was_and_answers_no_barrier(cluster: Cluster) -> None:
    """The requests lie in its sockets when it wakes, so they are the first it sees, before it can know better."""
    node, victim = cluster.client(), active_of(cluster, "p-0")
    assert victim is not None
    led = cluster.led_by(victim.node)
    mine = {p: t[0] for p, t in tails(node, "zombie-read-").items() if p in led}
    for tail in mine.values():
        with node.transaction():
            node.create(Aircraft(tail=tail))
    cluster.freeze(victim.node)
    plain, firm = Waiting(node, victim.node), Waiting(node, victim.node)
    for partition, tail in mine.items():
        plain.send(frames.Fetch(partition, [node.space.route(Aircraft, (tail,)).key], 0))
        firm.send(frames.Barrier(partition))
    for tail in mine.values():  # waits until somebody else is active
        with node.transaction():
            node.get(Aircraft, tail).land(1)
    cluster.wake(victim.node)
    refused, told = firm.answers(), [landings(node, a) for a in plain.answers()]
    assert [type(a) for a in refused] == [frames.ErrorReply] * len(mine), refused
    assert {a.error for a in refused if isinstance(a, frames.ErrorReply)} == {"NotActiveError"}
    assert set(told) <= {0, 1, None}
    print(f"plain reads of the zombie: {told.count(0)} of {len(told)} were old")
    for tail in mine.values():
        with node.transaction(read="barrier"):
            assert node.get(Aircraft, tail).landings == 1
    whole_again(cluster)


class Writers:
    """Threads of this process that swap and read the same registers."""

    def __init__(self, node: Node, count: int) -> None:
        self.operations: list[Operation] = []
        self._stop = False
        self._threads = [threading.Thread(target=self._run, args=(node, f"w{n}"), daemon=True) for n in range(count)]
        for thread in self._threads:
            thread.start()

    def _run(self, node: Node, process: str) -> None:
        with suppress(registers.EnoughError):
            registers.work(node, process, "barrier", self._tell, writes=5, pause_s=0.01)

    def _tell(self, o: Operation) -> None:
        self.operations.append(o)
        if self._stop:
            raise registers.EnoughError

    def flow(self) -> None:
        """Until something that began after now was answered."""
        before = len(self.operations)
        wait(lambda: len(self.operations) > before + 20, "operations are answered")

    def end(self) -> list[Operation]:
        self._stop = True
        for thread in self._threads:
            thread.join(60)
        assert not any(t.is_alive() for t in self._threads), "a caller never got an answer"
        return self.operations


@contextmanager
def readers(cluster: Cluster, mode: str) -> Iterator[list[Operation]]:
    """A is a process whose application reads registers, others write them; afterwards, all operations."""
    cluster.launch("B")
    cluster.launch("C")
    argv = ["tests.integration.cluster.registers", str(cluster.toml), "A", mode]
    inside = cluster.processes["A"] = Process("A", cluster.directory, argv)
    outside = Process("outside", cluster.directory, [*argv[:2], "outside", mode])
    cluster.helpers.append(outside)
    for process in (*cluster.processes.values(), outside):
        process.ready()
    wait(lambda: all(t.active is not None for t in cluster.tables()), "every partition has an active node")
    whole_again(cluster)
    writers, found = Writers(cluster.client(), 2), []
    writers.flow()
    yield found
    writers.flow()
    for process in (inside, outside):
        if process.running:
            before = len(process.lines())
            wait(lambda p=process, n=before: len(p.lines()) > n + 20, "its reads are answered")  # type: ignore[misc]
    found += writers.end()
    for process in (inside, outside):  # first all have ended: what one did last another has seen
        process.signal(signal.SIGTERM)
    for process in (inside, outside):
        wait(lambda p=process: p.lines()[-1] == "end", "the last operation is answered")  # type: ignore[misc]
        found += registers.parsed(process.lines())


@pytest.mark.long
@pytest.mark.feature("R5", "P10")
def test_what_is_read_behind_a_barrier_is_linearizable_while_the_active_is_stopped_and_woken(make: Make) -> None:
    """Its own application reads on, inside the zombie and from outside, as soon as it is awake."""
    cluster = make(partitions=2, module=THINGS, stay_ms=400)
    with readers(cluster, "barrier") as operations:
        for _ in range(3):
            wait(lambda: cluster.led_by("A") != [], "A is active for something")
            cluster.freeze("A")
            passes(SILENT_MS / 1000 + 0.7)
            cluster.wake("A")
            passes(0.3)
    reads = [o for o in operations if o.kind == "read" and o.outcome is Outcome.OK]
    assert {o.process for o in reads} >= {"A", "outside"}
    assert linearizability.check(operations, linearizability.register) == []


@pytest.mark.feature("R5", "P10")
def test_what_is_read_behind_a_barrier_is_linearizable_while_actives_are_killed(make: Make) -> None:
    cluster = make(partitions=2, module=THINGS)
    with readers(cluster, "barrier") as operations:
        for name in "BC":
            cluster.kill(name)
            passes(0.5)
            cluster.start([name])
            whole_again(cluster)
    assert linearizability.check(operations, linearizability.register) == []


@pytest.mark.long
@pytest.mark.feature("R5", "R6")
def test_it_is_linearizable_where_commits_do_not_wait_for_the_log(make: Make) -> None:
    cluster = make(partitions=2, module=THINGS, local_sync="NO_SYNC", stay_ms=400)
    with readers(cluster, "barrier") as operations:
        for _ in range(2):
            wait(lambda: cluster.led_by("A") != [], "A is active for something")
            cluster.freeze("A")
            passes(SILENT_MS / 1000 + 0.7)
            cluster.wake("A")
            passes(0.3)
    assert linearizability.check(operations, linearizability.register) == []
