"""A commit of several turns, one of whose requests is late: what the last turn meets says nothing of that one (R5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from halog.adapters.memory import Attempt
from halog.backend import Work
from halog.cli.shared.connection import ClusterConnection
from halog.core import results as res
from halog.errors import (
    ClosedError,
    ConflictError,
    DeadlineError,
    FrameError,
    HalogError,
    LockedError,
    NotActiveError,
    OutcomeUnknownError,
    OverloadedError,
    QuorumError,
    StoreError,
    SwitchedError,
    UnreachableError,
)
from halog.runtime.client.commits import PERHAPS
from halog.runtime.rpc import frames
from halog.runtime.rpc.errors import to_frame
from halog.runtime.rpc.request import OpenCommit
from halog.runtime.rpc.result_errors import to_error
from halog.testing.cluster import Cluster, wait_until
from tests.unit.counting import Counter
from tests.unit.requests import asks
from tests.unit.runtime.client.test_late_requests import in_a_thread
from tests.unit.runtime.client.test_outcome_by_id import add_one, elect_another
from tests.unit.runtime.client.test_spanning import apart, create, values

pytestmark = pytest.mark.feature("R5")


def turns(client: Any, *then: Callable[[frames.Submit], Any]) -> tuple[list[frames.Submit], Callable[[], Any]]:
    """The first request to commit is under way for longer than its answer is waited for; the others meet what `then`
    says, the last of them again and again. Returns all requests, and what has the first one arrive."""
    channel, asked = client.backend.router.channel, list[frames.Submit]()

    def request(attempt: Attempt[bytes]) -> bytes:
        r: Any = frames.decode_incoming(attempt.about.frame)
        asked.append(r)
        if len(asked) == 1:
            raise DeadlineError("did not reply in 1 s")
        said = then[min(len(asked) - 2, len(then) - 1)](r)
        return attempt.land() if said is None else frames.encode(to_frame(said))

    fault = channel.faults.add("request", request, asks(frames.Submit))
    return asked, lambda: frames.decode_reply(channel.deliver(fault.met[0].about, 2.0))


def hand_over(cluster: Cluster, partition: str, was: str, to: str) -> None:
    runtime: Any = cluster.node(was).runtime
    runtime.operators.hand_over(partition, to)


def raises(error: HalogError) -> Callable[[frames.Submit], Any]:
    def then(r: frames.Submit) -> Any:
        raise error

    return then


def says(error: HalogError) -> Callable[[frames.Submit], Any]:
    return lambda r: error


LOCKED = says(LockedError("an object is held"))
BUSY = says(OverloadedError("1,000 commits are in flight"))


@pytest.mark.parametrize("refused", [LOCKED, BUSY], ids=["locked", "busy"])
@pytest.mark.parametrize(
    "then",
    [
        raises(UnreachableError("nobody listens", sent=False)),
        raises(ClosedError("the channel is closed")),
        says(NotActiveError("not active")),
        lambda r: to_error(res.ExpiredId(r.tx[:8]), r.partition),
    ],
    ids=["unreachable", "closed", "not active", "forgotten"],
)
def test_whatever_ends_a_later_turn_says_nothing_of_a_late_request(
    cluster: Cluster, refused: Any, then: Callable[[frames.Submit], Any]
) -> None:
    """The node that it is under way to refused the second request, and then nobody could be asked any more."""
    (name,) = apart(cluster, 1)
    create(cluster, [name])
    client: Any = cluster.client()
    _, arrives = turns(client, refused, then)
    with pytest.raises(OutcomeUnknownError), client.transaction() as tx:
        add_one(client, tx, name)
    assert tx.outcome == "unknown"
    assert isinstance(arrives(), frames.CommitReply)
    assert values(cluster, [name]) == [101]


def test_a_refusal_of_a_later_turn_in_a_later_epoch_is_believed(cluster: Cluster) -> None:
    """The first turn ended with a lock, in the epoch that the late request is for; that one is over then."""
    (name,) = apart(cluster, 1)
    create(cluster, [name])
    client: Any = cluster.client()

    def fails_over(r: frames.Submit) -> HalogError:
        in_a_thread(elect_another, cluster, name, client)
        return LockedError("an object is held")

    asked, arrives = turns(client, fails_over, says(QuorumError("1 of 2 nodes; nothing was done")))
    with pytest.raises(QuorumError), client.transaction() as tx:
        add_one(client, tx, name)
    assert asked[0].epoch == asked[1].epoch < asked[2].epoch
    assert tx.outcome == "rolled back"
    assert arrives().error == "NotActiveError"
    assert values(cluster, [name]) == [100]


def test_a_refusal_of_this_nodes_own_copy_in_a_later_epoch_is_believed(cluster: Cluster) -> None:
    """It became active between two turns."""
    (name,) = apart(cluster, 1)
    create(cluster, [name])
    partition, was = cluster.partition_of(Counter, name), cluster.active_for(Counter, name)
    me = next(n for n in cluster.names if n != was)
    node: Any = cluster.node(me)

    def comes_here(r: frames.Submit) -> HalogError:
        in_a_thread(hand_over, cluster, partition, was, me)
        wait_until(lambda: node.backend.asker.serving(partition) is not None, "it does not serve")
        copy = node.backend.asker.serving(partition)
        copy.submit = lambda tx, work, answer, *args: answer(res.Shortage(1, 2)) or 0
        return LockedError("an object is held")

    asked, arrives = turns(node, comes_here)
    with pytest.raises(QuorumError), node.transaction() as tx:
        tx.get(Counter, name).value += 1
    assert len(asked) == 2
    assert tx.outcome == "rolled back"
    assert arrives().error == "NotActiveError"
    assert values(cluster, [name]) == [100]


def test_epochs_of_two_sites_are_not_compared() -> None:
    """A later one there says nothing of what is under way here: the site may have been taken over from."""
    out = OpenCommit()
    assert not out.may_arrive("", 0)
    out.unanswered("", 3)
    out.unanswered("", 2)
    assert [out.may_arrive("", n) for n in (2, 3, 4)] == [True, True, False]
    assert out.may_arrive("east", 4)
    out.unanswered("east", 7)
    assert out.may_arrive("east", 8)
    assert out.may_arrive("", 8)


def test_a_site_switch_behind_a_late_request_says_nothing_of_it(cluster: Cluster) -> None:
    (name,) = apart(cluster, 1)
    create(cluster, [name])
    client: Any = cluster.client()
    _, arrives = turns(client, LOCKED)
    commits, count = client.backend._commits, list[int]()
    real = commits._once

    def once(*args: Any) -> Any:
        count.append(1)
        if len(count) > 1:
            raise SwitchedError("another site serves it")
        return real(*args)

    commits._once = once
    with pytest.raises(OutcomeUnknownError), client.transaction() as tx:
        add_one(client, tx, name)
    assert tx.outcome == "unknown"
    assert isinstance(arrives(), frames.CommitReply)
    assert values(cluster, [name]) == [101]


def test_the_highest_epoch_that_a_request_is_out_for_counts(cluster: Cluster) -> None:
    """Behind a new session of the coordinator, at a server that lags, an older table counts."""
    (name,) = apart(cluster, 1)
    create(cluster, [name])
    client: Any = cluster.client()
    router, partition = client.backend.router, cluster.partition_of(Counter, name)
    led = router.epoch(partition)
    asked, arrives = turns(
        client,
        raises(DeadlineError("did not reply in 1 s")),
        lambda r: None,  # the real one: it is in a later epoch
        says(QuorumError("1 of 2 nodes; nothing was done")),
    )
    router.epoch = lambda partition: led if not asked else led - 1
    with pytest.raises(OutcomeUnknownError), client.transaction() as tx:
        tx.get(Counter, name).value += 1
    assert [r.epoch for r in asked][:4] == [led, led - 1, led - 1, led]
    assert tx.outcome == "unknown"
    assert isinstance(arrives(), frames.CommitReply)
    assert values(cluster, [name]) == [101]


@pytest.mark.parametrize("error", [StoreError("the disk does not answer"), HalogError("KeyError on the active node")])
def test_an_active_node_that_cannot_look_says_nothing_of_an_answer_lost_in_an_earlier_epoch(
    cluster: Cluster, error: HalogError
) -> None:
    """What is presented is looked up before it is asked whether it is known."""
    (name,) = apart(cluster, 1)
    create(cluster, [name])
    client: Any = cluster.client()
    router, partition = client.backend.router, cluster.partition_of(Counter, name)
    led = router.epoch(partition)
    asked, arrives = turns(client, says(error))
    router.epoch = lambda partition: led if not asked else led + 1
    with pytest.raises(OutcomeUnknownError), client.transaction() as tx:
        add_one(client, tx, name)

        def request(attempt: Attempt[bytes]) -> bytes:
            try:
                return attempt.land()
            except DeadlineError:
                assert isinstance(arrives(), frames.CommitReply)  # in its epoch
                raise

        router.channel.faults.add("request", request)
    assert tx.outcome == "unknown"
    assert values(cluster, [name]) == [101]


def test_a_store_that_fails_says_nothing_of_an_earlier_attempt_here(cluster: Cluster) -> None:
    (name,) = apart(cluster, 1)
    create(cluster, [name])
    node: Any = cluster.node(cluster.active_for(Counter, name))
    commits, count = node.backend._commits, list[int]()
    real = commits._once

    def once(*args: Any) -> Any:
        count.append(1)
        if len(count) > 1:
            raise StoreError("the disk does not answer")
        assert real(*args) > 0
        return PERHAPS  # its epoch ended before it heard

    commits._once = once
    client = cluster.client()
    with pytest.raises(OutcomeUnknownError):
        node.backend.commit(*_presented(client, name, node.backend))
    assert values(cluster, [name]) == [101]


def _presented(client: Any, name: str, backend: Any) -> tuple[str, bytes, Any]:
    from halog.transactions import commit as commits

    tx = client.transaction()
    tx.begin()
    tx.get(Counter, name).value += 1
    presented = commits.prepare(tx)
    assert presented is not None
    return presented.partition, backend.new_transaction_id(), presented.work


def test_an_answer_that_cannot_be_read_is_none(cluster: Cluster) -> None:
    """The node may be of a later version."""
    (name,) = apart(cluster, 1)
    create(cluster, [name])
    client: Any = cluster.client()

    def garbled(attempt: Attempt[bytes]) -> bytes:
        attempt.land()
        return b"?"

    client.backend.router.channel.faults.add("request", garbled, asks(frames.Submit))
    with pytest.raises(OutcomeUnknownError), client.transaction() as tx:
        tx.get(Counter, name).value += 1
    assert tx.outcome == "unknown"
    assert values(cluster, [name]) == [101]


def test_a_request_that_is_too_large_for_a_frame_was_never_sent(cluster: Cluster) -> None:
    (name,) = apart(cluster, 1)
    create(cluster, [name])
    client: Any = cluster.client()
    too_large = FrameError("a frame of 9 bytes exceeds the limit of 8", size=9, limit=8)
    client.backend.router.channel.faults.fail("request", too_large, asks(frames.Submit))
    with pytest.raises(FrameError), client.transaction() as tx:
        tx.get(Counter, name).value += 1
    assert tx.outcome == "rolled back"


def test_a_tool_believes_no_refusal_that_its_first_request_may_overtake() -> None:
    """Its commits are one request each, by the router alone."""
    said: list[HalogError] = [
        LockedError("an object is held", key=b"k"),
        ConflictError("it was read as version 3", expected=3),
        LockedError("an object is held", key=b"k"),
    ]
    for error in said[:2]:
        error.evidence |= {"asked_before": True, "may_arrive": True}
    connection: Any = ClusterConnection.__new__(ClusterConnection)
    connection._stamp, connection.mapping_version = 0, lambda partition: 0

    def ask(partition: str, frame: Any, expect: type[Any], open_: OpenCommit) -> Any:
        raise said.pop(0)

    connection.ask = ask
    for told in (OutcomeUnknownError, ConflictError, LockedError):
        with pytest.raises(told):
            connection.submit("test-0", Work((), ()), b"tool")
