"""A log that has lost its end, and went on with what another node had: whose copy held it keeps it (R6, P10)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from halog.adapters.memory import Attempt, MemoryLog
from halog.core.ids import digest
from halog.core.log.chain import ChainState
from halog.errors import LogError
from halog.ports import TopicPartition
from halog.runtime.host import assignment as placing
from halog.runtime.replica.recovery import lost
from halog.runtime.store.object_table import ObjectTable, StoredPosition
from halog.testing.cluster import Cluster, wait_until
from tests.unit.runtime.host.test_faults import REGISTRY, Counter, add, copy_on, host_of

pytestmark = pytest.mark.feature("R6", "P10")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, partitions=1, registry=REGISTRY) as cluster:
        with cluster.client().transaction() as tx:
            tx.create(Counter("c"))
        cluster.settle()
        yield cluster


@pytest.mark.parametrize("more", [1, 20], ids=["the log is shorter than it was", "the log is longer than it was"])
def test_a_copy_that_holds_what_the_log_lost_is_kept_though_others_went_on(cluster: Cluster, more: int) -> None:
    """By a node that was down meanwhile: it has nothing of that, and knows of no loss."""
    behind = next(n for n in cluster.names if n != cluster.active_for(Counter, "c"))
    name = cluster.partition_of(Counter, "c")
    table = cluster.tables()[name]
    tp = TopicPartition(table.topic, table.index)
    others = [n for n in cluster.names if n != behind]
    states = lambda: {copy_on(cluster, n).core.state.chain.state.lsn for n in cluster.names}  # noqa: E731
    wait_until(lambda: len(states()) == 1, "they are level")
    copy_on(cluster, behind).save()
    cluster.kill(behind)
    cluster.settle()
    end = cluster.broker.shelf(tp).end
    assert [add(cluster) for _ in range(10)][-1] == 10
    for other in others:
        copy_on(cluster, other).save()
        cluster.kill(other)
    cluster.broker.truncate(tp, end)
    cluster.restart(behind)
    cluster.settle()
    assert [add(cluster) for _ in range(more)][-1] == more
    for other in others:
        cluster.restart(other)
        copy = host_of(cluster, other).copies[name]
        assert "nothing was deleted here" in str(copy.error)
        assert list(copy.objects.scan(b""))
    assert add(cluster) == more + 1


def test_one_that_is_hosted_there_no_more_is_kept_and_it_is_said_why(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It moved away while the node was down, and may be all that is left: nobody would find it otherwise."""
    name, gone = cluster.partition_of(Counter, "c"), "C"
    copy_on(cluster, gone).save()
    cluster.kill(gone)
    cluster.settle()
    cluster.node("A").runtime.operators.migrate(name, ("A", "B"), 1, wait_s=20.0)
    why = "what was read here is not in it any more"
    monkeypatch.setattr(placing, "lost", lambda log, copy, stored, log_id: LogError(why, partition=name))
    drops: list[str] = []
    monkeypatch.setattr(ObjectTable, "drop", lambda self: drops.append(name))
    with caplog.at_level("ERROR", "halog.host"):
        cluster.restart(gone)
    assert not drops
    (said,) = [r.getMessage() for r in caplog.records if why in r.getMessage()]
    assert said.startswith(f"partition {name}: hosted here no more, and its copy is kept")


TP = TopicPartition("t", 0)
LOG_ID = b"\x01" * 16
COPY: Any = SimpleNamespace(name="p", tp=TP)


def written(values: Sequence[bytes]) -> MemoryLog:
    log = MemoryLog()
    log.ensure_topic("t", 1)
    session = log.session()
    for value in values:
        session.append(TP, value, lambda offset, why: None)
    wait_until(lambda: session.poll(0.01) >= 0 and log.bounds(TP)[1] == len(values), "all are written")
    return log


def read_up_to(value: bytes, at: int) -> StoredPosition:
    return StoredPosition(ChainState(LOG_ID, "w", lsn=3, hash=digest(value)), at + 1, at, b"")


@pytest.mark.parametrize(
    ("values", "is_lost"),
    [
        ([b"a", b"b", b"c", b"d"], False),
        ([b"a", b"b", b"b", b"c", b"d"], False),  # a mirror brought one twice when it brought them again
        ([b"a", b"c", b"x", b"d"], False),
        ([b"a", b"b", b"x", b"d"], True),
        ([b"a", b"b"], True),
    ],
)
def test_only_what_stands_nowhere_in_the_log_is_lost(values: list[bytes], is_lost: bool) -> None:
    found = lost(written(values), COPY, read_up_to(b"c", 2), LOG_ID.hex())
    assert (found is not None) == is_lost


def test_of_another_log_of_that_name_nothing_is_lost() -> None:
    assert lost(written([b"x"] * 4), COPY, read_up_to(b"c", 2), "ff" * 16) is None


def test_what_is_trimmed_between_the_look_and_the_read_is_not_lost() -> None:
    log = written([b"a", b"b", b"c", b"d", b"e"])

    def trims(attempt: Attempt[tuple[int, int]]) -> tuple[int, int]:
        found = attempt.land()
        log.trim(TP, 4)  # the active node has a snapshot
        return found

    log.broker.faults.add("bounds", trims, times=1)
    assert lost(log, COPY, read_up_to(b"c", 2), LOG_ID.hex()) is None
