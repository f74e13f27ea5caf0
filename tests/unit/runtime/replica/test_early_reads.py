"""What a replica shows before its log has it (R1, R5, R6), on real nodes in one process: the log takes nothing, and a
local read there sees what was acknowledged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import halog
from halog.core import effects as fx
from halog.core.ids import EpochId
from halog.errors import DeadlineError
from halog.runtime.host.push_batches import Pushes
from halog.runtime.replica.driver import Copy
from halog.runtime.rpc import frames
from halog.testing.cluster import Cluster, wait_until
from halog.transactions.node import Node
from tests.unit.counting import Counter
from tests.unit.runtime.host.test_faults import add, copy_on
from tests.unit.runtime.replica.unlogged import level, log_of, running

pytestmark = pytest.mark.feature("R6", "R1")

EPOCH = EpochId(1, "here", 0)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """No message of the log is on its way."""
    with running() as made:
        level(made)
        yield made


def replica_of(cluster: Cluster) -> tuple[Copy, Any]:
    (name,) = set(cluster.names) - {cluster.active_for(Counter, "c")}
    return copy_on(cluster, name), cluster.node(name)


def read_at(node: Node, after: halog.Token | None = None) -> tuple[int, halog.Token]:
    with node.transaction(read="local", after=after or ()) as tx:
        value = tx.get(Counter, "c").value
    return value, tx.token


@pytest.mark.feature("R5")
def test_a_local_read_shows_what_was_acknowledged_while_the_log_is_away(cluster: Cluster) -> None:
    copy, there = replica_of(cluster)
    logged = copy.core.state.chain.state.lsn
    cluster.broker.hold(log_of(cluster))
    assert [add(cluster) for _ in range(3)] == [1, 2, 3]
    wait_until(lambda: read_at(there)[0] == 3, "it shows the last one, too")
    assert copy.core.state.chain.state.lsn == logged
    assert not copy.has(logged + 1), "a barrier's reader needs what the log has"
    assert next(iter(copy.objects.scan(b""))).version == logged + 3
    cluster.broker.release(log_of(cluster))
    wait_until(lambda: copy.has(logged + 3), "the log has it")
    assert read_at(there)[0] == 3


@pytest.mark.feature("R5")
def test_a_session_need_not_wait_for_the_log(cluster: Cluster) -> None:
    """It is served by the replica as soon as that shows what the session has seen, at whichever node; and waits in vain
    for what nobody shows."""
    copy, there = replica_of(cluster)
    cluster.broker.hold(log_of(cluster))
    with cluster.client().transaction() as tx:
        tx.get(Counter, "c").value += 1
    value, token = read_at(there, tx.token)
    assert (value, token) == (1, tx.token)
    assert copy.core.state.chain.state.lsn < tx.token.positions[copy.name]
    there.backend.asker.call_s = 1.0
    with pytest.raises(DeadlineError, match="did not reach"):
        read_at(there, halog.Token({copy.name: tx.token.positions[copy.name] + 1}))
    cluster.broker.release(log_of(cluster))


@pytest.mark.feature("P10")
def test_whoever_takes_over_has_stored_what_it_showed(cluster: Cluster) -> None:
    copy, there = replica_of(cluster)
    cluster.broker.hold(log_of(cluster))
    assert [add(cluster) for _ in range(2)] == [1, 2]
    wait_until(lambda: read_at(there)[0] == 2, "shown")
    shown = read_at(there)[1]
    cluster.kill(cluster.active_for(Counter, "c"))
    cluster.broker.drop_held(log_of(cluster))
    wait_until(lambda: copy.serving, "it takes over")
    assert copy.has(shown.positions[copy.name])
    assert read_at(there)[0] == 2
    assert add(cluster) == 3


# --- frames ---


def sent_by(*pushes: fx.Push) -> list[frames.RecordPush]:
    sent: list[frames.RecordPush] = []

    def offer(node: str, data: bytes) -> None:
        frame = frames.decode_incoming(data)
        assert isinstance(frame, frames.RecordPush)
        sent.append(frame)

    collected = Pushes(offer, 5_000_000)
    for push in pushes:
        collected.add("p", push)
    collected.flush()
    return sent


def test_a_frame_has_the_last_of_what_its_pushes_say_is_shown() -> None:
    one, two = (fx.Push(("B",), EPOCH, data, shown) for data, shown in ((b"one", 1), (b"two", 2)))
    assert sent_by(one, two) == [frames.RecordPush("p", EPOCH, [b"one", b"two"], 2)]


def test_an_index_alone_is_a_frame_without_records() -> None:
    alone = fx.Push(("B",), EPOCH, b"", 3)
    assert sent_by(alone) == [frames.RecordPush("p", EPOCH, [], 3)]
    assert sent_by(fx.Push(("B",), EPOCH, b"one", 2), alone) == [frames.RecordPush("p", EPOCH, [b"one"], 3)]
