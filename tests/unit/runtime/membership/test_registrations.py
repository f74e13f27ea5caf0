"""A registration that is gone: a moment changes nothing, then the node is taken for gone, although it still talks."""

from __future__ import annotations

from typing import Any, cast

import pytest

from halog.core.ids import Member
from halog.metadata.nodes import NodeInfo
from halog.ports import Peer
from halog.runtime.membership.members import Membership
from halog.runtime.rpc import frames
from halog.runtime.rpc.router import Router
from halog.runtime.rpc.versions import SPOKEN

GRACE_MS = 2_000
ME, OTHER = (NodeInfo(n, 1, f"host-{n}:1", ord(n), True, 0, "", protocols=SPOKEN) for n in "AB")


class Wire:
    """A channel on which everything is sent and nothing said."""

    aged = False

    def __init__(self) -> None:
        self.asked: list[str] = []

    def expect(self, *_: Any, **of: Any) -> None: ...

    def dial(self, address: str, *_: Any) -> Peer:
        return self  # type: ignore[return-value]

    def send(self, frame: bytes) -> None: ...

    def offer(self, frame: bytes) -> None: ...

    def drop(self, address: str) -> None: ...

    def close(self) -> None: ...

    def request(self, address: str, frame: bytes, timeout_s: float) -> bytes:
        self.asked.append(address)
        return frames.encode(frames.Confirmation())


class Clock:
    ms = 1_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


def membership(clock: Clock) -> Membership:
    """Node A's, which knows nobody yet."""
    hello, wire = frames.Hello("c", "A", 1), cast("Any", Wire())
    return Membership(
        ME.member,
        hello,
        wire,
        150,
        600,
        lambda *_: None,
        lambda work: work(),
        registration_grace_ms=GRACE_MS,
        clock=lambda: clock.ms,
    )


@pytest.fixture
def seen(clock: Clock) -> Membership:
    """Node A, which sees B up."""
    made = membership(clock)
    made.registrations({"A": ME, "B": OTHER})
    made.heard("B", 1)
    assert Member("B", 1) in made.alive
    return made


def passes(made: Membership, clock: Clock, ms: int) -> None:
    """Time in which B goes on talking."""
    until = clock.ms + ms
    while clock.ms < until:
        clock.ms += 100
        made.heard("B", 1)
        made.tick()


@pytest.mark.feature("N4", "P10")
def test_a_node_without_a_registration_is_gone_after_the_grace(seen: Membership, clock: Clock) -> None:
    """Its session ended and did not come back: it could not change a node list any more, so others take over."""
    seen.registrations({"A": ME})
    passes(seen, clock, GRACE_MS - 200)
    assert Member("B", 1) in seen.alive
    passes(seen, clock, 500)
    assert Member("B", 1) not in seen.alive
    seen.registrations({"A": ME, "B": OTHER})
    seen.heard("B", 1)
    assert Member("B", 1) in seen.alive


@pytest.mark.feature("N4")
def test_a_registration_that_comes_back_in_time_changes_nothing(seen: Membership, clock: Clock) -> None:
    """ZooKeeper restarted: all registrations vanish and return."""
    seen.registrations({})
    passes(seen, clock, GRACE_MS - 200)
    seen.registrations({"A": ME, "B": OTHER})
    passes(seen, clock, 2 * GRACE_MS)
    assert Member("B", 1) in seen.alive


@pytest.mark.feature("N4")
def test_nobody_is_judged_by_registrations_that_cannot_be_read(seen: Membership, clock: Clock) -> None:
    """While our own session is away, what we read last says nothing about others."""
    seen.registrations({"A": ME})
    seen.coordinated = lambda: False
    passes(seen, clock, 3 * GRACE_MS)
    assert Member("B", 1) in seen.alive
    seen.coordinated = lambda: True
    passes(seen, clock, GRACE_MS - 200)
    assert Member("B", 1) in seen.alive, "the grace begins when we see again"


