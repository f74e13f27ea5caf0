"""What is asked by its id behind an unknown outcome: under the highest epoch that a request was out for (R4, R5)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from halog.adapters.memory import Attempt, Fault
from halog.backend import Work
from halog.cli.shared.connection import ClusterConnection
from halog.demo.exactly import ExactlyOnce
from halog.errors import ClosedError, DeadlineError, LockedError, OutcomeUnknownError, UnreachableError
from halog.runtime.rpc import frames
from halog.runtime.rpc.errors import to_frame
from halog.runtime.rpc.request import OpenCommit
from halog.testing.cluster import Cluster, wait_until
from tests.unit.counting import Counter
from tests.unit.requests import asks
from tests.unit.runtime.client.test_late_requests import in_a_thread
from tests.unit.runtime.client.test_spanning import apart, create, values

pytestmark = pytest.mark.feature("R4", "R5")


def are_late(client: Any, after_first: Callable[[], object] = lambda: None) -> tuple[Fault, Callable[[int], Any]]:
    """Every request to commit is under way for longer than its answer is waited for; behind the first, `after_first`
    happens. Returns them, and what has one of them arrive and gives what its node answers then."""
    channel = client.backend.router.channel

    def request(attempt: Attempt[bytes]) -> bytes:
        if len(late.met) == 1:
            after_first()
        raise DeadlineError("did not reply in 1 s")

    late: Fault = channel.faults.add("request", request, asks(frames.Submit))
    return late, lambda n: frames.decode_reply(channel.deliver(late.met[n].about, 2.0))


def add_one(client: Any, tx: Any, *names: str) -> None:
    """Change them; the commit gives up after 0.6 s. The reads before it wait as ever: a busy machine answers later."""
    for name in names:
        tx.get(Counter, name).value += 1
    client.backend.asker.call_s = 0.6


def elect_another(cluster: Cluster, name: str, client: Any) -> None:
    """And the client hears of it."""
    was, partition = cluster.active_for(Counter, name), cluster.partition_of(Counter, name)
    router = client.backend.router
    before, to = router.epoch(partition), next(n for n in cluster.names if n != was)
    runtime: Any = cluster.node(was).runtime
    runtime.operators.hand_over(partition, to)
    wait_until(lambda: cluster.active_for(Counter, name) == to, f"{to} is not active")
    wait_until(lambda: router.epoch(partition) > before, "the client does not hear of it")


def epoch_of(attempt: Attempt[bytes]) -> int:
    r = frames.decode_incoming(attempt.about.frame)
    assert isinstance(r, frames.Submit)
    return r.epoch


def test_a_request_of_a_later_epoch_that_is_still_under_way_is_not_said_to_have_not_happened(cluster: Cluster) -> None:
    """Whoever asked under the epoch he knew of when he began was told so, ran the work again, and it was done twice."""
    (name,) = apart(cluster, 1)
    create(cluster, [name])
    client: Any = cluster.client()
    partition = cluster.partition_of(Counter, name)
    knew = client.backend.router.epoch(partition)
    late, arrives = are_late(client, partial(in_a_thread, elect_another, cluster, name, client))
    with pytest.raises(OutcomeUnknownError) as caught, client.transaction() as tx:
        add_one(client, tx, name)
    evidence = caught.value.evidence
    assert evidence["partition"] == partition
    assert evidence["epoch"] == epoch_of(late.met[-1]) > epoch_of(late.met[0]) == knew
    operators = cluster.node(cluster.active_for(Counter, name)).runtime.operators
    assert operators.outcome(partition, tx.id, evidence["epoch"]) == "unknown"
    assert operators.outcome(partition, tx.id, knew) == "did not happen", "that is what was asked before"
    assert isinstance(arrives(-1), frames.CommitReply)
    assert operators.outcome(partition, tx.id, evidence["epoch"]) == "happened"
    assert values(cluster, [name]) == [101]


def test_what_was_not_sent_in_a_later_epoch_is_settled_by_that(cluster: Cluster) -> None:
    """It would be unknown for as long as that epoch lasts."""
    (name,) = apart(cluster, 1)
    create(cluster, [name])
    client: Any = cluster.client()
    partition = cluster.partition_of(Counter, name)
    knew = client.backend.router.epoch(partition)
    late, arrives = are_late(client, partial(in_a_thread, elect_another, cluster, name, client))

    def unsent(attempt: Attempt[bytes]) -> bytes:
        if late.met:
            raise UnreachableError("nobody listens", sent=False)
        return attempt.land()

    client.backend.router.channel.faults.add("request", unsent, asks(frames.Submit))
    with pytest.raises(OutcomeUnknownError) as caught, client.transaction() as tx:
        add_one(client, tx, name)
    assert caught.value.evidence["epoch"] == knew
    operators = cluster.node(cluster.active_for(Counter, name)).runtime.operators
    assert operators.outcome(partition, tx.id, knew) == "did not happen"
    assert arrives(0).error == "NotActiveError"
    assert values(cluster, [name]) == [100]


def test_the_highest_of_several_turns_counts(cluster: Cluster) -> None:
    """A turn ends where a lock is met, and another one begins; the last one is closed."""
    (name,) = apart(cluster, 1)
    create(cluster, [name])
    client: Any = cluster.client()
    router, partition = client.backend.router, cluster.partition_of(Counter, name)
    led = router.epoch(partition)

    def request(attempt: Attempt[bytes]) -> bytes:
        if len(asked.met) == 1:
            raise DeadlineError("did not reply in 1 s")
        if len(asked.met) == 2:
            return frames.encode(to_frame(LockedError("an object is held")))
        raise ClosedError("the channel is closed")

    asked: Fault = router.channel.faults.add("request", request, asks(frames.Submit))
    router.epoch = lambda partition: led + 7 if len(asked.met) < 2 else led
    with pytest.raises(OutcomeUnknownError) as caught, client.transaction() as tx:
        tx.get(Counter, name).value += 1
    assert tx.outcome == "unknown"
    assert caught.value.evidence["epoch"] == led + 7


@pytest.mark.parametrize("lag", [0, 1])
def test_what_was_presented_to_a_copy_of_the_same_node_has_its_epoch(cluster: Cluster, lag: int) -> None:
    """The copy's own, where this node has not heard of that yet."""
    (name,) = apart(cluster, 1)
    create(cluster, [name])
    node: Any = cluster.node(cluster.active_for(Counter, name))
    partition = cluster.partition_of(Counter, name)
    led, copy = node.backend.router.epoch(partition), node.backend.asker.serving(partition)
    submit = copy.submit

    def submitted(tx: bytes, work: Work, answer: Any, *args: Any, **kwargs: Any) -> int:
        tag: int = submit(tx, work, lambda result: None, *args, **kwargs)
        return tag

    copy.submit = submitted
    node.backend.router.epoch = lambda partition: led - lag
    node.backend.asker.call_s = 0.2
    with pytest.raises(OutcomeUnknownError) as caught, node.transaction() as tx:
        tx.get(Counter, name).value += 1
    assert tx.outcome == "unknown"
    assert caught.value.evidence["epoch"] == led


