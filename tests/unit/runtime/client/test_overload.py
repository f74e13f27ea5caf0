"""Too much is in flight in a partition: who commits waits, and is told in the end what to do (R8, D5)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from halog.backend import Work
from halog.core import results as res
from halog.errors import HalogError, OverloadedError
from halog.runtime.client import commits
from halog.runtime.client.commits import Commits
from halog.runtime.rpc.request import OpenCommit
from halog.runtime.rpc.result_errors import to_error
from halog.runtime.support.keyed_executor import Lanes
from halog.schema import Registry, managed
from halog.testing.cluster import Cluster, wait_until

pytestmark = pytest.mark.feature("R8")

NAME = "test-0"
BYTES = 4_000

REGISTRY = Registry()


@managed(key="name", registry=REGISTRY)
class Photo:
    name: str
    data: bytes = bytes(BYTES * 2 // 3)


@pytest.fixture
def deadline_ms() -> int:
    """Of a commit; less than an append may take."""
    return 4_000


@pytest.fixture(params=["max_in_flight", "max_in_flight_bytes"])
def limited(request: pytest.FixtureRequest, deadline_ms: int) -> Iterator[tuple[Cluster, str]]:
    """Two nodes, one partition that takes two commits at a time, or some thousand bytes."""
    limits = {"max_in_flight": 2} if request.param == "max_in_flight" else {"max_in_flight_bytes": BYTES}
    made = Cluster(2, partitions=1, registry=REGISTRY)
    policy = replace(made.config.policies["test"], call_deadline_ms=deadline_ms, before_images=False)
    made.config = replace(
        made.config, policies={"test": policy}, limits=replace(made.config.limits, max_record_bytes=BYTES, **limits)
    ).validate()
    with made:
        made.settle()
        yield made, request.param


def creates(caller: Any, name: str, told: list[tuple[str, HalogError | None]]) -> threading.Thread:
    """Some thousand bytes, by a thread of its own."""

    def one() -> None:
        try:
            with caller.transaction() as tx:
                tx.create(Photo(name))
        except HalogError as e:
            told.append((name, e))
        else:
            told.append((name, None))

    thread = threading.Thread(target=one, daemon=True)
    thread.start()
    return thread


def full(cluster: Cluster) -> list[tuple[str, HalogError | None]]:
    """The log answers nothing, and as much as may be is on its way to it. What is told of that."""
    copy = cluster.node(cluster.active_for(Photo, "a")).runtime.copies[NAME]
    told: list[tuple[str, HalogError | None]] = []
    cluster.broker.hold(copy.tp)
    for number, name in enumerate(("a", "b"), 1):
        creates(cluster.node(cluster.active_for(Photo, "a")), name, told)
        leading = copy.core.leading
        assert leading is not None
        wait_until(lambda n=number, to=leading: len(to.writer.queue) >= n, "it is not given to the log")  # type: ignore[misc]
    return told


def test_who_commits_waits_while_too_much_is_in_flight(limited: tuple[Cluster, str]) -> None:
    """Here and elsewhere, and it happens once."""
    cluster, _ = limited
    told = full(cluster)
    threads = [creates(cluster.client(), "c", told), creates(cluster.node(cluster.active_for(Photo, "a")), "d", told)]
    time.sleep(0.3)
    assert told == []
    cluster.broker.release(cluster.node(cluster.active_for(Photo, "a")).runtime.copies[NAME].tp)
    for thread in threads:
        thread.join(60)
    wait_until(lambda: sorted(told) == [(name, None) for name in "abcd"], "not all of it happened")


@pytest.mark.parametrize("deadline_ms", [1_000])
@pytest.mark.parametrize("elsewhere", [False, True], ids=["at the active", "at a client"])
def test_what_is_refused_in_the_end_names_the_limit_and_what_to_do(
    limited: tuple[Cluster, str], deadline_ms: int, *, elsewhere: bool
) -> None:
    cluster, setting = limited
    active = cluster.node(cluster.active_for(Photo, "a"))
    full(cluster)
    began, told = time.monotonic(), list[tuple[str, HalogError | None]]()
    creates(cluster.client() if elsewhere else active, "c", told).join(60)
    assert time.monotonic() - began >= deadline_ms / 1_000
    ((_, error),) = told
    assert isinstance(error, OverloadedError)
    assert f"(limits.{setting}); nothing happened; try again later, or raise the limit" in error.message
    leading = active.runtime.copies[NAME].core.leading
    assert leading is not None
    lsn = leading.writer.last_lsn
    cluster.broker.release(active.runtime.copies[NAME].tp)
    wait_until(lambda: active.runtime.copies[NAME].core.state.chain.state.lsn == lsn, "it is not in the log")
    with active.transaction() as tx:
        assert tx.find(Photo, "c") is None


@pytest.mark.parametrize("deadline_ms", [1_000])
def test_no_attempt_begins_too_late_to_be_answered(
    limited: tuple[Cluster, str], deadline_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the last one nobody would know what became of it; of those before it is known that nothing happened."""
    cluster, _ = limited
    client, left = cluster.client(), list[float]()
    full(cluster)
    once = Commits._once

    def noted(self: Commits, partition: str, tx: bytes, work: Work, until: float, open_: OpenCommit) -> int | None:
        left.append(until - time.monotonic())
        return once(self, partition, tx, work, until, open_)

    monkeypatch.setattr(Commits, "_once", noted)
    monkeypatch.setattr(commits, "ANSWER_S", 0.5)
    began, told = time.monotonic(), list[tuple[str, HalogError | None]]()
    creates(client, "c", told).join(60)
    assert isinstance(told[0][1], OverloadedError)
    assert time.monotonic() - began >= deadline_ms / 1_000
    assert min(left) > 0.2, left


@pytest.mark.parametrize(
    ("busy", "said"),
    [
        (
            res.Busy(4_096),
            "4,096 commits are in flight in p (limits.max_in_flight); nothing happened; try again later, or raise the "
            "limit",
        ),
        (
            res.Busy(32_000_000, "bytes"),
            "32,000,000 bytes are in flight in p (limits.max_in_flight_bytes); nothing happened; try again later, or "
            "raise the limit",
        ),
    ],
)
def test_each_limit_is_named_by_its_own_name(busy: res.Busy, said: str) -> None:
    error = to_error(busy, "p")
    assert isinstance(error, OverloadedError)
    assert (error.message, error.evidence) == (said, {"limit": busy.limit})


def test_a_full_lane_says_what_to_do() -> None:
    made, let = Lanes("test", 1, 4, queued=0), threading.Event()
    made.submit("p", lambda: let.wait(30))
    with pytest.raises(OverloadedError) as caught:
        made.submit("p", lambda: None)
    assert caught.value.message == "0 requests wait for partition p; nothing happened; try again later"
    let.set()
    made.close()
