"""What is asked again while its first attempt runs is not begun a second time; and whatever a method raises is its
answer (R5)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from halog import aio, errors
from halog.adapters.memory import Attempt
from halog.backend import CommittedObject
from halog.core.ids import Member
from halog.errors import DeadlineError, HalogError, RefusedError, RemoteCallError
from halog.runtime.replica.repeated_requests import KEPT_BYTES, KEPT_S, RepeatedRequest, RepeatedRequests
from halog.runtime.rpc import frames
from halog.schema import Registry, managed
from halog.testing.cluster import Cluster, wait_until
from tests.unit.requests import asks

pytestmark = pytest.mark.feature("R5")

REGISTRY = Registry()
RUNS: list[str] = []
ATTEMPT_S = 0.2
AT_ONCE_S = 20.0
"""An answer that takes no second attempt, on a busy machine."""


class TimedOut(BaseException):
    """As a library for time limits has it."""


class Unsayable(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise TimedOut


class Endless(BaseException):
    def __str__(self) -> str:
        return self.__str__()


RAISED: dict[str, Callable[[], BaseException]] = {
    "CancelledError": lambda: asyncio.CancelledError("given up"),
    "TimedOut": lambda: TimedOut("given up"),
    "KeyboardInterrupt": lambda: KeyboardInterrupt("given up"),
    "GeneratorExit": lambda: GeneratorExit("given up"),
    "SystemExit": lambda: SystemExit("given up"),
    "BaseExceptionGroup": lambda: BaseExceptionGroup("given up", [TimedOut()]),
    "OSError": lambda: OSError("given up \udcff"),
    "OverflowError": lambda: OverflowError(2**70, "given up"),
    "MemoryError": lambda: MemoryError("given up" * 4_000_000),
    "Unsayable": lambda: Unsayable("given up"),
    "Endless": lambda: Endless("given up"),
}


@managed(key="name", registry=REGISTRY)
class Job:
    name: str
    n: int = 0

    def slow(self, seconds: float) -> int:
        RUNS.append(self.name)
        time.sleep(seconds)
        self.n += 1
        return self.n

    def refuse(self, how: str) -> int:
        RUNS.append(how)
        raise RAISED[how]()

    def text(self, size: int) -> str:
        RUNS.append("text")
        return "x" * size


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    RUNS.clear()
    made = Cluster(2, partitions=2, registry=REGISTRY)
    timing = replace(made.config.timing, attempt_timeout_ms=int(ATTEMPT_S * 1000), call_deadline_ms=60_000)
    made.config = replace(made.config, timing=timing).validate()
    with made.start():
        yield made


@pytest.fixture
def client(cluster: Cluster) -> Any:
    made = cluster.client()
    with made.transaction():
        made.create(Job("a"))
    return made


@pytest.mark.parametrize("attempts", [0.5, 1.5, 6.0])
def test_a_method_that_takes_longer_than_an_attempt_runs_once_and_its_result_comes_back(
    client: Any, attempts: float
) -> None:
    with client.transaction():
        assert client.get(Job, "a").slow(attempts * ATTEMPT_S) == 1
    assert RUNS == ["a"]
    with client.transaction():
        assert client.get(Job, "a").n == 1


def test_each_call_runs_though_another_one_like_it_is_under_way(cluster: Cluster, client: Any) -> None:
    """The same method of the same object with the same arguments: two calls all the same."""
    other = cluster.client()

    def call(node: Any) -> None:
        with node.transaction() as tx:
            node.get(Job, "a").slow(3 * ATTEMPT_S)
            tx.rollback()

    threads = [threading.Thread(target=call, args=(node,)) for node in (client, client, other)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert RUNS == ["a"] * 3


def test_a_method_that_takes_longer_than_anybody_waits_has_not_happened(cluster: Cluster, client: Any) -> None:
    client.backend.asker.call_s = 15 * ATTEMPT_S
    began = time.monotonic()
    said = r"not done with method slow .* nothing was changed"
    with pytest.raises(DeadlineError, match=said) as told, client.transaction() as tx:
        client.get(Job, "a").slow(30 * ATTEMPT_S)
    assert time.monotonic() - began < 30 * ATTEMPT_S + AT_ONCE_S
    assert told.value.happened is False
    assert (tx.outcome, RUNS) == ("rolled back", ["a"])


def test_an_event_loop_calls_it_once(client: Any) -> None:
    async def main() -> int:
        node = aio.Node(client)
        async with node.transaction() as tx:
            job = await tx.get(Job, "a")
            return await tx.call(job.slow, 3 * ATTEMPT_S)

    assert asyncio.run(main()) == 1
    assert RUNS == ["a"]


@pytest.mark.parametrize("how", RAISED)
def test_whatever_a_method_raises_comes_back_at_once_by_name(client: Any, how: str) -> None:
    began = time.monotonic()
    with pytest.raises(BaseException) as told, client.transaction():
        client.get(Job, "a").refuse(how)
    assert how in f"{type(told.value).__name__}: {told.value}"
    assert isinstance(told.value, HalogError | SystemExit)
    if isinstance(told.value, RemoteCallError):
        assert told.value.happened is False
        assert "in refuse" in told.value.evidence["traceback"] or how == "MemoryError"
    assert time.monotonic() - began < AT_ONCE_S
    assert RUNS.copy() == [how]


class Failing(BaseException):
    """As `pytest.fail` has it."""


OWN: dict[str, Callable[[], BaseException]] = {
    "KeyboardInterrupt": lambda: KeyboardInterrupt("given up"),
    "Failing": lambda: Failing("given up"),
    "SystemExit": lambda: SystemExit(3),
    "GeneratorExit": lambda: GeneratorExit("given up"),
    "TimedOut": lambda: TimedOut("given up"),
}


@pytest.mark.parametrize("becomes", [False, True], ids=["is active", "has just become active"])
@pytest.mark.parametrize("how", OWN)
def test_what_is_no_exception_in_the_callers_own_thread_goes_through_as_it_is(
    cluster: Cluster, client: Any, how: str, becomes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the process's, as Ctrl-C is."""
    raised = OWN[how]()
    monkeypatch.setitem(RAISED, how, lambda: raised)
    node = cluster.node(cluster.active_for(Job, "a"))
    if becomes:
        monkeypatch.setattr(node.backend, "is_active", lambda partition: False)  # the last time that it looked
    with node.transaction() as tx:
        job = node.get(Job, "a")
        with pytest.raises(type(raised)) as told:
            job.refuse(how)
        assert told.value is raised
        monkeypatch.undo()
        assert job.slow(0.0) == 1, "the transaction goes on as before the call"
        tx.rollback()
    assert RUNS.copy() == [how, "a"]


