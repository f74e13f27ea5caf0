"""Who is refused (Q5), who is noticed to come and go, and that both are told (Q4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import halog
from halog.adapters.memory import MemoryChannel, MemoryLog
from halog.errors import UnreachableError
from halog.events import KINDS, Event
from halog.ports import Peer, TopicPartition
from halog.runtime.rpc import frames
from halog.runtime.rpc.versions import judge_answer
from halog.schema import Registry
from halog.testing.cluster import Cluster, wait_until

EVENTS = TopicPartition("test.events", 0)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(2, partitions=1, registry=Registry()) as made:
        yield made


def told(cluster: Cluster, code: str) -> list[Event]:
    log = MemoryLog(cluster.broker)
    found = [Event.from_bytes(e.value) for e in log.read(EVENTS, *log.bounds(EVENTS))]
    return [e for e in found if e.code == code]


class Stranger:
    """A connection to node A, and whether it was closed."""

    def __init__(self, cluster: Cluster) -> None:
        self.closed = False
        self.channel = MemoryChannel()
        address = cluster.node("A").runtime.info.address
        self.peer: Peer = self.channel.dial(address, 1.0, lambda peer, frame: None, self._end)

    def _end(self, peer: Peer) -> None:
        self.closed = True

    def say(self, *said: Any) -> None:
        for frame in said:
            try:
                self.peer.send(frame if isinstance(frame, bytes) else frames.encode(frame))
            except UnreachableError:
                return


@pytest.mark.feature("Q5", "Q4")
@pytest.mark.parametrize(
    ("said", "name", "why"),
    [
        ([frames.Hello("other", "B", 1)], "B", "it belongs to cluster 'other', this is 'test'"),
        (
            [frames.Hello("test", "Z", 1), frames.AskPosition("test-0", 1)],
            "Z",
            "it acts as a hosting node, and is none of [nodes]",
        ),
        (
            [frames.Hello("test", "B", 1, protocol=99, lowest=98, release="9.9")],
            "B",
            f"node A runs halog {halog.__version__}, which speaks protocol 3; B runs halog 9.9, which speaks protocol "
            "98 to 99; nothing was done: node A needs a later halog",
        ),
    ],
)
def test_an_intruder_is_refused_and_told_once(cluster: Cluster, said: list[Any], name: str, why: str) -> None:
    """Its connection is closed, also the next one; the history names it once a minute."""
    for _ in range(2):
        stranger = Stranger(cluster)
        stranger.say(*said)
        wait_until(lambda one=stranger: one.closed, "it is not refused")  # type: ignore[misc]
        stranger.channel.close()
    wait_until(lambda: told(cluster, "HALOG-1008"), "nobody was told")
    (event,) = told(cluster, "HALOG-1008")
    assert (event.node, event.by, event.cause) == (name, "A", why)


@pytest.mark.feature("Q5", "Q4")
@pytest.mark.parametrize(
    ("hello", "name"),
    [
        (frames.Hello("test", "X" * 1_000_000, 1), repr("X" * 40)),
        (frames.Hello("test", "A\nB: all is well", 1), r"'A\nB: all is well'"),
        (frames.Hello("test", "", 1), "''"),
        (frames.Hello("a b", "Z", 1), "'Z'"),
    ],
    ids=["long", "two lines", "empty", "a cluster's"],
)
def test_a_name_nobody_may_have_is_refused_before_it_is_told_or_kept(
    cluster: Cluster, hello: frames.Hello, name: str
) -> None:
    """It is shown shortened and quoted, and the history takes the next event as ever."""
    stranger = Stranger(cluster)
    stranger.say(hello, frames.AskPosition("test-0", 1))
    wait_until(lambda: stranger.closed, "it is not refused")
    wait_until(lambda: told(cluster, "HALOG-1008"), "nobody was told")
    (event,) = told(cluster, "HALOG-1008")
    assert event.node == name
    assert "must be 1 to 100 of A-Z a-z 0-9 . _ -" in event.cause
    assert len(event.text) < 300
    stranger.channel.close()
    cluster.node("A").runtime.telling.history.tell(KINDS["HALOG-1007"], "behind", more={"to": "B"}, partition="p")
    wait_until(lambda: told(cluster, "HALOG-1007"), "the history hangs")


@pytest.mark.feature("Q5")
def test_a_name_that_is_no_text_closes_the_connection(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """Bytes that are no UTF-8 are no frame: said in one line, like any other bytes that are none."""
    stranger = Stranger(cluster)
    stranger.say(frames.encode(frames.Hello("test", "QQ", 1)).replace(b"QQ", b"\xff\xfe"))
    wait_until(lambda: stranger.closed, "it is not refused")
    assert all(record.exc_info is None for record in caplog.records)
    stranger.channel.close()


@pytest.mark.feature("Q5")
def test_a_client_may_ask_what_it_likes(cluster: Cluster) -> None:
    """Any name may send requests: only who acts as a hosting node must be one."""
    asking = MemoryChannel()
    asking.introduce(frames.encode(frames.Hello("test", "halog-cli-x", 1)), judge_answer)
    reply = asking.request(cluster.node("A").runtime.info.address, frames.encode(frames.StatusRequest()), 2.0)
    assert isinstance(frames.decode_reply(reply), frames.StatusReply)
    assert told(cluster, "HALOG-1008") == []
    asking.close()


@pytest.mark.feature("Q4", "N4")
def test_a_node_that_fell_silent_and_talks_again_is_told_to_have_left_and_joined(cluster: Cluster) -> None:
    """By the one that missed it; what it was told of itself at its start is told once."""
    cluster.pause("B")
    wait_until(lambda: about(told(cluster, "HALOG-1004"), "B"), "its silence was not told")
    (left,) = about(told(cluster, "HALOG-1004"), "B")
    assert left.by == "A"
    cluster.resume("B")
    wait_until(lambda: len(about(told(cluster, "HALOG-1003"), "B")) == 2, "its return was not told")
    started, back = about(told(cluster, "HALOG-1003"), "B")
    assert (started.by, back.by, back.cause) == ("B", "A", "it answers again")


@pytest.mark.feature("Q4", "P10")
def test_a_takeover_says_how_the_active_was_lost(cluster: Cluster) -> None:
    """After a kill: the successor's role change has the cause, under the new epoch."""
    dead = cluster.tables()["test-0"].active
    assert dead is not None
    cluster.kill(dead.node)
    cluster.settle()
    other = "B" if dead.node == "A" else "A"

    def took() -> list[Event]:
        return [e for e in told(cluster, "HALOG-1010") if e.epoch == 2]

    wait_until(took, "the takeover was not told")
    (event,) = took()
    assert (event.node, event.more) == (other, {"role": "active", "was": "replica"})
    assert event.cause.startswith(f"{dead.node}: ")


@pytest.mark.feature("O2")
def test_a_log_that_takes_no_events_keeps_nobody_from_taking_over(cluster: Cluster) -> None:
    """The topic of the history hangs; an election goes on as ever, and the events come when it is back."""
    cluster.broker.hold(EVENTS)
    dead = cluster.tables()["test-0"].active
    assert dead is not None
    cluster.kill(dead.node)
    cluster.settle(12.0)
    assert not [e for e in told(cluster, "HALOG-1010") if e.epoch == 2]
    cluster.broker.release(EVENTS)
    wait_until(lambda: [e for e in told(cluster, "HALOG-1010") if e.epoch == 2], "the takeover was not told")


def about(found: list[Event], node: str) -> list[Event]:
    return [e for e in found if e.node == node]


def test_events_lost_are_part_of_the_status(cluster: Cluster) -> None:
    """How many, so far: an operator sees that the history has holes."""
    runtime = cluster.node("A").runtime
    assert runtime.status()["events_dropped"] == 0
    runtime.telling.history.dropped = 3
    assert runtime.status()["events_dropped"] == 3
