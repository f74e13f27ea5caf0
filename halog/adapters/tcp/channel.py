"""This module implements the Channel port over plain TCP with threads. It moves frames; it never looks into one, and
never reconnects by itself."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable

from halog.adapters.tcp.connection import Connection
from halog.adapters.tcp.framing import MAX_FRAME, format_address, parse_address
from halog.adapters.tcp.pool import Pool, connect
from halog.errors import ClosedError, UnreachableError
from halog.ports import Peer

logger = logging.getLogger("halog.channel")
BACKLOG = 128
JOIN_S = 2.0  # a handler that takes longer must not hang a shutdown


class TcpChannel:
    """Has a node's listeners, connections and pool. All threads are named `halog-…`, daemon, and joined by `close`."""

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self._max_frame = max_frame
        self._pool = Pool(max_frame)
        self._lock = threading.Lock()
        self._connections: set[Connection] = set()
        self._listeners: list[tuple[socket.socket, threading.Thread]] = []
        self._closed = False

    def introduce(self, frame: bytes, answered: Callable[[str, bytes], object]) -> None:
        self._pool.introduce(frame, answered)

    def listen(self, address: str, on_frame: Callable[[Peer, bytes], None], on_closed: Callable[[Peer], None]) -> str:
        host, port = parse_address(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            server = socket.create_server((host, port), family=family, backlog=BACKLOG)
        except OSError as e:
            raise UnreachableError(f"cannot listen on {address}: {e.strerror}", address=address) from None
        name = format_address(server.getsockname())
        thread = threading.Thread(
            target=self._accept, args=(server, on_frame, on_closed), name=f"halog-accept-{name}", daemon=True
        )
        with self._lock:
            self._listeners.append((server, thread))
        thread.start()
        return name

    def _accept(
        self, server: socket.socket, on_frame: Callable[[Peer, bytes], None], on_closed: Callable[[Peer], None]
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
            with contextlib.suppress(OSError, ClosedError):
                self._adopt(sock, on_frame, on_closed)

    def _adopt(
        self, sock: socket.socket, on_frame: Callable[[Peer, bytes], None], on_closed: Callable[[Peer], None]
    ) -> Connection:
        def closed(peer: Connection) -> None:
            with self._lock:
                self._connections.discard(peer)
            on_closed(peer)

        try:
            connection = Connection(sock, on_frame, closed, self._max_frame)
        except OSError:
            sock.close()
            raise
        with self._lock:
            if self._closed:
                sock.close()
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
        sock = connect(address, timeout_s)
        try:
            return self._adopt(sock, on_frame, on_closed)
        except OSError as e:
            raise UnreachableError(f"{address} broke the connection: {e}", address=address, refused=False) from None

    def request(self, address: str, frame: bytes, timeout_s: float, *, connect_s: float | None = None) -> bytes:
        return self._pool.request(address, frame, timeout_s, connect_s)

    def drop(self, address: str) -> None:
        self._pool.drop(address)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            connections, listeners = list(self._connections), list(self._listeners)
            self._listeners.clear()
        for server, _ in listeners:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)  # wakes its accept; the thread closes it
        self._pool.close()
        for connection in connections:
            connection.close()
        for thread in [t for _, t in listeners] + [c.thread for c in connections]:
            if thread is not threading.current_thread() and thread.is_alive():
                thread.join(JOIN_S)
