"""A commit whose first request arrives late, behind an answer to the second: what was said stays true (R5, R7)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from halog.adapters.memory import Attempt
from halog.errors import (
    ConflictError,
    DeadlineError,
    HalogError,
    OutcomeUnknownError,
    QuorumError,
    RefusedError,
    ReplicasError,
)
from halog.runtime.rpc import frames
from halog.runtime.rpc.errors import to_frame
from halog.testing.cluster import Cluster, wait_until
from tests.unit.counting import Counter
from tests.unit.requests import asks
from tests.unit.runtime.client.test_spanning import apart, create, half_done, values
from tests.unit.runtime.client.test_spanning_unserved import settled


def is_late(client: Any, then: Any = None, meanwhile: Callable[[], object] = lambda: None) -> Callable[[], Any]:
    """The first request to commit is under way for longer than its answer is waited for; the next ones are asked, or
    answered by `then`. Returns what has it arrive, and gives what its node answers then."""
    channel = client.backend.router.channel

    def request(attempt: Attempt[bytes]) -> bytes:
        if len(asked.met) == 1:
            meanwhile()
            raise DeadlineError("did not reply in 1 s")
        return attempt.land() if then is None else frames.encode(to_frame(then))

    asked = channel.faults.add("request", request, asks(frames.Submit))
    client.backend.asker.locked_s = 0.05
    return lambda: frames.decode_reply(channel.deliver(asked.met[0].about, 2.0))


@pytest.mark.feature("R5", "R7")
@pytest.mark.parametrize(
    "refusal",
    [
        QuorumError("1 of 2 nodes; nothing was done"),
        ReplicasError("0 of 1 are to flush it; nothing was done"),
        RefusedError("the partition is disabled"),
        HalogError("KeyError on the active node"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_a_refused_commit_is_unknown_where_an_earlier_request_may_still_arrive(
    cluster: Cluster, refusal: HalogError
) -> None:
    """What is in its way now may go before that does."""
    (name,) = apart(cluster, 1)
    create(cluster, [name])
    client: Any = cluster.client()
    arrives = is_late(client, refusal)
    with pytest.raises(OutcomeUnknownError, match="under way before"), client.transaction() as tx:
        tx.get(Counter, name).value += 1
    assert tx.outcome == "unknown"
    assert isinstance(arrives(), frames.CommitReply)
    assert values(cluster, [name]) == [101]


@pytest.mark.feature("R5")
def test_a_lock_met_by_the_second_request_says_nothing_of_the_first(patient: Cluster) -> None:
    names = apart(patient, 2)
    create(patient, names)
    client: Any = patient.client()
    arrives = is_late(client)
    with pytest.raises(OutcomeUnknownError), client.transaction() as tx:
        tx.get(Counter, names[0]).value += 1
        other = half_done(patient, names)
    assert tx.outcome == "unknown"
    parts = sorted(patient.partition_of(Counter, n) for n in names)
    assert settled(patient, other, parts, commit=False) == {"aborted"}
    assert isinstance(arrives(), frames.CommitReply)
    assert values(patient, names) == [101, 100]


@pytest.mark.feature("R5")
def test_a_key_met_by_the_second_request_may_be_free_when_the_first_arrives(cluster: Cluster) -> None:
    (name,) = apart(cluster, 1)
    client: Any = cluster.client()
    arrives = is_late(client)
    with pytest.raises(OutcomeUnknownError), client.transaction() as tx:
        tx.create(Counter(name, 5))
        in_a_thread(create, cluster, [name])
    assert tx.outcome == "unknown"
    with cluster.client().transaction() as other:
        other.delete(other.get(Counter, name))
    assert isinstance(arrives(), frames.CommitReply)
    assert values(cluster, [name]) == [5]


@pytest.mark.feature("R5")
def test_a_version_that_has_moved_on_refuses_the_first_request_too(cluster: Cluster) -> None:
    """Versions only grow, so whoever is told of a conflict may run the transaction again."""
    (name,) = apart(cluster, 1)
    create(cluster, [name])
    client: Any = cluster.client()
    arrives = is_late(client)
    with pytest.raises(ConflictError), client.transaction() as tx:
        tx.get(Counter, name).value += 1
        in_a_thread(add, cluster, name, 10)
    assert tx.outcome == "rolled back"
    assert isinstance(arrives(), frames.ErrorReply)
    assert values(cluster, [name]) == [110]


@pytest.mark.feature("R5")
@pytest.mark.parametrize("back", [False, True])
def test_a_refusal_in_a_later_epoch_is_believed(cluster: Cluster, back: bool) -> None:
    """Whoever is active then knows what became of the first request, and does nothing of it when it arrives: it was
    for an epoch that is over, even where the same node is active again."""
    (name,) = apart(cluster, 1)
    create(cluster, [name])
    client: Any = cluster.client()
    router, partition = client.backend.router, cluster.partition_of(Counter, name)

    def elects_another() -> None:
        was, before = cluster.active_for(Counter, name), router.epoch(partition)
        turns = [next(n for n in cluster.names if n != was), *([was] if back else [])]
        for to in turns:
            runtime: Any = cluster.node(cluster.active_for(Counter, name)).runtime
            runtime.operators.hand_over(partition, to)
            wait_until(partial(_is_active, cluster, name, to), f"{to} is not active")
        wait_until(lambda: router.epoch(partition) >= before + len(turns), "the client does not hear of it")

    arrives = is_late(client, QuorumError("1 of 2 nodes; nothing was done"), lambda: in_a_thread(elects_another))
    with pytest.raises(QuorumError), client.transaction() as tx:
        tx.get(Counter, name).value += 1
    assert tx.outcome == "rolled back"
    assert arrives().error == "NotActiveError"
    assert values(cluster, [name]) == [100]


@pytest.mark.feature("R5", "D4")
def test_a_last_vote_that_is_late_decides_nothing_in_a_later_epoch(cluster: Cluster) -> None:
    names = apart(cluster, 2)
    create(cluster, names)
    client: Any = cluster.client()
    channel = client.backend.router.channel
    first = min(names, key=lambda n: cluster.partition_of(Counter, n))
    partition, router = cluster.partition_of(Counter, first), client.backend.router

    def elects_another() -> None:
        was, before = cluster.active_for(Counter, first), router.epoch(partition)
        for to in (next(n for n in cluster.names if n != was), was):
            runtime: Any = cluster.node(cluster.active_for(Counter, first)).runtime
            runtime.operators.hand_over(partition, to)
            wait_until(partial(_is_active, cluster, first, to), f"{to} is not active")
        wait_until(lambda: router.epoch(partition) >= before + 2, "the client does not hear of it")

    def request(attempt: Attempt[bytes]) -> bytes:
        in_a_thread(elects_another)
        raise DeadlineError("did not reply in 1 s")

    late = channel.faults.add("request", request, asks(frames.PrepareRequest), times=1)
    with client.transaction() as tx:
        for n in names:
            tx.get(Counter, n).value += 1
    assert tx.outcome == "committed"
    said: Any = frames.decode_reply(channel.deliver(late.met[0].about, 2.0))
    assert (said.error, said.evidence["epoch"] > 0) == ("NotActiveError", True)
    assert values(cluster, names) == [101, 101]


@pytest.mark.feature("R5")
def test_who_knows_an_older_epoch_is_told_the_one_that_goes_on(cluster: Cluster) -> None:
    """Its coordinator may be away: what the active node says is enough."""
    (name,) = apart(cluster, 1)
    create(cluster, [name])
    client: Any = cluster.client()
    client.backend.router.epoch = lambda partition: 0
    with client.transaction() as tx:
        tx.get(Counter, name).value += 1
    assert values(cluster, [name]) == [101]


@pytest.mark.feature("R5", "R7")
def test_a_refusal_of_the_only_request_is_believed(cluster: Cluster) -> None:
    (name,) = apart(cluster, 1)
    create(cluster, [name])
    client: Any = cluster.client()
    refusal = frames.encode(to_frame(QuorumError("1 of 2 nodes; nothing was done")))
    client.backend.router.channel.faults.add("request", lambda attempt: refusal, asks(frames.Submit))
    with pytest.raises(QuorumError), client.transaction() as tx:
        tx.get(Counter, name).value += 1
    assert tx.outcome == "rolled back"


def in_a_thread(work: Callable[..., object], *args: Any) -> None:
    """Another application's transaction, while one is open here."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work, *args).result(60)


def add(cluster: Cluster, name: str, n: int) -> None:
    with cluster.client().transaction() as tx:
        tx.get(Counter, name).value += n


def _is_active(cluster: Cluster, name: str, node: str) -> bool:
    return cluster.active_for(Counter, name) == node
