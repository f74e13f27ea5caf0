"""Commits whose answers are lost or late: what is said of them is what became of them (R5, D4)."""

from __future__ import annotations

from typing import Any

import pytest

from halog.adapters.memory import Attempt
from halog.core import results as res
from halog.errors import (
    ClosedError,
    DeadlineError,
    HalogError,
    LockedError,
    OutcomeUnknownError,
    PartitionUnavailableError,
    QuorumError,
    UnreachableError,
)
from halog.runtime.rpc import frames
from halog.runtime.rpc.errors import to_frame
from halog.runtime.rpc.result_errors import to_error
from halog.testing.cluster import Cluster
from tests.unit.counting import Counter
from tests.unit.requests import asks
from tests.unit.runtime.client.test_spanning import apart, create, half_done, nothing_in_doubt, values
from tests.unit.runtime.client.test_spanning_unserved import settled

pytestmark = pytest.mark.feature("D4")


def loses_answer(client: Any, wanted: type[Any], then: Any) -> None:
    """The first such request (of votes: the last one) arrives, its answer does not; from then on `then` is asked."""
    faults = client.backend.router.channel.faults

    def lost(attempt: Attempt[bytes]) -> bytes:
        attempt.land()
        faults.add("request", then)
        raise UnreachableError("broke the connection", sent=True)

    faults.add("request", lost, asks(wanted), times=1)


def closed(client: Any, *, node_too: bool) -> Any:
    def then(ask: Any) -> Any:
        client.backend.asker.closed = node_too
        raise ClosedError("the channel is closed")

    return then


@pytest.mark.parametrize("node_too", [False, True])
def test_a_transaction_is_unknown_if_the_node_closes_while_it_is_decided(cluster: Cluster, node_too: bool) -> None:
    names = apart(cluster)
    create(cluster, names)
    client: Any = cluster.client()
    client.backend.asker.call_s = 2.0
    loses_answer(client, frames.PrepareRequest, closed(client, node_too=node_too))
    with pytest.raises(OutcomeUnknownError), client.transaction() as tx:
        for n in names:
            tx.get(Counter, n).value += 1
    client.backend.asker.closed = False
    assert tx.outcome == "unknown"
    nothing_in_doubt(cluster, names)
    assert values(cluster, names) == [101, 101]


def test_an_error_that_says_nothing_of_the_decision_is_no_answer(cluster: Cluster) -> None:
    names = apart(cluster)
    create(cluster, names)
    client: Any = cluster.client()
    ballots = client.backend.ballots
    real = ballots.prepare

    def prepare(r: frames.PrepareRequest, until: float, *args: Any) -> Any:
        said = real(r, until, *args)
        if r.last:
            raise HalogError("KeyError on the active node")
        return said

    ballots.prepare = prepare
    with client.transaction() as tx:
        for n in names:
            tx.get(Counter, n).value += 1
    assert tx.outcome == "committed"
    assert values(cluster, names) == [101, 101]


def lose(client: Any, then: HalogError, *, arrives: bool) -> None:
    """The last vote is asked for twice: the answer to the first request is lost, and the second is refused."""
    ballots = client.backend.ballots
    real, asked = ballots.prepare, list[frames.PrepareRequest]()

    def prepare(r: frames.PrepareRequest, until: float, *args: Any) -> Any:
        if not r.last:
            return real(r, until, *args)
        asked.append(r)
        if len(asked) == 2:
            raise then
        if arrives:
            real(r, until, *args)
        raise OutcomeUnknownError("the connection broke")

    ballots.prepare = prepare


@pytest.mark.parametrize("arrives", [False, True])
def test_a_refusal_behind_a_lost_answer_says_nothing(cluster: Cluster, arrives: bool) -> None:
    """What the first partition was asked before may have happened, or may still: it is asked to abort, and knows."""
    names = apart(cluster)
    create(cluster, names)
    client: Any = cluster.client()
    lose(client, QuorumError("too few", partition="p"), arrives=arrives)
    client.backend._half.spanning._waits = lambda partition: False
    try:
        with client.transaction() as tx:
            for n in names:
                tx.get(Counter, n).value += 1
    except QuorumError:
        assert not arrives
    assert tx.outcome == ("committed" if arrives else "rolled back")
    nothing_in_doubt(cluster, names)
    assert values(cluster, names) == ([101, 101] if arrives else [100, 100])


