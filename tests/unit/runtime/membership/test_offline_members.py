"""What a node hears of others that are offline, and says while it is (Q1, N4)."""

from __future__ import annotations

from typing import Any

import pytest

from halog.core.ids import Member
from halog.core.table.zones import NodeContacts
from halog.metadata.nodes import NodeInfo
from halog.ports import Peer
from halog.runtime.membership.members import Membership
from halog.runtime.rpc import frames
from halog.runtime.rpc.versions import SPOKEN

A, B, C = (NodeInfo(n, 1, f"host-{n}:1", ord(n), True, 0, "", protocols=SPOKEN) for n in "ABC")
WHY = "zone main has no quorum here: 1 votes, 2 needed"


class Wire:
    """A channel that keeps what was said."""

    aged = False

    def __init__(self) -> None:
        self.said: list[Any] = []

    def expect(self, *_: Any, **of: Any) -> None: ...

    def dial(self, address: str, *_: Any) -> Peer:
        return self  # type: ignore[return-value]

    def send(self, frame: bytes) -> None:
        self.said.append(frames.decode_incoming(frame))

    def close(self) -> None: ...


class Seen:
    """Node A, which sees B and C up, and all it tells."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.told = []
        self.noticed = []  # type: ignore[var-annotated]
        hello = frames.Hello("c", "A", 1)
        wire: Any = self.wire
        self.made = Membership(A.member, hello, wire, 150, 600, self._changed, lambda work: work(), clock=lambda: 1_000)
        self.made.noticed = lambda node, up, why: self.noticed.append((node, up, why))
        self.made.registrations({"A": A, "B": B, "C": C})
        for name in "BC":
            self.made.heard(name, 1, "")
        self.told.clear()
        self.wire.said.clear()

    def _changed(self, alive: frozenset[Member], why: str) -> None:
        self.told.append((sorted(m.node for m in alive), why))


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.mark.feature("Q1", "N4")
def test_a_node_that_says_that_it_is_offline_is_reached_and_not_up(seen: Seen) -> None:
    """Told once, with its reason; and once that it is back."""
    for _ in range(3):
        seen.made.heard("B", 1, WHY)
    assert seen.told == [(["A", "C"], f"B: it is offline: {WHY}")]
    assert seen.noticed == [("B", False, f"it is offline: {WHY}")]
    assert seen.made.links["B"].up
    seen.made.heard("B", 1)  # an acknowledgement says nothing of it
    assert Member("B", 1) not in seen.made.alive
    for _ in range(3):
        seen.made.heard("B", 1, "")
    assert seen.told[1:] == [(["A", "B", "C"], "B answers")]
    assert seen.noticed[1:] == [("B", True, "it answers again")]


@pytest.mark.feature("Q1", "N4")
def test_one_that_leaves_while_it_is_offline_is_not_told_twice(seen: Seen) -> None:
    seen.made.heard("B", 1, WHY)
    seen.made.said_goodbye("B", 1)
    assert len(seen.told) == len(seen.noticed) == 1


@pytest.mark.feature("Q1")
def test_one_that_begins_offline_comes_up_quietly(seen: Seen) -> None:
    """A new run: that it joined it tells itself."""
    again = NodeInfo("B", 2, "host-B:2", ord("B"), True, 0, "", protocols=SPOKEN)
    seen.made.registrations({"A": A, "B": again, "C": C})
    seen.made.heard("B", 2, WHY)
    seen.made.heard("B", 2, "")
    assert seen.noticed == []
    assert Member("B", 2) in seen.made.alive


@pytest.mark.feature("Q1")
def test_offline_is_counted_by_whom_it_reaches(seen: Seen) -> None:
    """An offline node is in sight: reached, discovered, and not up."""
    sights: list[NodeContacts] = []

    def judge(sight: NodeContacts) -> str:
        sights.append(sight)
        return ""

    seen.made.judge = judge
    seen.made.heard("B", 1, WHY)
    both = frozenset("BC")
    assert sights == [NodeContacts(both, both, frozenset("C"))]


@pytest.mark.feature("Q1")
def test_it_takes_itself_out_first_and_says_so_at_once(seen: Seen) -> None:
    """Or its copies would stand for the node that went with the quorum."""
    seen.made.judge = lambda sight: "" if len(sight.reached) > 1 else WHY
    seen.made.said_goodbye("B", 1)
    assert seen.told == [(["B", "C"], WHY), (["C"], "B: it left")]
    assert [(type(f), f.why) for f in seen.wire.said] == [(frames.Offline, WHY)] * 2, "to B's link and C's"
    seen.wire.said.clear()
    seen.made.tick()
    assert {type(f) for f in seen.wire.said} == {frames.Offline}
    seen.made.judge = lambda sight: ""
    seen.made.look()
    assert seen.told[2:] == [(["A", "C"], "")]
    assert type(seen.wire.said[-1]) is frames.KeepAlive