@pytest.mark.parametrize(
    "how", ["NotActiveError", "LockedError", "RemappedError", "OverloadedError", "UnreachableError"]
)
def test_what_the_library_itself_would_ask_again_for_is_an_answer_where_a_method_raises_it(
    client: Any, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a node that is not active has no answer; the method says nothing of that."""
    cls = getattr(errors, how)
    monkeypatch.setitem(RAISED, how, lambda: cls("given up"))
    began = time.monotonic()
    with pytest.raises(cls, match="given up"), client.transaction():
        client.get(Job, "a").refuse(how)
    assert RUNS.copy() == [how]
    assert time.monotonic() - began < AT_ONCE_S


def test_a_result_that_fits_no_frame_is_told_at_once(client: Any) -> None:
    began = time.monotonic()
    with pytest.raises(HalogError, match="frame") as told, client.transaction():
        client.get(Job, "a").text(20_000_000)
    assert told.value.happened is False
    assert time.monotonic() - began < 2 * AT_ONCE_S
    assert RUNS == ["text"]


def test_an_answer_that_is_lost_is_given_again(cluster: Cluster, client: Any) -> None:
    """The connection broke when the method had run."""
    channel = client.backend.router.channel

    def broken(attempt: Attempt[bytes]) -> Any:
        attempt.land()
        channel.drop(attempt.about.address)
        return attempt.land()

    lost = channel.faults.add("request", broken, asks(frames.Invoke), times=1)
    with client.transaction():
        assert client.get(Job, "a").slow(0.0) == 1
    assert lost.ended
    assert RUNS == ["a"]


@pytest.mark.feature("Q5")
def test_a_hand_over_that_takes_longer_than_an_attempt_is_asked_for_once(
    cluster: Cluster, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked again it finds the role where it was to be: that is no refusal."""
    partition, active = cluster.partition_of(Job, "a"), cluster.active_for(Job, "a")
    (other,) = set(cluster.names) - {active}
    copy = cluster.node(active).runtime.copies[partition]
    real, asked = copy.hand_over, list[str]()

    def hand_over(to: str, answer: Any, why: str) -> None:
        asked.append(to)

        def late(result: Any) -> None:
            timer = threading.Timer(2 * ATTEMPT_S, lambda: answer(result))
            timer.start()

        real(to, late, why)

    monkeypatch.setattr(copy, "hand_over", hand_over)
    client.runtime.operators.hand_over(partition, other)
    assert asked == [other]
    assert cluster.active_for(Job, "a") == other
    with pytest.raises(RefusedError, match="already"):
        client.runtime.operators.hand_over(partition, other)


@pytest.mark.feature("P13")
def test_objects_are_moved_by_one_request_however_long_that_takes(
    cluster: Cluster, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition, active = cluster.partition_of(Job, "a"), cluster.active_for(Job, "a")
    service = cluster.node(active).runtime.service
    asked: list[str] = []

    def move(name: str, keys: Any, versions: Any = None) -> frames.MoveReply:
        asked.append(name)
        time.sleep(4 * ATTEMPT_S)
        return frames.MoveReply(1, 0)

    assert service.mover is not None
    monkeypatch.setattr(service.mover, "move", move)
    client.backend.mover.gather(partition, [b"some"])
    assert asked == [partition]


def test_a_notifier_that_ends_its_task_ends_no_other_notifier(cluster: Cluster, client: Any) -> None:
    heard: list[str] = []

    def harmful(change: Any) -> None:
        heard.append("harmful")
        raise SystemExit(1)

    active = cluster.active_for(Job, "a")
    (other,) = set(cluster.names) - {active}
    node = cluster.node(other)
    node.partitions.notify(harmful)
    node.partitions.notify(lambda change: heard.append("other"))
    client.runtime.operators.hand_over(cluster.partition_of(Job, "a"), other)
    wait_until(lambda: heard.count("other") > 1, "the other notifier is called")
    assert heard.count("harmful") > 1


# --- the table of what runs ---


class _Peer:
    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.remote = "somebody"

    def send(self, frame: bytes) -> None:
        self.sent.append(frame)


@pytest.fixture
def repeats() -> Any:
    made: Any = RepeatedRequests(lambda: made.now)
    made.now = 0.0
    return made


def _begun(repeats: RepeatedRequests, peer: Any, number: bytes = b"1", node: str = "A") -> RepeatedRequest:
    call = repeats.begin(Member(node, 1), number, peer)
    assert call is not None
    return call


def _again(repeats: RepeatedRequests, peer: Any, number: bytes = b"1", node: str = "A") -> Any:
    return repeats.begin(Member(node, 1), number, peer)


def test_an_answer_goes_to_all_who_ask_and_to_who_asks_later(repeats: Any) -> None:
    one, two, three = _Peer(), _Peer(), _Peer()
    call = _begun(repeats, one)
    assert _again(repeats, two) is None
    assert _begun(repeats, _Peer(), node="B") is not call, "another node's request is another one"
    call.answer(frames.Confirmation())
    assert _again(repeats, three) is None
    assert [len(p.sent) for p in (one, two, three)] == [1, 1, 1]


def test_a_refusal_is_not_kept(repeats: Any) -> None:
    peer = _Peer()
    _begun(repeats, peer).answer(frames.ErrorReply("NotActiveError", "", {}))
    assert len(peer.sent) == 1
    _begun(repeats, peer)


def test_an_answer_is_kept_until_its_connection_is_used_again(repeats: Any) -> None:
    peer, other = _Peer(), _Peer()
    _begun(repeats, peer).answer(frames.Confirmation())
    repeats.heard(other)
    assert _again(repeats, other) is None
    repeats.heard(peer)
    _begun(repeats, peer)


def test_answers_that_nobody_asks_for_go(repeats: Any) -> None:
    peer = _Peer()
    _begun(repeats, peer).answer(frames.Confirmation())
    repeats.closed(peer)
    repeats.now = KEPT_S
    _begun(repeats, _Peer(), b"2").answer(frames.Confirmation())
    assert [number for _, number in repeats._kept] == [b"2"]
    for n in range(3, 8):
        large = frames.Objects([CommittedObject(b"", 1, bytes(KEPT_BYTES // 3), b"")], end=True)
        _begun(repeats, _Peer(), bytes([n])).answer(large)
    assert repeats._bytes <= KEPT_BYTES
    assert repeats._bytes == sum(len(c.data) for c in repeats._kept.values())
