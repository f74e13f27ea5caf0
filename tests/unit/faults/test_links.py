"""The proxy of the fault suite: what is held comes later and whole, what is lost breaks its connection."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.faults.links import LENGTH, Link, Way, kafka_request


def framed(data: bytes) -> bytes:
    return LENGTH.pack(len(data)) + data


def request(kind: int, number: int) -> bytes:
    """As Kafka's: kind, version, number."""
    return framed(kind.to_bytes(2, "big") + b"\0\0" + number.to_bytes(4, "big"))


@pytest.fixture
def link() -> Iterator[Link]:
    """To a server that answers each request with its number and `here`."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()

    def answer(connection: socket.socket) -> None:
        with suppress(OSError), connection, connection.makefile("rb") as said:
            while len(head := said.read(4)) == 4:
                connection.sendall(framed(said.read(*LENGTH.unpack(head))[4:8] + b"here"))

    threading.Thread(target=serve, daemon=True).start()
    made = Link(
        lambda: f"127.0.0.1:{server.getsockname()[1]}", named=kafka_request, edit=lambda f: f.replace(b"here", b"EDIT")
    )
    yield made
    made.close()
    server.close()


@pytest.fixture
def near(link: Link) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", link.port), 5) as connection:
        connection.settimeout(0.3)
        yield connection


def answered(connection: socket.socket) -> bytes:
    return connection.recv(12, socket.MSG_WAITALL)


def test_frames_pass_and_are_edited_on_their_way_back(near: socket.socket) -> None:
    near.sendall(request(0, 7))
    assert answered(near) == framed(b"\0\0\0\x07EDIT")


@pytest.mark.parametrize("way", [Way.OUT, Way.BACK, Way.BOTH])
def test_what_is_held_comes_when_the_way_is_open(link: Link, near: socket.socket, way: Way) -> None:
    link.hold(way)
    near.sendall(request(0, 7))
    with pytest.raises(TimeoutError):
        answered(near)
    assert link.held == 1
    link.heal()
    assert answered(near) == framed(b"\0\0\0\x07EDIT")


def test_only_replies_of_the_named_kind_are_held(link: Link, near: socket.socket) -> None:
    link.hold(Way.BACK, {3})
    near.sendall(request(1, 1))
    assert answered(near)
    near.sendall(request(3, 2))
    with pytest.raises(TimeoutError):
        answered(near)


def test_a_lost_reply_breaks_its_connection_once(link: Link, near: socket.socket) -> None:
    link.lose(0)
    near.sendall(request(0, 1))
    assert answered(near) == b""
    assert link.lost == 1
    with socket.create_connection(("127.0.0.1", link.port), 5) as again:
        again.sendall(request(0, 2))
        assert answered(again)


def test_a_cut_way_takes_nobody_until_it_is_healed(link: Link, near: socket.socket) -> None:
    near.sendall(request(0, 1))
    assert answered(near)
    link.cut()
    assert near.recv(1) == b""
    with socket.create_connection(("127.0.0.1", link.port), 5) as refused:
        assert refused.recv(1) == b""
    link.heal()
    with socket.create_connection(("127.0.0.1", link.port), 5) as again:
        again.sendall(request(0, 2))
        assert answered(again)
