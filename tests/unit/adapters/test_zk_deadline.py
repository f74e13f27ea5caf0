"""A command waits for ZooKeeper up to one end: connecting, looking why, reading and closing are part of it."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.handlers.threading import KazooTimeoutError

from halog.adapters.zookeeper.coordinator import ZkCoordinator
from halog.adapters.zookeeper.reachability import silence
from halog.errors import UnreachableError

pytestmark = pytest.mark.feature("O1", "N4")
LONG_MS = 60_000
"""Of this session kazoo waits a minute for whatever it asks."""
SOON_S = 20.0
"""So much later a machine may be that has other things to do."""
PASSWORD = struct.pack(">i", 16) + bytes(16)
SESSION = struct.pack(">iiq", 0, LONG_MS, 77) + PASSWORD
GRANTED = struct.pack(">i", len(SESSION)) + SESSION


@pytest.fixture
def stopped() -> Iterator[str]:
    """What a stopped process leaves: the kernel makes connections, nobody reads them."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def stops() -> Iterator[str]:
    """One that is stopped once it has granted a session."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            made, _ = server.accept()
            made.recv(1024)
            made.sendall(GRANTED)
            over.wait()
            made.close()

        over = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        over.set()
        thread.join()


def test_a_server_that_is_stopped_is_waited_for_once(stopped: str) -> None:
    began = time.monotonic()
    with pytest.raises(UnreachableError, match="accepts connections and says nothing"):
        ZkCoordinator(stopped, "x", session_timeout_ms=LONG_MS).connect(lambda state: None, 1.0)
    assert time.monotonic() - began < SOON_S


def test_many_servers_are_looked_at_together(stopped: str) -> None:
    began = time.monotonic()
    found = silence(",".join([stopped] * 40), 1.0)
    assert time.monotonic() - began < SOON_S
    assert found.text.count("accepts connections and says nothing") == 40


def test_reads_have_what_connecting_left(stops: str, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = ZkCoordinator(stops, "x", session_timeout_ms=LONG_MS)
    coordinator.connect(lambda state: None, 30.0)
    waited: list[float] = []

    class Unanswered:
        def get(self, timeout: float) -> Any:
            waited.append(timeout)
            raise KazooTimeoutError

    now = time.monotonic()
    monkeypatch.setattr(coordinator._client, "get_children_async", lambda path: Unanswered())
    for later_s in (26.0, 40.0):
        monkeypatch.setattr("halog.adapters.zookeeper.coordinator.time.monotonic", lambda at=now + later_s: at)
        with pytest.raises(UnreachableError):
            coordinator.children("partitions")
    coordinator.joined()
    with pytest.raises(UnreachableError):
        coordinator.children("partitions")
    monkeypatch.undo()
    coordinator.close()
    assert waited[0] <= 4.0, "of the five seconds that each answer has, four are left"
    assert waited[1:] == [0.0, 5.0]


def test_a_server_that_has_stopped_since_holds_up_no_end(stops: str) -> None:
    coordinator = ZkCoordinator(stops, "x", session_timeout_ms=LONG_MS)
    coordinator.connect(lambda state: None, 10.0)
    began = time.monotonic()
    coordinator.close()
    assert time.monotonic() - began < SOON_S
