"""A request goes to one address of a node after the other, and never twice where it may have been acted on (N2)."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from halog.adapters.tcp.channel import TcpChannel
from halog.errors import DeadlineError, UnreachableError
from halog.ports import Peer
from halog.runtime.rpc.node_addresses import NodeAddresses


class Wire:
    """A channel whose addresses answer, or raise what a test says."""

    def __init__(self, **how: Exception | bytes) -> None:
        self.how = how
        self.asked: list[tuple[str, float | None]] = []

    def request(self, address: str, frame: bytes, timeout_s: float, *, connect_s: float | None = None) -> bytes:
        self.asked.append((address, connect_s))
        said = self.how[address]
        if isinstance(said, bytes):
            return said
        raise said


REFUSED = UnreachableError("refused", refused=True, sent=False)
BROKE = UnreachableError("broke", refused=False, sent=True)
SILENT = DeadlineError("no reply")
NOT_GREETED = DeadlineError("no greeting", sent=False)


def ask(node: NodeAddresses, wire: Any) -> bytes:
    return node.ask(wire, b"frame", 6.0)


@pytest.mark.feature("N2")
@pytest.mark.parametrize("error", [REFUSED, NOT_GREETED])
def test_what_was_not_sent_goes_to_the_next_address_which_is_asked_first_from_then_on(error: Exception) -> None:
    wire, node = Wire(a=error, b=error, c=b"reply"), NodeAddresses(("a", "b", "c"))
    assert ask(node, wire) == b"reply"
    assert [address for address, _ in wire.asked] == ["a", "b", "c"]
    assert node.address == "c"
    assert ask(node, wire) == b"reply"
    assert [address for address, _ in wire.asked] == ["a", "b", "c", "c"]


@pytest.mark.feature("N2")
@pytest.mark.parametrize("error", [BROKE, SILENT])
def test_what_may_have_been_acted_on_is_not_repeated(error: Exception) -> None:
    wire, node = Wire(a=error, b=b"reply"), NodeAddresses(("a", "b"))
    with pytest.raises(type(error)) as caught:
        ask(node, wire)
    assert caught.value is error
    assert [address for address, _ in wire.asked] == ["a"]
    assert ask(node, wire) == b"reply", "whoever asks again begins with the next one"
    assert node.address == "b"


@pytest.mark.feature("N2")
def test_an_error_behind_unsent_ones_says_whether_it_was_sent() -> None:
    for last in (BROKE, REFUSED):
        wire = Wire(a=REFUSED, b=last)
        with pytest.raises(UnreachableError) as caught:
            ask(NodeAddresses(("a", "b")), wire)
        assert caught.value is last


@pytest.mark.feature("N2")
def test_each_address_is_tried_once_and_the_time_is_shared() -> None:
    wire, node = Wire(a=REFUSED, b=REFUSED, c=REFUSED), NodeAddresses(("a", "b", "c"))
    with pytest.raises(UnreachableError):
        ask(node, wire)
    assert [address for address, _ in wire.asked] == ["a", "b", "c"]
    connect = [at for _, at in wire.asked]
    assert connect[0] == pytest.approx(2.0, abs=0.1)
    assert connect[1] == pytest.approx(3.0, abs=0.1), "an answer at once leaves its time to the others"
    assert connect[2] is None, "the last one has all that is left"


@pytest.mark.feature("N2")
def test_a_node_with_one_address_is_asked_as_ever() -> None:
    wire, node = Wire(a=REFUSED), NodeAddresses(("a",))
    with pytest.raises(UnreachableError):
        ask(node, wire)
    assert wire.asked == [("a", None)]
    assert node.address == "a"


# --- over real sockets ---


@pytest.fixture
def server() -> Iterator[str]:
    channel = TcpChannel()
    yield channel.listen("127.0.0.1:0", lambda peer, frame: peer.send(b"to " + frame), _ignored)
    channel.close()


@pytest.fixture
def client() -> Iterator[TcpChannel]:
    channel = TcpChannel()
    yield channel
    channel.close()


def _ignored(peer: Peer) -> None:
    """Nothing is done about connections that end."""


@pytest.fixture
def full() -> Iterator[str]:
    """A listener that lets connections hang: its backlog is full."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=0)
    others = [socket.socket() for _ in range(4)]
    for other in others:
        other.setblocking(False)
        other.connect_ex(listener.getsockname())
    yield f"127.0.0.1:{listener.getsockname()[1]}"
    for sock in (listener, *others):
        sock.close()


@pytest.mark.feature("N2")
def test_an_address_that_hangs_costs_a_part_of_the_time_once(server: str, client: TcpChannel, full: str) -> None:
    node = NodeAddresses((full, server))
    began = time.monotonic()
    assert node.ask(client, b"A", 1.0) == b"to A"
    assert 0.45 < time.monotonic() - began < 0.95
    assert node.address == server
    began = time.monotonic()
    assert node.ask(client, b"A", 1.0) == b"to A"
    assert time.monotonic() - began < 0.4


@pytest.mark.feature("N2")
def test_an_address_where_a_frozen_process_does_not_greet_is_not_the_last_one(server: str, client: TcpChannel) -> None:
    """It takes connections into its backlog, and nothing of the request."""
    frozen = socket.create_server(("127.0.0.1", 0))
    try:
        client.introduce(b"hello", lambda address, reply: None)
        node = NodeAddresses((f"127.0.0.1:{frozen.getsockname()[1]}", server))
        assert node.ask(client, b"A", 1.0) == b"to A"
    finally:
        frozen.close()


@pytest.mark.feature("N2")
def test_a_request_that_takes_long_is_not_cut_short_by_the_time_to_connect(client: TcpChannel, full: str) -> None:
    slow, wake = TcpChannel(), threading.Event()

    def answer(peer: Peer, frame: bytes) -> None:
        wake.wait(0.7)
        peer.send(b"late")

    try:
        node = NodeAddresses((slow.listen("127.0.0.1:0", answer, _ignored), full))
        assert node.ask(client, b"A", 1.2) == b"late"
    finally:
        slow.close()
