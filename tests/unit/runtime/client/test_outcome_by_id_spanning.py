"""What is asked by its id of a transaction over several partitions behind an unknown outcome: its first partition,
which the evidence names, knows (R4, R5, D4)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest

from halog.adapters.memory import Attempt, Fault
from halog.errors import DeadlineError, OutcomeUnknownError
from halog.runtime.client import two_phase as spanning
from halog.runtime.rpc import frames
from halog.testing.cluster import Cluster, wait_until
from tests.unit.counting import Counter
from tests.unit.requests import asks
from tests.unit.runtime.client.test_late_requests import in_a_thread
from tests.unit.runtime.client.test_outcome_by_id import add_one, elect_another
from tests.unit.runtime.client.test_spanning import apart, create, nothing_in_doubt, values
from tests.unit.runtime.conftest import started

pytestmark = pytest.mark.feature("R4", "R5", "D4")

OVER = [101, 101]
NOT = [100, 100]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(spanning, "ABORT_S", 0.3)
    with started(300) as made:
        yield made


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Where nobody asks for long what became of a vote."""
    monkeypatch.setattr(spanning, "ABORT_S", 0.3)
    with started(60_000) as made:
        yield made


class Unknown(NamedTuple):
    """A transaction whose last vote, and the question what became of it, had no answer."""

    names: list[str]
    first: str
    tx: bytes
    evidence: dict[str, Any]
    late: Fault
    channel: Any

    def arrives(self, n: int) -> Any:
        return frames.decode_reply(self.channel.deliver(self.late.met[n].about, 2.0))

    def outcome(self, cluster: Cluster, epoch: int) -> str:
        operators: Any = cluster.node(cluster.active_for(Counter, self.names[0])).runtime.operators
        said: str = operators.outcome(self.first, self.tx, epoch)
        return said


def unknown(cluster: Cluster, *, landed: bool, elects: bool = False) -> Unknown:
    """`landed`: the last vote came to something; `elects`: behind it another node leads the first partition."""
    names = sorted(apart(cluster, 2), key=lambda n: cluster.partition_of(Counter, n))
    create(cluster, names)
    client: Any = cluster.client()
    channel = client.backend.router.channel

    def request(attempt: Attempt[bytes]) -> bytes:
        if landed:
            attempt.land()
        if elects and len(late.met) == 1:
            in_a_thread(partial(elect_another, cluster, names[0], client))
        raise DeadlineError("did not reply in 1 s")

    late = channel.faults.add("request", request, asks(frames.PrepareRequest))
    channel.faults.fail("request", DeadlineError("did not reply in 1 s"), asks(frames.Decide))
    with pytest.raises(OutcomeUnknownError) as caught, client.transaction() as tx:
        add_one(client, tx, *names)
    assert tx.outcome == "unknown"
    first = cluster.partition_of(Counter, names[0])
    assert caught.value.evidence["partition"] == first
    return Unknown(names, first, tx.id, caught.value.evidence, late, channel)


def epoch_of(data: bytes) -> int:
    r = frames.decode_incoming(data)
    assert isinstance(r, frames.PrepareRequest)
    return r.epoch


def test_what_happened_is_said_to_have(cluster: Cluster) -> None:
    it = unknown(cluster, landed=True)
    assert it.outcome(cluster, it.evidence["epoch"]) == "happened"
    assert values(cluster, it.names) == OVER


def test_the_other_partitions_settle_it_when_they_have_waited(cluster: Cluster) -> None:
    """By `doubt_timeout_ms` they have the first one give it up; a vote that arrives then does nothing any more."""
    it = unknown(cluster, landed=False)
    epoch = it.evidence["epoch"]
    wait_until(lambda: it.outcome(cluster, epoch) == "did not happen", "it is not settled")
    client: Any = cluster.client()
    assert client.backend.router.epoch(it.first) <= epoch, "in the same epoch"
    assert isinstance(it.arrives(-1), frames.ErrorReply)
    assert it.outcome(cluster, epoch) == "did not happen"
    nothing_in_doubt(cluster, it.names)
    assert values(cluster, it.names) == NOT


def test_a_last_vote_that_is_still_under_way_is_unknown_until_a_later_epoch(patient: Cluster) -> None:
    """Nobody who asks is told that it did not happen while it may; then it does nothing any more."""
    it = unknown(patient, landed=False)
    epoch = it.evidence["epoch"]
    assert epoch == max(epoch_of(a.about.frame) for a in it.late.met)
    assert it.outcome(patient, epoch) == "unknown"
    elect_another(patient, it.names[0], patient.client())
    assert it.outcome(patient, epoch) == "did not happen"
    assert it.arrives(-1).error == "NotActiveError"
    assert it.outcome(patient, epoch) == "did not happen"


def test_the_epoch_is_the_highest_that_a_vote_was_asked_for(patient: Cluster) -> None:
    it = unknown(patient, landed=False, elects=True)
    epochs = [epoch_of(a.about.frame) for a in it.late.met]
    assert it.evidence["epoch"] == epochs[-1] > epochs[0]
    assert it.outcome(patient, epochs[0]) == "did not happen", "under a lower one that is wrong"
    assert it.outcome(patient, it.evidence["epoch"]) == "unknown"
    assert isinstance(it.arrives(-1), frames.CommitReply)
    assert it.outcome(patient, it.evidence["epoch"]) == "happened"
    assert values(patient, it.names) == OVER
