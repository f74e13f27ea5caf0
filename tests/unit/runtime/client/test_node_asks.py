"""A client finds out which nodes are up (N3): by registrations, and by greetings where those may be wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from halog.core.ids import Member
from halog.errors import UnreachableError
from halog.metadata.nodes import NodeInfo
from halog.runtime.client.node_asks import NodeAsks
from halog.runtime.events.node_states import NodeStates
from halog.runtime.rpc import frames
from halog.runtime.rpc.errors import to_frame
from halog.runtime.rpc.versions import SPOKEN, greeting, mismatch_from
from halog.testing.cluster import wait_until

pytestmark = [pytest.mark.feature("N3"), pytest.mark.timeout(60)]

B, C = (NodeInfo(n, 1, f"{n}:1", ord(n), True, 0, "", protocols=SPOKEN) for n in "BC")
CLIENT = NodeInfo("client-1", 1, "", 1, False, 0, "", protocols=SPOKEN)
HELLO = greeting("c", Member("client-2", 1), "client")


class Net:
    """A channel to addresses that answer a greeting with a frame, or raise; nobody is anywhere else."""

    def __init__(self) -> None:
        self.answers: dict[str, frames.Reply | Exception | None] = {}
        self.greeted: list[str] = []
        self.closed = 0

    def dial(self, address: str, timeout_s: float, on_frame: Any, on_closed: Any) -> Any:
        self.greeted.append(address)
        answer = self.answers.get(address, UnreachableError(f"{address} refuses connections", refused=True))
        if isinstance(answer, Exception):
            raise answer
        return Line(self, on_frame, answer)


class Line:
    def __init__(self, net: Net, on_frame: Any, answer: frames.Reply | None) -> None:
        self._net = net
        self._on_frame = on_frame
        self._answer = answer

    def send(self, frame: bytes) -> None:
        assert frame == frames.encode(HELLO)
        if self._answer is not None:
            self._on_frame(self, frames.encode(self._answer))

    def close(self) -> None:
        self._net.closed += 1


def welcome(node: str = "B", run: int = 1, offline: str = "") -> frames.Welcome:
    return frames.Welcome(node, frames.PROTOCOL, "0.3.0", run, offline)


class NoHistory:
    def tell(self, *args: Any, **more: Any) -> None: ...


class World:
    def __init__(self, again_s: float = 0.02) -> None:
        self.net = Net()
        net: Any = self.net
        history: Any = NoHistory()
        self.states = NodeStates("client-2", history, lambda: ["B"])
        self.asks = NodeAsks(net, HELLO, self.states.seen, 0.05, again_s)

    def becomes(self, state: str, why: str, node: str = "B") -> None:
        def so() -> bool:
            now = self.states.now()[node]
            return now.state == state and why in now.why

        wait_until(so, f"{node} becomes {state}, {why}; it is {self.states.now()[node]}", 60)

    def up(self) -> None:
        self.net.answers["B:1"] = welcome()
        self.asks.registrations({"B": B})
        self.asks.begin()
        self.becomes("Up", "it answers")


@pytest.fixture
def make() -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def one(*args: float) -> World:
        made.append(World(*args))
        return made[-1]

    yield one
    for each in made:
        each.asks.close()
        each.states.close()


@pytest.fixture
def world(make: Callable[..., World]) -> World:
    return make()


def test_nobody_is_asked_before_somebody_wants_to_know(world: World) -> None:
    world.net.answers["B:1"] = welcome()
    world.asks.registrations({"B": B})
    world.asks.doubted("B")
    assert world.net.greeted == []
    assert world.states.now()["B"].state == "Undiscovered"
    world.asks.begin()
    world.becomes("Up", "it answers")


def test_a_node_that_is_up_is_greeted_once_and_clients_never(make: Callable[..., World]) -> None:
    world = make(0.01)
    world.up()
    world.asks.registrations({"B": B, "client-1": CLIENT})
    world.asks.begin()
    threading.Event().wait(0.1)
    assert world.net.greeted == ["B:1"]
    assert world.net.closed == 1, "no connection is kept"
    assert list(world.states.now()) == ["B"]


def test_a_node_that_cannot_be_reached_is_discovered_until_it_answers(world: World) -> None:
    world.asks.registrations({"B": B})
    world.asks.begin()
    world.becomes("Discovered", "it was not asked yet")
    wait_until(lambda: len(world.net.greeted) > 2, "it is asked again")
    world.net.answers["B:1"] = welcome()
    world.becomes("Up", "it answers")


def test_a_node_that_has_registered_no_address_is_asked_once_it_has(world: World) -> None:
    world.asks.registrations({"B": msgspec.structs.replace(B, address="")})
    world.asks.begin()
    threading.Event().wait(0.1)
    assert world.states.now()["B"].state == "Undiscovered"
    world.net.answers["B:1"] = welcome()
    world.asks.registrations({"B": B})
    world.becomes("Up", "it answers")


def test_a_doubt_makes_the_client_ask_at_once(make: Callable[..., World]) -> None:
    world = make(60.0)
    world.up()
    world.asks.doubted("B")
    wait_until(lambda: len(world.net.greeted) == 2, "it is asked")
    world.becomes("Up", "it answers")
    world.net.answers.clear()
    wait_until(lambda: world.asks.doubted("B") or len(world.net.greeted) > 2, "it is asked again")
    world.becomes("Down", "B:1 refuses connections")
    world.asks.doubted("unheard-of")


@pytest.mark.parametrize(
    ("answer", "state", "why"),
    [
        (None, "Down", "it does not answer a greeting"),
        (welcome("X"), "Down", "another process answers at B:1"),
        (welcome(run=2), "Down", "another process answers at B:1"),
        (welcome(offline="no quorum in zone z"), "Down", "it is offline: no quorum in zone z"),
        (frames.Confirmation(), "Down", "answered with Confirmation"),
        (to_frame(mismatch_from("B", HELLO)), "UnsupportedProtocol", "nothing was done"),
    ],
)
def test_a_node_that_does_not_welcome_the_client_is_not_up(
    world: World, answer: frames.Reply | None, state: str, why: str
) -> None:
    world.up()
    world.net.answers["B:1"] = answer
    world.asks.doubted("B")
    world.becomes(state, why)
    world.net.answers["B:1"] = welcome()
    world.becomes("Up", "it answers")


def test_a_node_that_registers_another_protocol_is_not_even_greeted(world: World) -> None:
    world.asks.begin()
    world.asks.registrations({"B": msgspec.structs.replace(B, protocols=(SPOKEN[1] + 1, SPOKEN[1] + 1))})
    world.becomes("UnsupportedProtocol", "needs a later halog")
    assert world.net.greeted == []


def test_a_node_whose_registration_is_gone_is_up_while_it_answers(world: World) -> None:
    world.up()
    world.asks.registrations({})
    wait_until(lambda: len(world.net.greeted) > 2, "it is asked, again and again")
    world.becomes("Up", "it answers")
    world.net.answers.clear()
    world.becomes("Down", "B:1 refuses connections")
    count = len(world.net.greeted)
    threading.Event().wait(0.1)
    assert len(world.net.greeted) == count, "its address may be another's by now"


def test_another_run_is_asked_anew(world: World) -> None:
    world.up()
    world.net.answers["B:2"] = welcome(run=2)
    world.asks.registrations({"B": msgspec.structs.replace(B, incarnation=2, address="B:2")})
    world.becomes("Up", "it answers")
    assert world.net.greeted == ["B:1", "B:2"]


def test_one_that_hangs_holds_up_no_other(world: World) -> None:
    world.net.answers.update({"B:1": None, "C:1": welcome("C")})
    world.asks.begin()
    world.asks.registrations({"B": B, "C": C})
    world.becomes("Up", "it answers", "C")
    world.becomes("Discovered", "", "B")


def test_a_closed_client_asks_nobody(world: World) -> None:
    world.up()
    world.asks.close()
    world.asks.doubted("B")
    world.asks.registrations({"B": msgspec.structs.replace(B, incarnation=2)})
    threading.Event().wait(0.05)
    assert world.net.greeted == ["B:1"]
