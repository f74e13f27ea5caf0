"""The addresses of a node have their turns, and only the node's state waits for all of them to fail (N2, N4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from halog.core.ids import Member
from halog.core.membership.node_states import NodeSight
from halog.errors import UnreachableError
from halog.metadata.nodes import NodeInfo
from halog.ports import Peer
from halog.runtime.membership.members import Membership
from halog.runtime.rpc import frames
from halog.runtime.rpc.versions import SPOKEN

TIMEOUT_MS, KEEP_ALIVE_MS, TICK_MS = 4_000, 1_000, 20
ONE, TWO = "one:1", "two:1"
ME = NodeInfo("A", 1, "a:1", 1, True, 0, "", protocols=SPOKEN)
OTHER = NodeInfo("B", 1, ONE, 2, True, 0, "", protocols=SPOKEN, addresses=(ONE, TWO))


class Line:
    remote = "B"
    principal = None
    refusal = ""
    aged = False

    def __init__(self, address: str, on_closed: Callable[[Peer], None]) -> None:
        self.address = address
        self.on_closed = on_closed
        self.sent_ms: list[int] = []
        self.closed = False

    def send(self, frame: bytes) -> None:
        self.sent_ms.append(0)

    def offer(self, frame: bytes) -> None:
        self.send(frame)

    def close(self) -> None:
        self.closed = True
        self.on_closed(self)

    def end(self) -> None:
        self.on_closed(self)


class World:
    """Node A as it sees node B at two addresses, in virtual time. What runs beside it goes on while time passes."""

    def __init__(self, info: NodeInfo = OTHER) -> None:
        self.ms = self.began_ms = 1_000_000
        self.how: dict[str, str] = {}
        """What becomes of connections, by address: they stand, if nothing is said."""
        self.lines: list[Line] = []
        self.dialled: list[str] = []
        self.running: list[Callable[[], None]] = []
        self.lost: list[tuple[str, int]] = []
        """When each of the addresses of a node had failed since it was heard last."""
        self.said: list[str] = []
        self.shown: list[tuple[bool, int]] = []
        """Whether B was shown as up, and when that changed."""
        self.hanging = self.hearing = False
        wire: Any = self
        self.members = Membership(
            ME.member,
            frames.Hello("c", "A", 1),
            wire,
            KEEP_ALIVE_MS,
            TIMEOUT_MS,
            lambda _, why: self.said.append(why),
            self.running.append,
            seen=self.see,
            clock=lambda: self.ms,
        )
        self.members.registrations({"A": ME, "B": info})

    def see(self, sights: Mapping[str, NodeSight]) -> None:
        if "B" in sights and (not self.shown or self.shown[-1][0] != sights["B"].up):
            self.shown.append((sights["B"].up, self.ms - self.began_ms))

    def dial(self, address: str, timeout_s: float, on_frame: Any, on_closed: Callable[[Peer], None]) -> Peer:
        self.dialled.append(address)
        how = self.how.get(address, "stands")
        if how == "refuses":
            raise UnreachableError("refused", refused=True)
        if how == "hangs":  # as long as it is allowed to; the others go on meanwhile
            until, self.hanging = self.ms + round(timeout_s * 1000), True
            while self.ms < until:
                self.tick()
            self.hanging = False
            raise UnreachableError("timed out", refused=False)
        line = Line(address, on_closed)
        self.lines.append(line)
        return line

    def tick(self) -> None:
        self.ms += TICK_MS
        if self.hearing:
            self.members.heard("B", 1)
        self.members.tick()
        failed_ms = self.members.links["B"].turns.all_failed_ms if "B" in self.members.links else 0
        if failed_ms and ("B", failed_ms - self.began_ms) not in self.lost:
            self.lost.append(("B", failed_ms - self.began_ms))
        while self.running and not self.hanging:
            self.running.pop(0)()

    def pass_ms(self, ms: int, *, heard: bool = False) -> None:
        until = self.ms + ms
        self.hearing = heard
        while self.ms < until:
            self.tick()
        self.hearing = False

    @property
    def up(self) -> bool:
        return Member("B", 1) in self.members.alive

    @property
    def standing(self) -> list[str]:
        return [line.address for line in self.lines if not line.closed]

    def silent_from_now(self) -> None:
        self.members.heard("B", 1)
        self.began_ms = self.ms


@pytest.fixture
def world() -> World:
    made = World()
    made.pass_ms(2_000, heard=True)
    assert made.up
    assert made.dialled == [ONE], "the preferred one"
    return made


@pytest.mark.feature("N4")
def test_two_silent_interfaces_of_four_seconds_are_down_after_eight(world: World) -> None:
    world.silent_from_now()
    world.pass_ms(TIMEOUT_MS + TICK_MS)
    assert not world.up, "who is suspected is decided by the first silence, as ever"
    assert world.lost == []
    world.pass_ms(12_000)
    assert [node for node, _ in world.lost] == ["B"], "once"
    assert 8_000 <= world.lost[0][1] <= 8_000 + 5 * TICK_MS
    assert world.dialled[:2] == [ONE, TWO]


@pytest.mark.feature("N3", "N4")
def test_a_node_is_shown_as_up_until_its_last_interface_has_failed(world: World) -> None:
    """Elections have begun after the first one; the application is told once."""
    world.silent_from_now()
    world.shown[1:] = []
    world.pass_ms(TIMEOUT_MS + 5 * TICK_MS)
    assert not world.up
    assert world.shown[-1][0], "one is left to be tried"
    world.pass_ms(20_000)
    (after_ms,) = (ms for up, ms in world.shown[1:] if not up)
    assert 8_000 <= after_ms <= 8_000 + 5 * TICK_MS


@pytest.mark.feature("N3", "N4")
def test_a_node_that_is_heard_at_its_second_interface_was_shown_as_up_all_the_time(world: World) -> None:
    world.silent_from_now()
    world.pass_ms(TIMEOUT_MS + 5 * TICK_MS)
    world.pass_ms(20_000, heard=True)
    assert [up for up, _ in world.shown] in ([False, True], [True]), world.shown


@pytest.mark.feature("N4")
def test_two_interfaces_whose_connects_hang_are_down_after_sixteen() -> None:
    world = World()
    world.how = {ONE: "hangs", TWO: "hangs"}
    world.pass_ms(20_000)
    assert [node for node, _ in world.lost] == ["B"]
    assert 16_000 <= world.lost[0][1] <= 16_000 + 5 * TICK_MS
    assert world.dialled[:4] == [ONE, ONE, TWO, TWO], "each is tried once more before the next"


@pytest.mark.feature("N4")
def test_refused_connections_skip_no_time_for_elections_and_none_for_the_state(world: World) -> None:
    world.how = {ONE: "refuses", TWO: "refuses"}
    world.silent_from_now()
    world.lines[0].end()
    assert not world.up, "a refused reconnect is an answer"
    assert world.said[-1] == "B: its address refuses connections"
    world.pass_ms(2 * KEEP_ALIVE_MS + 5 * TICK_MS)
    assert world.dialled[1:4] == [ONE, TWO, TWO]
    assert world.lost[0][1] <= KEEP_ALIVE_MS + 5 * TICK_MS
    assert len(world.lost) == 1


@pytest.mark.feature("N4")
def test_the_state_of_a_node_with_one_address_takes_one_timeout() -> None:
    world = World(msgspec.structs.replace(OTHER, addresses=()))
    world.pass_ms(2_000, heard=True)
    world.silent_from_now()
    world.pass_ms(20_000)
    assert [node for node, _ in world.lost] == ["B"]
    assert TIMEOUT_MS <= world.lost[0][1] <= TIMEOUT_MS + 5 * TICK_MS
    assert world.dialled == [ONE], "a connection that stands is used on"


@pytest.mark.feature("N4")
def test_a_node_that_is_heard_at_its_second_interface_was_never_out_of_reach(world: World) -> None:
    world.silent_from_now()
    world.pass_ms(TIMEOUT_MS + 5 * TICK_MS)
    assert world.standing == [TWO]
    world.pass_ms(20_000, heard=True)
    assert world.up
    assert world.lost == []
    assert world.standing == [TWO], "the one that works is kept"


@pytest.mark.feature("N4")
@pytest.mark.parametrize("how", ["refuses", "hangs"])
def test_a_node_that_is_heard_is_connected_to_at_its_next_interface(how: str) -> None:
    """Its own connection to this node stands, while its preferred address is dead."""
    world = World()
    world.how = {ONE: how}
    world.pass_ms(3 * TIMEOUT_MS, heard=True)
    assert world.dialled == [ONE, ONE, TWO]
    assert world.up
    assert world.lost == []


@pytest.mark.feature("N4")
def test_connections_that_break_long_after_each_other_are_made_again_at_the_same_interface(world: World) -> None:
    for _ in range(3):
        world.pass_ms(2_000, heard=True)
        world.lines[-1].end()
        world.pass_ms(5 * TICK_MS, heard=True)
    assert world.dialled == [ONE] * 4
    assert world.up


@pytest.mark.feature("N4")
def test_one_that_comes_back_and_goes_is_told_of_again(world: World) -> None:
    for _ in range(2):
        world.pass_ms(10_000)
        world.pass_ms(1_000, heard=True)
        assert world.up
    assert len(world.lost) == 2


@pytest.mark.feature("N4")
def test_the_addresses_go_on_taking_turns_once_all_have_failed(world: World) -> None:
    """Whichever is whole first is found."""
    world.pass_ms(5 * TIMEOUT_MS)
    assert world.dialled[:4] == [ONE, TWO, ONE, TWO]


@pytest.mark.feature("N4", "R4")
def test_keep_alives_wait_for_no_interface_in_turn(world: World) -> None:
    """They go on over the connection that stands, until another one does."""
    world.how[TWO] = "hangs"
    world.silent_from_now()
    world.pass_ms(TIMEOUT_MS)
    before = len(world.lines[0].sent_ms)
    world.pass_ms(TIMEOUT_MS)
    assert len(world.lines[0].sent_ms) - before >= TIMEOUT_MS // KEEP_ALIVE_MS - 1
    assert world.standing == [ONE]
    world.members.heard("B", 1)
    assert world.up, "heard again over the one that stood"
    world.pass_ms(3 * TIMEOUT_MS, heard=True)
    assert world.up, "the other one, that hangs, takes nobody down"


@pytest.mark.feature("N4")
def test_a_connection_that_breaks_while_the_next_one_is_made_is_not_judged_twice(world: World) -> None:
    world.how[TWO] = "hangs"
    world.silent_from_now()
    world.pass_ms(TIMEOUT_MS - 2 * TICK_MS)
    world.pass_ms(4 * TICK_MS)
    world.lines[0].end()
    world.pass_ms(16_000)
    assert not world.up
    assert len(world.lost) == 1


@pytest.mark.feature("N4")
def test_who_is_not_heard_there_goes_over_to_the_next_address(world: World) -> None:
    """Only one direction of the first interface is cut: B tells through the coordinator that it does not hear A."""
    world.pass_ms(TIMEOUT_MS, heard=True)
    world.members.is_lost_at("B")
    world.pass_ms(5 * TICK_MS, heard=True)
    assert world.standing == [TWO]
    world.members.is_lost_at("B")
    world.pass_ms(5 * TICK_MS, heard=True)
    assert world.standing == [TWO], "it is given its time"
    assert world.lost == []


@pytest.mark.feature("N2")
def test_addresses_that_change_are_taken_without_losing_the_node(world: World) -> None:
    """By an activation, or as it has registered again after its session was lost."""
    moved = msgspec.structs.replace(OTHER, address="gate:1", addresses=("gate:1", TWO))
    world.members.registrations({"A": ME, "B": moved})
    world.pass_ms(5 * TICK_MS, heard=True)
    assert world.standing == ["gate:1"]
    world.members.registrations({"A": ME, "B": msgspec.structs.replace(moved, addresses=("gate:1",))})
    world.pass_ms(5 * TICK_MS, heard=True)
    assert world.standing == ["gate:1"]
    assert world.dialled == [ONE, "gate:1"]
    assert world.said == ["B answers"]
    world.silent_from_now()
    world.pass_ms(2 * TIMEOUT_MS)
    assert world.lost[0][1] <= TIMEOUT_MS + 5 * TICK_MS, "it has one address now"


@pytest.mark.feature("N4")
@pytest.mark.parametrize("how", ["stands", "hangs", "refuses"])
def test_a_node_whose_session_ends_meanwhile_is_out_of_reach_all_the_same(world: World, how: str) -> None:
    """Sessions are shorter than all turns together may take. Afterwards nobody asks there any more."""
    world.how = {ONE: how, TWO: how}
    world.pass_ms(1_000)
    world.members.registrations({"A": ME})
    if how == "refuses":
        world.lines[0].end()
    world.pass_ms(20_000)
    assert [node for node, _ in world.lost] == ["B"]
    count = len(world.dialled)
    world.pass_ms(20_000)
    assert len(world.dialled) == count


@pytest.mark.feature("N2")
def test_a_registration_without_an_address_is_nobody_to_connect_to() -> None:
    world = World(msgspec.structs.replace(OTHER, address="", addresses=()))
    world.pass_ms(1_000)
    assert world.dialled == []


@pytest.mark.feature("N4")
def test_a_node_that_left_is_not_out_of_reach(world: World) -> None:
    world.members.said_goodbye("B", 1)
    world.pass_ms(20_000)
    assert world.lost == []
