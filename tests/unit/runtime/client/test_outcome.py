"""`node.outcome(tx)`: what became of a transaction whose commit nobody answered (R4, R5, D4)."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import pytest

from halog import aio
from halog.adapters.memory import Fault
from halog.core import results as res
from halog.errors import (
    AvailabilityError,
    ClosedError,
    ConflictError,
    DeadlineError,
    NoTransactionError,
    OutcomeUnknownError,
    OverloadedError,
    UnreachableError,
    mark_unsent,
)
from halog.runtime.client.commits import Commits
from halog.runtime.node.paces import Paces
from halog.runtime.rpc import frames
from halog.runtime.rpc.request import Request
from halog.testing.cluster import Cluster, wait_until
from halog.testing.nodes import MemoryNode
from tests.unit.counting import REGISTRY, Counter
from tests.unit.requests import asks
from tests.unit.runtime.client.test_outcome_by_id import add_one, elect_another
from tests.unit.runtime.client.test_spanning import apart, create, nothing_in_doubt, values
from tests.unit.runtime.conftest import started

pytestmark = pytest.mark.feature("R4", "R5")

SOON_S = 12.0
"""Before a call's deadline of 15 s, on a busy machine, too."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with started(60_000, Paces(abort_s=0.3)) as made:  # nobody else has doubts
        yield made


def test_what_an_error_says_itself_is_not_asked_for_and_what_is_no_transaction_is_named(cluster: Cluster) -> None:
    """As by a handler of all of halog's errors; and by one that kept the id alone."""
    client = cluster.client()
    assert client.outcome(ConflictError("changed meanwhile")) == "did not happen"
    for wrong in ("00" * 16, b"\0" * 16, None, ValueError("x")):
        with pytest.raises(TypeError, match=f"takes a transaction, or the error .* not {type(wrong).__name__}"):
            client.outcome(wrong)  # type: ignore[arg-type]


def mute(client: Any, *, arrives: bool) -> Fault:
    """From now on its commits have no answers, whether they arrive or not, nor has what it asks about them; until the
    fault that is returned is ended."""
    acts = asks(frames.Submit, frames.Decide, frames.PrepareRequest)
    silent = DeadlineError("did not reply in 1 s")
    muted: Fault = client.backend.router.channel.faults.fail("request", silent, acts, lands=arrives)
    return muted


def unknown(client: Any, names: list[str], muted: Fault) -> tuple[Any, OutcomeUnknownError]:
    with pytest.raises(OutcomeUnknownError, match=r"node\.outcome") as told, client.transaction() as tx:
        usual = client.backend.asker.call_s
        add_one(client, tx, *names)
    muted.end()
    client.backend.asker.call_s = usual
    assert tx.outcome == "unknown"
    return tx, told.value


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.feature("D4"))])
@pytest.mark.parametrize("by", ["transaction", "error", "error elsewhere", "event loop"])
def test_what_happened_is_said_to_have(cluster: Cluster, count: int, by: str) -> None:
    names = apart(cluster)[:count]
    create(cluster, names)
    client: Any = cluster.client()
    tx, error = unknown(client, names, mute(client, arrives=True))
    began = time.monotonic()
    if by == "event loop":
        node = aio.Node(client)
        assert asyncio.run(node.outcome(aio.Transaction(node, tx))) == "happened"
    elif by == "transaction":
        assert client.outcome(tx) == "happened"
    else:
        assert (cluster.client() if by == "error elsewhere" else client).outcome(error) == "happened"
    assert time.monotonic() - began < SOON_S
    assert tx.outcome == ("committed" if by in ("transaction", "event loop") else "unknown")
    assert values(cluster, names) == [101] * count


@pytest.mark.feature("D4")
@pytest.mark.parametrize("by_error", [False, True])
def test_over_several_partitions_it_is_settled_by_asking(cluster: Cluster, by_error: bool) -> None:
    """Long before anybody else is in doubt; and what was not decided then never will be."""
    names = apart(cluster, 3)
    create(cluster, names)
    client: Any = cluster.client()
    tx, error = unknown(client, names, mute(client, arrives=False))
    began = time.monotonic()
    assert client.outcome(error if by_error else tx) == "did not happen"
    assert time.monotonic() - began < SOON_S
    assert client.outcome(tx) == "did not happen", "and so it stays"
    assert tx.outcome == "rolled back"
    nothing_in_doubt(cluster, names)
    assert values(cluster, names) == [100] * 3