@pytest.mark.feature("R5")
def test_a_node_that_lost_its_registration_is_still_asked() -> None:
    """It may serve on: whether it may is the log's decision."""
    wire = Wire()
    router = Router("client", wire, 1.0)  # type: ignore[arg-type]
    router.nodes_seen({"B": OTHER})
    router.nodes_seen({})
    router._once("B", b"", until=1e12)
    assert wire.asked == [OTHER.address]


@pytest.mark.feature("Q4")
def test_whoever_tells_that_a_node_is_gone_says_why(seen: Membership, clock: Clock) -> None:
    """Its registration went while its silence was being told: the cause is the silence, not the telling."""
    told: list[str] = []
    seen.changed = lambda alive, why: told.append(why)
    seen.noticed = lambda *_: seen.registrations({"A": ME})
    clock.ms += 1
    seen.tick()
    clock.ms += 601  # not more than the tick allows at once: this process was awake
    seen._ticked_ms = clock.ms - 100
    seen.tick()
    assert told == ["B: silent for 602 ms"]


@pytest.mark.feature("Q4")
def test_a_node_that_started_again_is_gone_for_that(seen: Membership) -> None:
    told: list[str] = []
    seen.changed = lambda alive, why: told.append(why)
    again = NodeInfo("B", 2, OTHER.address, ord("B"), True, 0, "", protocols=SPOKEN)
    seen.registrations({"A": ME, "B": again})
    seen.heard("B", 2)
    assert told == ["B: it started again", "B answers"]


@pytest.mark.feature("Q4")
def test_nodes_that_go_at_once_have_each_their_own_cause(seen: Membership) -> None:
    """Otherwise the one's would stand in the node list's events as the other's."""
    told: list[tuple[frozenset[Member], str]] = []
    third = NodeInfo("C", 1, "host-C:1", ord("C"), True, 0, "", protocols=SPOKEN)
    seen.registrations({"A": ME, "B": OTHER, "C": third})
    seen.heard("C", 1)
    seen.changed = lambda alive, why: told.append((alive, why))
    seen.noticed = lambda node, *_: seen.said_goodbye("C", 1)
    seen._down(seen.links["B"], "its address refuses connections")
    me, b = Member("A", 1), Member("B", 1)
    assert told == [({me, Member("C", 1)}, "B: its address refuses connections"), ({me}, "C: it left")]
    assert b not in seen.alive


class Lines:
    """What is told of lines, and a node that answers every challenge at once."""

    def __init__(self, made: Membership) -> None:
        self.told: list[tuple[str, bool]] = []
        self.lost: list[bool] = []
        self._made = made
        made.line = lambda node, whole, why: self.told.append((node, whole))
        made.challenge = self._asked

    def _asked(self, other: Member, number: int, lost: bool) -> None:
        self.lost.append(lost)
        self._made.challenge_answered(other.node, other.incarnation, number)


@pytest.mark.feature("N4", "R4")
def test_a_node_that_has_just_come_is_not_cut_off_before_there_was_time_to_connect(clock: Clock) -> None:
    """It lives, as its answers say, so it is not replaced; operators are told once it is still not heard."""
    made = membership(clock)
    lines = Lines(made)
    made.registrations({"A": ME, "B": OTHER})
    for _ in range(5):
        clock.ms += 100
        made.tick()
    assert lines.lost
    assert not any(lines.lost), "a line that never was is not lost"
    assert lines.told == []
    made.heard("B", 1)
    made.tick()
    assert lines.told == [], "it was never said to be cut, so it is not said to be whole"


@pytest.mark.feature("N4", "R4")
def test_a_line_that_stays_cut_from_the_first_is_told_once_and_once_it_is_whole(clock: Clock) -> None:
    made = membership(clock)
    lines = Lines(made)
    made.registrations({"A": ME, "B": OTHER})
    for _ in range(30):
        clock.ms += 100
        made.tick()
    assert lines.told == [("B", False)]
    assert lines.lost[-1], "the other one may tell it, too"
    made.heard("B", 1)
    assert lines.told == [("B", False), ("B", True)]
