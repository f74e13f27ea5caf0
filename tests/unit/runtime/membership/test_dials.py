"""A connection that broke: one reconnect, at once, whose end says whether the node is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from halog.core.ids import Member
from halog.errors import FrameError, UnreachableError
from halog.metadata.nodes import NodeInfo
from halog.ports import Peer
from halog.runtime.membership.members import REFUSED_MS, Membership
from halog.runtime.rpc import frames
from halog.runtime.rpc.versions import SPOKEN

ME, OTHER = (NodeInfo(n, 1, f"host-{n}:1", ord(n), True, 0, "", protocols=SPOKEN) for n in "AB")
KEEP_ALIVE_MS = 150
NOON_MS = 100_000


class Line:
    """One outgoing connection, which a test breaks."""

    remote = "host-B:1"
    principal = None
    refusal = ""
    aged = False

    def __init__(
        self, on_frame: Callable[[Peer, bytes], None], on_closed: Callable[[Peer], None], broken: bool
    ) -> None:
        self.on_frame = on_frame
        self.on_closed = on_closed
        self.broken = broken

    def send(self, frame: bytes) -> None:
        if self.broken:
            raise UnreachableError("broken")

    def offer(self, frame: bytes) -> None:
        self.send(frame)

    def close(self) -> None: ...

    def end(self) -> None:
        self.on_closed(self)

    def hear(self, reply: frames.Reply) -> None:
        self.on_frame(self, frames.encode(reply))


class Wire:
    """A channel whose other end takes every connection; `how` says what becomes of it."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.how = "stays"
        self.before: Callable[[], None] = lambda: None
        """Runs while a connection is made."""
        self.breaks = 0
        """So many connections break while they are made, before `how` counts."""

    def expect(self, address: str, node: str, *, tls: bool) -> None: ...

    def dial(self, address: str, timeout_s: float, on_frame: Any, on_closed: Callable[[Peer], None]) -> Peer:
        self.before()
        if self.breaks:
            self.breaks -= 1
            raise UnreachableError("broke the connection in the TLS handshake", refused=False, broke=True)
        if self.how == "refuses":
            raise UnreachableError("refused", refused=True)
        if self.how == "is another one":
            raise UnreachableError("its certificate is for node C", refused=False, greeting=True)
        line = Line(on_frame, on_closed, self.how in ("resets", "distrusts at once"))
        self.lines.append(line)
        if self.how in ("distrusts", "distrusts at once"):
            line.refusal = "it refuses this process's TLS: certificate expired"
        if self.how in ("ends", "distrusts", "distrusts at once"):
            line.end()
        return line


class World:
    def __init__(self) -> None:
        self.wire = Wire()
        self.ms = NOON_MS
        self.said: list[str] = []
        self.asked: list[int] = []
        """The numbers of the challenges of B."""
        hello = frames.Hello("c", "A", 1)
        wire: Any = self.wire
        self.membership = Membership(
            ME.member,
            hello,
            wire,
            KEEP_ALIVE_MS,
            60_000,
            lambda _, why: self.said.append(why),
            lambda work: work(),
            challenger=self,
            clock=lambda: self.ms,
        )
        self.membership.registrations({"A": ME, "B": OTHER})
        self.membership.heard("B", 1)

    def met_soon(self, node: str) -> None:
        """B is there from the beginning."""

    def ask(self, other: Member, number: int, lost: bool) -> None:
        self.asked.append(number)

    def next_tick(self) -> None:
        self.ms += KEEP_ALIVE_MS
        self.membership.tick()

    @property
    def up(self) -> bool:
        return Member("B", 1) in self.membership.alive


@pytest.fixture
def world() -> World:
    made = World()
    assert made.up
    made.ms += 10_000
    return made


@pytest.mark.feature("N4")
def test_a_broken_connection_is_made_again_at_once(world: World) -> None:
    world.wire.lines[0].end()
    assert len(world.wire.lines) == 2
    assert world.up


@pytest.mark.feature("N4", "N5")
def test_a_connection_that_has_aged_is_used_until_another_one_stands(world: World) -> None:
    before = world.wire.lines[0]
    before.aged = True
    world.wire.how = "refuses"
    world.next_tick()
    assert world.up
    assert world.membership.links["B"].peer is before
    world.wire.how = "stays"
    world.next_tick()
    assert world.membership.links["B"].peer is world.wire.lines[-1] is not before
    assert world.up
    for _ in range(5):
        world.next_tick()
    assert len(world.wire.lines) == 2


