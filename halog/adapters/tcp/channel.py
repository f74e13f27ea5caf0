"""This module implements the Channel port over TCP, plain or with TLS, with threads. It moves frames; it never looks
into one, and never reconnects by itself."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable

from halog.adapters.tcp.connect import Dialler
from halog.adapters.tcp.connection import Connection
from halog.adapters.tcp.framing import MAX_FRAME, format_address, parse_address
from halog.adapters.tcp.handshakes import Handshakes
from halog.adapters.tcp.pool import Pool
from halog.adapters.tcp.security import ChannelSecurity
from halog.adapters.tcp.stream import PLAINTEXT, Stream
from halog.errors import ClosedError, UnreachableError
from halog.ports import Peer, Principal, Renewal

logger = logging.getLogger("halog.channel")
BACKLOG = 128
JOIN_S = 2.0  # a handler that takes longer must not hang a shutdown


def _tell_nobody(host: str, why: str) -> None:
    """Nobody is told of connections that are refused."""


class TcpChannel:
    """Has a node's listeners, connections and pool. All threads are named `halog-…`, daemon, and joined by `close`."""

    def __init__(self, max_frame: int = MAX_FRAME, security: ChannelSecurity | None = None) -> None:
        """Have no connection yet. `security`: None, everything is plain."""
        self._max_frame = max_frame
        self._security = security
        self._dialler = Dialler(security)
        self._pool = Pool(max_frame, self._dialler)
        self._lock = threading.Lock()
        self._connections: set[Connection] = set()
        self._listeners: list[tuple[socket.socket, threading.Thread, Handshakes | None]] = []
        self._closed = False

    def introduce(self, frame: bytes, answered: Callable[[str, bytes], object]) -> None:
        self._pool.introduce(frame, answered)

    def expect(self, address: str, node: str, *, tls: bool) -> None:
        self._dialler.expect(address, node, tls=tls)

    def listen(
        self,
        address: str,
        on_frame: Callable[[Peer, bytes], None],
        on_closed: Callable[[Peer], None],
        on_refused: Callable[[str, str], None] = _tell_nobody,
    ) -> str:
        host, port = parse_address(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            server = socket.create_server((host, port), family=family, backlog=BACKLOG)
        except OSError as e:
            raise UnreachableError(f"cannot listen on {address}: {e.strerror}", address=address) from None
        name = format_address(server.getsockname())

        def take(stream: Stream, first: bytes) -> None:
            with contextlib.suppress(OSError, ClosedError):
                self._adopt(stream, on_frame, on_closed, first)

        handshakes = None if self._security is None else Handshakes(self._security, name, take, on_refused)
        thread = threading.Thread(
            target=self._accept, args=(server, take, handshakes), name=f"halog-accept-{name}", daemon=True
        )
        with self._lock:
            self._listeners.append((server, thread, handshakes))
        thread.start()
        return name

    def _accept(
        self, server: socket.socket, take: Callable[[Stream, bytes], None], handshakes: Handshakes | None
    ) -> None:
        while True:
            try:
                sock, _ = server.accept()
            except OSError as e:
                if self._closed:
                    server.close()
                    return
                logger.warning("accept failed: %s", e)
                threading.Event().wait(0.05)  # too many open files: give others time to close some
                continue
            if handshakes is None:
                take(Stream(sock, PLAINTEXT), b"")
            else:
                handshakes.add(sock)

    def _adopt(
        self,
        stream: Stream,
        on_frame: Callable[[Peer, bytes], None],
        on_closed: Callable[[Peer], None],
        first: bytes = b"",
    ) -> Connection:
        def closed(peer: Connection) -> None:
            with self._lock:
                self._connections.discard(peer)
            on_closed(peer)

        try:
            connection = Connection(stream, on_frame, closed, self._max_frame, first)
        except OSError:
            stream.sock.close()
            raise
        with self._lock:
            if self._closed:
                stream.sock.close()
                raise ClosedError("the channel is closed")
            self._connections.add(connection)
        connection.start()
        return connection

    def dial(
        self,
        address: str,
        timeout_s: float,
        on_frame: Callable[[Peer, bytes], None],
        on_closed: Callable[[Peer], None],
    ) -> Peer:
        stream = self._dialler.connect(address, timeout_s)
        try:
            return self._adopt(stream, on_frame, on_closed)
        except OSError as e:
            raise UnreachableError(f"{address} broke the connection: {e}", address=address, refused=False) from None

    def request(self, address: str, frame: bytes, timeout_s: float, *, connect_s: float | None = None) -> bytes:
        return self._pool.request(address, frame, timeout_s, connect_s)

    def renew(self, *, again: bool = False) -> Renewal | None:
        return None if self._security is None else self._security.renew(again=again)

    @property
    def principal(self) -> Principal | None:
        return None if self._security is None else self._security.me

    def drop(self, address: str) -> None:
        self._pool.drop(address)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            connections, listeners = list(self._connections), list(self._listeners)
            self._listeners.clear()
        for server, _, handshakes in listeners:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)  # wakes its accept; the thread closes it
            if handshakes is not None:
                handshakes.close()
        self._pool.close()
        for connection in connections:
            connection.close()
        for thread in [t for _, t, _ in listeners] + [c.thread for c in connections]:
            if thread is not threading.current_thread() and thread.is_alive():
                thread.join(JOIN_S)