def test_a_tool_is_told_the_epoch_too() -> None:
    connection: Any = ClusterConnection.__new__(ClusterConnection)
    connection._stamp, connection.mapping_version = 0, lambda partition: 0

    def ask(partition: str, frame: Any, expect: type[Any], open_: OpenCommit) -> Any:
        open_.seen(6)
        raise LockedError("an object is held", asked_before=True, may_arrive=True)

    connection.ask = ask
    with pytest.raises(OutcomeUnknownError) as caught:
        connection.submit("test-0", Work((), ()), b"tool")
    assert caught.value.evidence["epoch"] == 6


class Once(ExactlyOnce[str]):
    """The demo's client, on a node of its own making."""

    def work(self, tx: Any, what: str) -> None:
        tx.id = b"id"

    def note(self, what: str, partition: str, tx: bytes, outcome: str) -> None:
        self.noted = [*getattr(self, "noted", []), outcome]


@pytest.mark.parametrize(("evidence", "asked"), [({"epoch": 6}, 6), ({"epoch": 4}, 5), ({}, 5)])
def test_the_demo_asks_under_the_higher_one_of_what_it_read_and_what_it_is_told(
    evidence: dict[str, int], asked: int
) -> None:
    class Tx:
        id: bytes | None = None

    class Node:
        def current(self) -> Any:
            return Tx()

        def transactional(self, retries: int) -> Any:
            def wrap(begun: Any) -> Any:
                def run(what: str) -> None:
                    begun(what)
                    raise OutcomeUnknownError("no answer", partition="p-0", **evidence)

                return run

            return wrap

    under = list[int]()

    class Outcomes:
        def outcome(self, partition: str, tx: bytes, attempt: int) -> str:
            under.append(attempt)
            return "happened"

    node: Any = Node()
    Once(node, Outcomes(), lambda: {"p-0": 5}).transact("row")
    assert under == [asked]