def test_within_one_it_is_unknown_until_another_epoch(cluster: Cluster) -> None:
    """Nobody can say before that it will not arrive."""
    names = apart(cluster)[:1]
    create(cluster, names)
    client: Any = cluster.client()
    tx, _ = unknown(client, names, mute(client, arrives=False))
    client.backend.asker.call_s = 0.6
    began = time.monotonic()
    assert client.outcome(tx) == "unknown"
    assert 0.4 < time.monotonic() - began < SOON_S, "it is waited for"
    elect_another(cluster, names[0], client)
    assert client.outcome(tx) == "did not happen"
    assert tx.outcome == "rolled back"
    assert values(cluster, names) == [100]


def test_it_is_waited_for(cluster: Cluster) -> None:
    names = apart(cluster)[:1]
    create(cluster, names)
    client: Any = cluster.client()
    tx, _ = unknown(client, names, mute(client, arrives=False))
    other = threading.Timer(0.5, lambda: elect_another(cluster, names[0], cluster.client()))
    began = time.monotonic()
    other.start()
    assert client.outcome(tx) == "did not happen"
    other.join()
    assert 0.4 < time.monotonic() - began < SOON_S


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.feature("D4"))])
def test_where_nobody_is_there_to_say_that_is_the_answer(cluster: Cluster, count: int) -> None:
    names = apart(cluster)[:count]
    create(cluster, names)
    client: Any = cluster.client()
    tx, _ = unknown(client, names, mute(client, arrives=True))
    refused, usual = UnreachableError("refused", sent=False), client.backend.asker.call_s
    client.backend.asker.call_s = 0.6
    with (
        client.backend.router.channel.faults.fail("request", refused),
        pytest.raises(AvailabilityError) as told,
    ):
        client.outcome(tx)
    client.backend.asker.call_s = usual
    assert told.value.happened is False
    assert tx.outcome == "unknown"
    assert client.outcome(tx) == "happened"