@pytest.mark.feature("N4")
@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("refuses", "its address refuses connections"),
        ("resets", "its address breaks connections"),
        ("ends", "its address breaks connections"),
    ],
)
def test_a_reconnect_that_fails_ends_it(world: World, how: str, why: str) -> None:
    """A process that dies may take one more connection into a backlog that dies with it."""
    world.wire.how = how
    world.wire.lines[0].end()
    assert not world.up
    assert world.said[-1] == f"B: {why}"
    assert len(world.wire.lines) <= 2, "it is not dialled in a circle"


@pytest.mark.feature("N4", "N5")
@pytest.mark.parametrize("breaks", [1, 3])
def test_a_handshake_that_breaks_is_tried_again_at_once(world: World, breaks: int) -> None:
    """A process that is being killed takes connections for some ms. Nobody waits for the next keep-alive."""
    world.wire.how, world.wire.breaks = "refuses", breaks
    world.wire.lines[0].end()
    assert not world.up
    assert world.said[-1] == "B: its address refuses connections"


@pytest.mark.feature("N4", "N5")
def test_a_node_that_breaks_handshakes_is_not_taken_for_dead(world: World) -> None:
    """It may have too many of them. It is asked again, in its time."""
    world.wire.breaks = 1_000
    world.wire.lines[0].end()
    assert not world.membership.links["B"].dead
    assert world.up
    tried = 1_000 - world.wire.breaks
    assert tried <= 4
    world.ms += KEEP_ALIVE_MS
    world.wire.breaks = 0
    world.membership.tick()
    assert len(world.wire.lines) == 2
    assert world.up


@pytest.mark.feature("N4", "N5")
@pytest.mark.parametrize("how", ["distrusts", "distrusts at once", "is another one"])
def test_who_is_not_trusted_is_not_taken_for_dead(world: World, how: str) -> None:
    """A node whose certificate has expired must not elect itself in place of those that refuse it; nor is it tried
    without a pause."""
    world.wire.how = how
    world.wire.lines[0].end()
    assert not world.membership.links["B"].dead
    assert "certificate" in world.membership.links["B"].refused
    before = len(world.wire.lines)
    world.ms += KEEP_ALIVE_MS + 1
    world.membership.tick()
    assert len(world.wire.lines) == before
    world.wire.how = "stays"
    world.ms += REFUSED_MS
    world.membership.tick()
    assert len(world.wire.lines) == before + 1


@pytest.mark.feature("N4")
def test_a_connection_that_breaks_soon_after_it_was_made_is_not_dialled_in_a_circle(world: World) -> None:
    """A proxy before a dead node accepts, and breaks a moment later."""
    for _ in range(3):
        world.wire.lines[-1].end()
        world.ms += 1
    assert len(world.wire.lines) == 2
    assert not world.up
    world.ms += KEEP_ALIVE_MS
    world.membership.tick()
    assert len(world.wire.lines) == 3, "it is asked again, in its time"
    world.membership.heard("B", 1)
    assert not world.up, "this one may break, too"
    world.ms += KEEP_ALIVE_MS
    world.membership.heard("B", 1)
    assert world.up