def test_the_routers_own_second_request_is_no_first_one(patient: Cluster) -> None:
    """The first is late; the second meets the lock of another transaction, which ends before the first arrives."""
    names = apart(patient, 3)
    create(patient, names)
    client: Any = patient.client()
    channel = client.backend.router.channel
    late = channel.faults.fail("request", DeadlineError("did not reply in 1 s"), asks(frames.PrepareRequest), times=1)
    with pytest.raises(LockedError), client.transaction() as tx:
        for n in names[:2]:
            tx.get(Counter, n).value += 1
        other = half_done(patient, [names[0], names[2]])
    assert tx.outcome == "rolled back"
    parts = sorted(patient.partition_of(Counter, n) for n in (names[0], names[2]))
    assert settled(patient, other, parts, commit=False) == {"aborted"}
    assert isinstance(frames.decode_reply(channel.deliver(late.met[0].about, 2.0)), frames.ErrorReply)
    nothing_in_doubt(patient, names)
    assert values(patient, names) == [100, 100, 100]


def test_an_id_that_is_forgotten_behind_a_lost_answer_may_have_happened(cluster: Cluster) -> None:
    names = apart(cluster)
    create(cluster, names)
    client: Any = cluster.client()

    def request(attempt: Attempt[bytes]) -> bytes:
        r: Any = frames.decode_incoming(attempt.about.frame)
        if len(asked.met) == 1:
            attempt.land()
            raise UnreachableError("broke the connection", sent=True)
        return frames.encode(to_frame(to_error(res.ExpiredId(r.tx[:8]), r.partition)))

    asked = client.backend.router.channel.faults.add("request", request, asks(frames.PrepareRequest))
    with client.transaction() as tx:
        for n in names:
            tx.get(Counter, n).value += 1
    assert len(asked.met) == 2
    assert tx.outcome == "committed"
    assert values(cluster, names) == [101, 101]


def test_nobody_is_there_to_say_how_the_last_vote_ended(cluster: Cluster) -> None:
    names = apart(cluster)
    create(cluster, names)
    client: Any = cluster.client()
    lose(client, PartitionUnavailableError("nobody", partition="p"), arrives=True)
    client.backend.ballots.decide = unheard
    with pytest.raises(OutcomeUnknownError) as caught, client.transaction() as tx:
        for n in names:
            tx.get(Counter, n).value += 1
    assert tx.outcome == "unknown"
    assert caught.value.evidence["partition"] == min(cluster.partition_of(Counter, n) for n in names)
    assert values(cluster, names) == [101, 101]


def unheard(r: frames.Decide, until: float, site: str) -> Any:
    raise UnreachableError("broke the connection", sent=True)


@pytest.mark.feature("R5")
def test_a_commit_is_unknown_if_the_node_closes_behind_an_attempt(cluster: Cluster) -> None:
    (name,) = apart(cluster, 1)
    create(cluster, [name])
    client: Any = cluster.client()
    loses_answer(client, frames.Submit, closed(client, node_too=False))
    with pytest.raises(OutcomeUnknownError), client.transaction() as tx:
        tx.get(Counter, name).value += 1
    assert tx.outcome == "unknown"
    assert values(cluster, [name]) == [101]


@pytest.mark.feature("R5")
def test_a_commit_is_rolled_back_if_the_node_closes_before_any_attempt(cluster: Cluster) -> None:
    (name,) = apart(cluster, 1)
    create(cluster, [name])
    client: Any = cluster.client()
    with pytest.raises(ClosedError), client.transaction() as tx:
        tx.get(Counter, name).value += 1
        client.backend.router.channel.faults.add("request", closed(client, node_too=False))
    assert tx.outcome == "rolled back"
    assert values(cluster, [name]) == [100]


@pytest.mark.feature("R5")
def test_a_commit_is_unknown_if_the_active_node_closes_behind_an_attempt_of_its_own(cluster: Cluster) -> None:
    (name,) = apart(cluster, 1)
    create(cluster, [name])
    client: Any = cluster.client()
    commits, turns = client.backend._commits, list[int]()
    real = commits._once

    def once(*args: Any) -> None:
        turns.append(1)
        if len(turns) > 1:
            raise ClosedError("the node is closed")
        real(*args)  # it stopped being active before it heard

    commits._once = once
    with pytest.raises(OutcomeUnknownError), client.transaction() as tx:
        tx.get(Counter, name).value += 1
    assert tx.outcome == "unknown"
    assert values(cluster, [name]) == [101]
