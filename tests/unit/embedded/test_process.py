"""A server that is paused does nothing any more from the moment `pause` returns, however often it is paused."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from halog.embedded.process import Server

BUSY = """
import threading
def work():
    while True:
        sum(range(1000))
for _ in range(4):
    threading.Thread(target=work).start()
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "logs").mkdir()
    made = Server("kafka", tmp_path, [sys.executable, "-c", BUSY], lambda: True)
    made.spawn()
    yield made
    made.kill()


def states(server: Server) -> set[str]:
    """Of all its threads: R, S, T, …"""
    tasks = Path(f"/proc/{server.pid}/task").iterdir()
    return {(t / "stat").read_text().rpartition(")")[2].split()[0] for t in tasks}


def test_all_its_threads_have_stopped_when_pause_returns(server: Server) -> None:
    for _ in range(50):
        server.pause()
        assert states(server) == {"T"}
        server.signal(signal.SIGCONT)


def test_pausing_it_twice_or_behind_its_end_does_not_wait(server: Server) -> None:
    server.pause()
    server.pause()
    server.kill()
    server.pause()
    assert not server.alive()