@pytest.mark.feature("N4", "R4")
@pytest.mark.parametrize("how", ["refuses", "resets", "ends"])
def test_a_line_that_refuses_is_no_death_once_the_node_has_answered(world: World, how: str) -> None:
    """A firewall refuses in place of a process that lives. It is taken for dead at once, as a process that has ended
    must be; and then asked."""
    world.wire.how = how
    world.wire.lines[0].end()
    assert not world.up
    world.next_tick()
    (number,) = world.asked
    assert world.membership.answering == frozenset()
    world.membership.challenge_answered("B", 1, number)
    world.next_tick()
    assert world.membership.answering == {Member("B", 1)}
    for _ in range(3 * 60_000 // KEEP_ALIVE_MS):  # refused again and again: nothing new
        world.next_tick()
        world.membership.challenge_answered("B", 1, world.asked[-1])
        assert world.membership.answering == {Member("B", 1)}
        assert not world.up
    for _ in range(2 * 60_000 // KEEP_ALIVE_MS + 2):  # it is no more: nobody answers
        world.next_tick()
    assert world.membership.answering == frozenset()
    world.wire.how = "stays"
    world.next_tick()
    world.ms += KEEP_ALIVE_MS
    world.membership.heard("B", 1)
    assert world.up


@pytest.mark.feature("N4", "R4")
def test_what_was_answered_before_an_address_refused_is_worth_nothing(world: World) -> None:
    """It was silent, and answered; now its process has ended."""
    world.ms += 50_000
    world.membership.tick()
    world.membership.challenge_answered("B", 1, world.asked[-1])
    world.ms += 20_000
    world.membership.tick()
    assert world.membership.answering == {Member("B", 1)}
    world.wire.how = "refuses"
    world.wire.lines[0].end()
    world.next_tick()
    assert world.membership.answering == frozenset()


@pytest.mark.feature("N4", "R4")
def test_nobody_is_asked_whose_host_says_that_it_is_no_more(world: World) -> None:
    world.wire.how = "refuses"
    world.membership.said_goodbye("B", 1)
    for _ in range(10):
        world.next_tick()
    assert world.asked == []


@pytest.mark.feature("N4")
def test_a_connection_found_broken_by_a_send_is_made_again(world: World) -> None:
    world.wire.lines[0].broken = True
    world.ms += KEEP_ALIVE_MS
    world.membership.tick()
    assert len(world.wire.lines) == 2
    assert world.up


@pytest.mark.feature("N4")
def test_a_slow_dial_does_not_shorten_the_pause(world: World) -> None:
    """How long a connection lasted counts from when it stood: one that broke at once is not dialled in a circle."""

    def slow() -> None:
        world.ms += 2 * KEEP_ALIVE_MS

    world.wire.before, world.wire.how = slow, "ends"
    world.wire.lines[0].end()
    assert len(world.wire.lines) == 2
    assert not world.up
    world.membership.tick()
    assert len(world.wire.lines) == 2, "the pause counts from its end"
    world.ms += KEEP_ALIVE_MS
    world.membership.tick()
    assert len(world.wire.lines) == 3


@pytest.mark.feature("N4")
def test_a_dial_that_fails_unexpectedly_does_not_keep_the_next_from_being_made(world: World) -> None:
    """As when the machine has no thread left for a moment."""

    def fails() -> None:
        raise RuntimeError("can't start new thread")

    world.wire.before = fails
    with pytest.raises(RuntimeError):
        world.wire.lines[0].end()
    world.wire.before = lambda: None
    world.ms += KEEP_ALIVE_MS
    world.membership.tick()
    assert len(world.wire.lines) == 2


REFUSAL = frames.ErrorReply("VersionMismatchError", "node B runs halog 1.4, which speaks protocol 9", {})


@pytest.mark.feature("U1", "N4")
def test_a_node_that_refuses_this_one_is_down_for_that_and_asked_again_after_a_while(world: World) -> None:
    line = world.wire.lines[0]
    with pytest.raises(FrameError, match=r"refuses this node: node B runs halog 1\.4"):
        line.hear(REFUSAL)
    line.end()
    assert not world.up
    assert world.said[-1] == f"B: {REFUSAL.message}"
    world.ms += REFUSED_MS - 1
    world.membership.tick()
    assert len(world.wire.lines) == 1
    world.ms += 1
    world.membership.tick()
    assert len(world.wire.lines) == 2
    world.wire.lines[1].hear(frames.Welcome("B", frames.PROTOCOL, "1.4"))
    world.membership.heard("B", 1)
    assert world.up
    assert world.membership.links["B"].refused == ""


@pytest.mark.feature("U1")
def test_a_frame_that_the_other_node_does_not_know_ends_nothing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.wire.lines[0].hear(frames.ErrorReply("UnsupportedRequestError", "node B does not know Teleport", {}))
    assert world.up
    assert [r.getMessage() for r in caplog.records] == ["node B does not know Teleport"]


@pytest.mark.feature("N4")
def test_a_connection_of_ours_carries_nothing_else_back(world: World) -> None:
    with pytest.raises(FrameError, match="sent Confirmation on a connection that only carries ours"):
        world.wire.lines[0].hear(frames.Confirmation())