def test_an_interrupted_commit_can_be_asked_about(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    names = apart(cluster)[:1]
    create(cluster, names)
    client: Any = cluster.client()
    real = client.backend.commit

    def commit(*args: Any) -> Any:
        real(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(client.backend, "commit", commit)
    with pytest.raises(KeyboardInterrupt), client.transaction() as tx:
        tx.get(Counter, names[0]).value += 1
    assert tx.outcome == "unknown"
    assert client.outcome(tx) == "happened"


class Interrupted(BaseException):
    """As Ctrl-C is, or what a library for time limits raises."""


@contextmanager
def interruptible(
    by: BaseException | type[BaseException] = Interrupted, *, between_attempts: bool = False
) -> Iterator[None]:
    """The main thread, once, soon after it meets what it is to be interrupted in; `between_attempts`: as soon as it is
    at no attempt. One that is begun and has not come to the channel yet counts as sent."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        if between_attempts and is_at_an_attempt(frame):
            signal.setitimer(signal.ITIMER_REAL, 0.002)
            return
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        raise by

    others = signal.setitimer(signal.ITIMER_REAL, 0)  # pytest's, for tests that take too long
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *others)


def is_at_an_attempt(frame: FrameType | None) -> bool:
    """Is a request marked as presented, and not settled yet?"""
    while frame is not None and frame.f_code is not Request._asked.__code__:
        frame = frame.f_back
    return frame is not None


def interrupt_soon() -> None:
    if signal.getitimer(signal.ITIMER_REAL)[0] == 0:
        signal.setitimer(signal.ITIMER_REAL, 0.3)


def refused(data: bytes) -> NoReturn:
    interrupt_soon()
    raise UnreachableError("refused", sent=False)


def not_connected(data: bytes) -> NoReturn:
    try:
        interrupt_soon()
        time.sleep(30)
    except Interrupted as error:
        mark_unsent(error, data)
        raise
    raise AssertionError


def not_answered(data: bytes) -> NoReturn:
    interrupt_soon()
    time.sleep(30)
    raise AssertionError


@pytest.mark.parametrize("count", [1, pytest.param(3, marks=pytest.mark.feature("D4"))])
@pytest.mark.parametrize(
    ("meets", "which", "outcome"),
    [
        (refused, "all", "rolled back"),
        (refused, "last", "rolled back"),
        (not_connected, "all", "rolled back"),
        (not_connected, "last", "rolled back"),
        (not_answered, "last", "unknown"),
    ],
)
def test_what_was_never_sent_did_not_happen_also_where_it_is_interrupted(
    cluster: Cluster, meets: Callable[[bytes], NoReturn], which: str, outcome: str, count: int
) -> None:
    """At once: nobody need be asked. Of several partitions only the last vote can make it happen."""
    names = apart(cluster, 3)[:count]
    create(cluster, names)
    client: Any = cluster.client()
    channel = client.backend.router.channel
    real = channel.request

    def request(address: str, data: bytes, timeout: float) -> Any:
        r = frames.decode_incoming(data)
        last = isinstance(r, frames.Submit) or (isinstance(r, frames.PrepareRequest) and r.last)
        if last or (which == "all" and isinstance(r, frames.PrepareRequest)):
            meets(data)
        return real(address, data, timeout)

    with pytest.raises(Interrupted), client.transaction() as tx:
        for name in names:
            tx.get(Counter, name).value += 1
        channel.request = request
        with interruptible(between_attempts=meets is refused):
            tx.commit()
    assert tx.outcome == outcome
    asked: list[bytes] = []
    channel.request = lambda address, data, timeout: asked.append(data) or real(address, data, timeout)
    if outcome == "rolled back":
        assert client.outcome(tx) == "did not happen"
        assert asked == []
        nothing_in_doubt(cluster, names)
        assert values(cluster, names) == [100] * count


def test_one_instance_that_interrupts_twice_leaves_unknown_what_was_sent_by_then(cluster: Cluster) -> None:
    """Of a handler that raises the same object each time: first while nobody is connected, then behind the sending."""
    (name,) = apart(cluster)[:1]
    create(cluster, [name])
    client: Any = cluster.client()
    channel, always = client.backend.router.channel, Interrupted()
    real = channel.request
    for meets, outcome in ((not_connected, "rolled back"), (not_answered, "unknown")):

        def request(address: str, data: bytes, timeout: float, meets: Callable[[bytes], NoReturn] = meets) -> Any:
            if isinstance(frames.decode_incoming(data), frames.Submit):
                meets(data)
            return real(address, data, timeout)

        with pytest.raises(Interrupted), client.transaction() as tx:
            tx.get(Counter, name).value += 1
            channel.request = request
            with interruptible(always):
                tx.commit()
        channel.request = real
        assert tx.outcome == outcome


def test_where_this_node_becomes_active_before_anything_was_sent_a_refusal_is_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing may have happened before, so nothing is unknown."""
    names = apart(cluster)[:1]
    create(cluster, names)
    node: Any = cluster.node(cluster.active_for(Counter, names[0]))
    asker, real = node.backend.asker, node.backend.asker.serving
    turns: list[None] = []
    monkeypatch.setattr(asker, "serving", lambda partition: turns.pop() if turns else real(partition))
    monkeypatch.setattr(Commits, "_here", lambda *args: res.Busy(1, "commits"))
    asker.call_s = 0.3
    with pytest.raises(OverloadedError), node.transaction() as tx:
        tx.get(Counter, names[0]).value += 1
        turns.append(None)
    assert tx.outcome == "rolled back"


def test_what_ended_with_an_answer_asks_nobody() -> None:
    with MemoryNode(registry=REGISTRY) as node:
        with node.transaction() as done:
            done.create(Counter("a"))
        with pytest.raises(ConflictError), node.transaction() as undone:
            raise ConflictError("a method's")
        node.backend.unreachable = True
        assert node.outcome(done) == "happened"
        assert node.outcome(undone) == "did not happen"
        tx = node.transaction()
        with pytest.raises(NoTransactionError, match="no outcome yet: it is new"):
            node.outcome(tx)
        with pytest.raises(NoTransactionError, match="names no transaction"):
            node.outcome(OutcomeUnknownError("a znode"))
    with pytest.raises(ClosedError):
        node.outcome(done)


def test_a_load_that_is_unknown_can_be_asked_about(cluster: Cluster) -> None:
    client: Any = cluster.client()
    usual, muted = client.backend.asker.call_s, mute(client, arrives=True)
    client.backend.asker.call_s = 0.6
    with pytest.raises(OutcomeUnknownError) as told:
        client.load([Counter("a", 1)])
    muted.end()
    client.backend.asker.call_s = usual
    assert client.outcome(told.value) == "happened"
    wait_until(lambda: values(cluster, ["a"]) == [1], "it is not there")
