"""Whom a witness tells: strangers, too, who may have a node's address by now (R5)."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from halog.adapters.tcp.channel import TcpChannel
from halog.adapters.tcp.security import ChannelSecurity
from halog.runtime.membership.witness_process import CONNECT_S, TELL_S, tell
from tests.certificates import TestAuthority, node_uri

pytestmark = pytest.mark.feature("R5")

DRIP_S = CONNECT_S / 4
"""Each byte comes long before a limit of its own would be over."""


@contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of one that takes a connection and answers so."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                connection, _ = listening.accept()
                with connection, suppress(OSError):
                    answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            thread.join()


def test_a_stranger_who_drips_bytes_does_not_hold_it() -> None:
    over = threading.Event()

    def drip(connection: socket.socket) -> None:
        while not over.wait(DRIP_S):
            connection.sendall(b".")

    got: list[bytes] = []
    began = time.monotonic()
    with server(drip) as stranger, server(lambda connection: got.append(connection.recv(64))) as node:
        telling = threading.Thread(target=tell, args=(b"it is no more", [stranger, node]), daemon=True)
        telling.start()
        telling.join(4 * TELL_S)
        over.set()
        assert not telling.is_alive()
    assert time.monotonic() - began < 2 * TELL_S
    assert got == [b"it is no more"]


def test_who_reads_slowly_is_waited_for() -> None:
    """A node that answers within the time has read all of it before the connection ends."""
    got: list[bytes] = []

    def late(connection: socket.socket) -> None:
        time.sleep(TELL_S / 2)
        got.extend(iter(lambda: connection.recv(64), b""))

    with server(late) as node:
        tell(b"it is no more", [node])
    assert b"".join(got) == b"it is no more"


@pytest.mark.feature("N5")
def test_a_witness_speaks_tls_to_those_that_take_it(tmp_path: Path) -> None:
    """With its node's certificate, in plain text to the others, and to nobody of another authority."""
    files = TestAuthority(tmp_path / "ours").issue(node_uri("A"))
    foreign = TestAuthority(tmp_path / "theirs", "theirs").issue(node_uri("B"))
    got: list[tuple[str, bytes]] = []

    def listening(security: ChannelSecurity | None) -> tuple[TcpChannel, str]:
        channel = TcpChannel(security=security)
        return channel, channel.listen(
            "127.0.0.1:0", lambda peer, frame: got.append((str(peer.principal), frame)), lambda peer: None
        )

    secure, there = listening(ChannelSecurity("test", files, required=True, refusal=str.encode))
    stranger, elsewhere = listening(ChannelSecurity("test", foreign, required=True, refusal=str.encode))
    plain, here = listening(None)
    tell(b"\0\0\0\4gone", [here], [there, elsewhere], [str(file) for file in files])
    for channel in (secure, stranger, plain):
        channel.close()
    assert sorted(got) == [("None", b"gone"), ("node A", b"gone")]
