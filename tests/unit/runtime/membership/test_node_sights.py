"""What membership sees of other nodes becomes their states (N3), in virtual time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from halog.core.membership.node_states import NodeState
from halog.errors import (
    DuplicateLocationError,
    DuplicateTimestampError,
    FrameError,
    HalogError,
    RefusedError,
    VersionMismatchError,
)
from halog.runtime.events.node_states import NodeStates
from halog.runtime.membership.members import Membership
from halog.runtime.membership.node_link import refusal_of
from halog.runtime.rpc import frames
from halog.runtime.rpc.errors import to_frame
from halog.runtime.rpc.versions import SPOKEN
from tests.unit.runtime.membership.test_dials import ME, OTHER, Wire

pytestmark = pytest.mark.feature("N3")

SILENT_MS = 1_000


class World:
    """Node A, and what it sees of node B."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.ms = 100_000
        self.told: list[tuple[str, str]] = []
        self.states = NodeStates("A", self, lambda: ["A", "B"])  # type: ignore[arg-type]
        wire: Any = self.wire
        self.membership = Membership(
            ME.member,
            frames.Hello("c", "A", 1),
            wire,
            150,
            SILENT_MS,
            lambda *_: None,
            lambda work: work(),
            seen=self.states.seen,
            clock=lambda: self.ms,
        )

    def tell(self, kind: Any, cause: str, *, node: str, more: dict[str, Any], logged: bool) -> None:
        self.told.append((node, more["state"]))

    def up(self) -> World:
        self.membership.registrations({"A": ME, "B": OTHER})
        self.membership.heard("B", 1)
        assert self.state == "Up"
        return self

    def pass_ms(self, ms: int) -> None:
        for _ in range(0, ms, 100):
            self.ms += 100
            self.membership.tick()

    @property
    def state(self) -> str:
        return self.states.now()["B"].state

    @property
    def why(self) -> str:
        return self.states.now()["B"].why


@pytest.fixture
def world() -> World:
    return World()


def test_a_node_is_discovered_once_registered_and_up_once_heard(world: World) -> None:
    assert (world.state, world.why) == ("Undiscovered", "no address of it is known")
    world.membership.registrations({"A": ME, "B": OTHER})
    assert (world.state, world.why) == ("Discovered", "it was not heard yet")
    world.membership.heard("B", 1)
    assert (world.state, world.why) == ("Up", "it is heard")


def test_a_node_that_was_never_reached_stays_discovered_until_it_is_gone(world: World) -> None:
    world.wire.how = "refuses"
    world.membership.registrations({"A": ME, "B": OTHER})
    world.pass_ms(3 * SILENT_MS)
    assert world.state == "Discovered"
    world.membership.registrations({"A": ME})
    assert world.state == "Undiscovered"


def test_a_silent_node_is_down_and_up_again_when_it_is_heard(world: World) -> None:
    world.up()
    world.pass_ms(SILENT_MS + 100)
    assert (world.state, world.why) == ("Down", "silent for 1100 ms")
    world.membership.heard("B", 1)
    assert world.state == "Up"


def test_a_node_whose_process_ended_is_down(world: World) -> None:
    world.up().ms += SILENT_MS // 2
    world.wire.how = "refuses"
    world.wire.lines[0].end()
    assert (world.state, world.why) == ("Down", "its address refuses connections")


def test_a_node_that_left_stays_down_with_its_reason(world: World) -> None:
    world.up().membership.said_goodbye("B", 1)
    world.membership.registrations({"A": ME})
    assert (world.state, world.why) == ("Down", "it left")


def test_a_node_that_is_offline_is_down_though_it_talks(world: World) -> None:
    world.up().membership.heard("B", 1, "no quorum in zone test")
    assert (world.state, world.why) == ("Down", "it is offline: no quorum in zone test")
    world.membership.heard("B", 1, "")
    assert world.state == "Up"


def test_a_node_that_was_offline_from_the_start_is_down(world: World) -> None:
    world.membership.registrations({"A": ME, "B": OTHER})
    world.membership.heard("B", 1, "no quorum in zone test")
    assert (world.state, world.why) == ("Down", "it is offline: no quorum in zone test")


def test_another_run_of_a_node_is_discovered_then_up(world: World) -> None:
    world.up().membership.registrations({"A": ME, "B": msgspec.structs.replace(OTHER, incarnation=2)})
    assert world.state == "Discovered"
    world.membership.heard("B", 2)
    assert world.state == "Up"


def test_a_node_of_another_protocol_is_told_as_it_registers(world: World) -> None:
    later = msgspec.structs.replace(OTHER, protocols=(SPOKEN[1] + 1, SPOKEN[1] + 2))
    world.membership.registrations({"A": ME, "B": later})
    assert world.state == "UnsupportedProtocol"
    assert "needs a later halog" in world.why
    world.membership.registrations({"A": ME, "B": msgspec.structs.replace(OTHER, incarnation=2)})
    assert world.state == "Discovered"
    world.membership.heard("B", 2)
    assert world.state == "Up"
    assert world.told == [("B", "UnsupportedProtocol")]


def test_a_copied_data_directory_is_told_as_it_registers(world: World) -> None:
    copy = msgspec.structs.replace(OTHER, installation=ME.installation)
    world.membership.registrations({"A": ME, "B": copy})
    assert world.state == "DuplicateTimestamp"
    world.membership.registrations({"A": ME})
    assert world.state == "Undiscovered"


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (DuplicateLocationError("node A runs already"), "DuplicateLocation"),
        (DuplicateTimestampError("the data directory is a copy"), "DuplicateTimestamp"),
        (VersionMismatchError("it speaks 9"), "UnsupportedProtocol"),
    ],
)
def test_what_a_node_answers_to_our_greeting_counts_until_it_welcomes_us(
    world: World, error: HalogError, state: str
) -> None:
    world.membership.registrations({"A": ME, "B": OTHER})
    with pytest.raises(FrameError):
        world.wire.lines[0].hear(to_frame(error))
    assert (world.state, world.why) == (state, error.message)
    world.wire.lines[0].end()
    world.pass_ms(3_000)
    world.wire.lines[-1].hear(frames.Welcome("B", SPOKEN[1], "0.3.0", 1))
    world.membership.heard("B", 1)
    assert world.state == "Up"


def test_a_node_that_was_up_and_refuses_is_lost_first(world: World) -> None:
    world.up().ms += SILENT_MS // 2
    world.wire.lines[0].end()
    with pytest.raises(FrameError):
        world.wire.lines[1].hear(to_frame(VersionMismatchError("it speaks 9")))
    world.wire.lines[1].end()
    assert (world.state, world.why) == ("UnsupportedProtocol", "it speaks 9")


def test_other_refusals_have_no_state_of_their_own(world: World) -> None:
    world.membership.registrations({"A": ME, "B": OTHER})
    with pytest.raises(FrameError):
        world.wire.lines[0].hear(to_frame(RefusedError("not now")))
    assert (world.state, refusal_of(None), refusal_of(RefusedError("not now"))) == ("Discovered", None, None)
    assert refusal_of(VersionMismatchError("it speaks 9")) is NodeState.UNSUPPORTED_PROTOCOL
