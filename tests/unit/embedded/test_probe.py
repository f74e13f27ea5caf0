"""The readiness questions, against servers that say right, wrong and nothing."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from halog.embedded import probe

Serve = Callable[[bytes], int]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server that answers its first client with the given bytes and hangs up."""
    listeners = []

    def start(answer: bytes) -> int:
        s = socket.create_server(("127.0.0.1", 0))
        listeners.append(s)

        def run() -> None:
            connection, _ = s.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(answer)

        threading.Thread(target=run, daemon=True).start()
        return int(s.getsockname()[1])

    yield start
    for s in listeners:
        s.close()


@pytest.mark.parametrize(
    ("answer", "ready"),
    [
        (struct.pack(">iii", 8, 7, 1), True),
        (struct.pack(">iii", 8, 7, 0), False),  # up, but no broker is registered yet
        (struct.pack(">iii", 8, 6, 1), False),  # somebody else's answer
        (b"HTTP/1.1 400 Bad", False),
        (b"\0", False),
        (b"", False),
    ],
)
def test_kafka_is_ready_when_metadata_names_a_broker(serve: Serve, answer: bytes, ready: bool) -> None:
    assert probe.kafka_answers(serve(answer)) is ready


@pytest.mark.parametrize(
    ("answer", "ready"),
    [
        (b"Zookeeper version: 3.9.3\nMode: standalone\n", True),
        (b"This ZooKeeper instance is not currently serving requests\n", False),
        (b"", False),
    ],
)
def test_zookeeper_is_ready_when_it_names_its_mode(serve: Serve, answer: bytes, ready: bool) -> None:
    assert probe.zookeeper_answers(serve(answer)) is ready


def test_a_closed_port_and_a_silent_server_are_not_ready() -> None:
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
        assert not probe.kafka_answers(port, 0.05)
        assert not probe.zookeeper_answers(port, 0.05)
    assert not probe.kafka_answers(port, 0.05)
    assert not probe.zookeeper_answers(port, 0.05)
