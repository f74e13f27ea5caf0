"""The line itself: what passes it, what does not, and when."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from halog.embedded import ports
from halog.embedded.line import BACK, HELD, HOST, THERE, SiteLine

pytestmark = pytest.mark.feature("M5")

SHORT_S = 0.3
"""Long enough to say that nothing comes; a byte takes less than a millisecond."""
COMES_S = 60.0
"""What is allowed for what is certain to come."""


class Echo:
    """Says what it hears, in capitals; `heard` is what it heard."""

    def __init__(self, host: str = HOST) -> None:
        self.heard = b""
        self.port = ports.pick(set())
        self._door = socket.create_server((host, self.port))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._door.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(1 << 16):
                    self.heard += data
                    connection.sendall(data.upper())
            except OSError:
                return

    def close(self) -> None:
        with suppress(OSError):  # closed already
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.close()


@pytest.fixture
def line(echo: Echo) -> Iterator[SiteLine]:
    made = SiteLine(echo.port)
    yield made
    made.close()


def called(line: SiteLine) -> socket.socket:
    return socket.create_connection((HOST, line.port), COMES_S)


def said(caller: socket.socket, size: int, limit_s: float = COMES_S) -> bytes:
    """What comes within the time."""
    caller.settimeout(limit_s)
    data = b""
    try:
        while len(data) < size and (more := caller.recv(size - len(data))):
            data += more
    except TimeoutError:
        pass
    return data


def eventually(condition: Callable[[], object], what: str, limit_s: float = COMES_S) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def answered_s(caller: socket.socket) -> float:
    """How long a byte takes there and back."""
    began = time.monotonic()
    caller.sendall(b"a")
    assert said(caller, 1) == b"A"
    return time.monotonic() - began


def longest_s(caller: socket.socket, times: int) -> float:
    """Of so many bytes, one after the other."""
    found = []
    for _ in range(times):
        found.append(answered_s(caller))
        time.sleep(0.02)
    return max(found)


def test_all_passes_both_ways_and_so_does_the_end(line: SiteLine, echo: Echo) -> None:
    """More than a line holds, too; a caller that has said all still hears the answer to it."""
    with called(line) as caller:
        much = b"x" * (3 * HELD)

        def say() -> None:
            caller.sendall(much)
            caller.shutdown(socket.SHUT_WR)

        threading.Thread(target=say, daemon=True).start()
        assert said(caller, len(much)) == much.upper()
        assert said(caller, 1) == b"", "and then the end"
    assert (len(echo.heard), line.made) == (len(much), 1)


def test_what_was_sent_into_a_cut_arrives_after_it(line: SiteLine, echo: Echo) -> None:
    with called(line) as caller:
        caller.sendall(b"a")
        assert said(caller, 1) == b"A"
        line.cut()
        caller.sendall(b"late")
        assert said(caller, 1, SHORT_S) == b""
        assert echo.heard == b"a"
        line.heal()
        assert said(caller, 4) == b"LATE"


def test_nobody_is_connected_over_a_cut_line_and_all_who_wait_are_after_it(line: SiteLine) -> None:
    line.cut()
    with called(line) as caller:
        caller.sendall(b"a")
        assert (said(caller, 1, SHORT_S), line.made) == (b"", 0)
        line.heal()
        assert (said(caller, 1), line.made) == (b"A", 1)


@pytest.mark.parametrize("way", [THERE, BACK])
def test_a_line_cut_one_way(line: SiteLine, echo: Echo, way: str) -> None:
    """The server hears and its answer does not come, or it does not hear; and nobody new is connected."""
    with called(line) as caller:
        caller.sendall(b"a")
        assert said(caller, 1) == b"A"
        line.cut(way)
        caller.sendall(b"b")
        assert said(caller, 1, SHORT_S) == b""
        assert echo.heard == (b"a" if way == THERE else b"ab")
        with called(line) as second:
            second.sendall(b"c")
            assert (said(second, 1, SHORT_S), line.made) == (b"", 1)
        line.heal()
        assert said(caller, 1) == b"B"


def test_nobody_hears_over_a_cut_line_that_the_other_has_gone(line: SiteLine) -> None:
    with called(line) as caller:
        eventually(lambda: line.made, "connected")
        other = called(line)
        eventually(lambda: line.made == 2, "both are connected")
        line.cut()
        other.close()
        assert said(caller, 1, SHORT_S) == b""
        caller.sendall(b"a")
        line.heal()
        assert said(caller, 1) == b"A", "the connection is still there"


def test_a_line_that_refuses_resets_all_and_lets_nobody_in(line: SiteLine) -> None:
    with called(line) as caller:
        caller.sendall(b"a")
        assert said(caller, 1) == b"A"
        line.refuse()
        with pytest.raises(ConnectionResetError):
            said(caller, 1)
        with pytest.raises(ConnectionRefusedError):
            called(line)
        line.heal()
        with called(line) as again:
            again.sendall(b"b")
            assert said(again, 1) == b"B"


def test_a_slow_line_takes_its_time_both_ways(line: SiteLine) -> None:
    line.delay(0.1)
    with called(line) as caller:
        assert min(answered_s(caller) for _ in range(3)) >= 0.2
        line.heal()
        eventually(lambda: answered_s(caller) < 0.1, "it takes no time any more")


def test_a_flapping_line_passes_all_in_the_end_and_not_at_once(line: SiteLine) -> None:
    with called(line) as caller:
        line.flap(0.05, 0.3)
        eventually(lambda: longest_s(caller, 20) > 0.25, "it was cut in between")
        line.heal()
        eventually(lambda: longest_s(caller, 20) < 0.25, "and is not any more")


def test_who_calls_before_the_server_is_there_is_sent_away(line: SiteLine, echo: Echo) -> None:
    echo.close()
    with pytest.raises(ConnectionResetError), called(line) as caller:
        caller.recv(1)
    assert line.made == 0


def test_a_closed_line_leaves_its_port(echo: Echo) -> None:
    line = SiteLine(echo.port)
    caller = called(line)
    eventually(lambda: line.made, "connected")
    line.close()
    with caller, pytest.raises(ConnectionResetError):
        said(caller, 1)
    again = SiteLine(echo.port, line.port)
    with called(again) as caller:
        caller.sendall(b"a")
        assert said(caller, 1) == b"A"
    again.close()
