"""This module gives kazoo's connection thread its sockets: that to the server, with TLS or without, and what wakes it,
a counter that never blocks whoever makes the request.

kazoo wakes it with a byte a request in a socket pair that only that thread empties. The pair holds some 280 of them.
Whoever asks for more while the thread does something else (it runs listeners, it connects) waits for it; if it is that
very thread, or one it waits for, they wait for ever. Bytes whose requests were dropped with a connection count, too.

An `eventfd` counts the same, one a request, and has room for 2^64 - 2.

What TLS has opened already does not show on the socket: several answers may come in one record, and kazoo, which waits
for the socket between two of them, would find the second one with the next heartbeat. So such a socket is ready here.
"""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Sequence
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from halog.adapters.zookeeper.access import TlsFiles, connect_tls

CONNECT_S = 10.0
"""So long a connection takes at most, where kazoo does not say."""


class CountingHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """A `CountingHandler` is kazoo's handler of threads, with such a counter for its socket pair. `tls`: how servers
    show who they are; None: in plain text."""

    def __init__(self, tls: TlsFiles | None = None) -> None:
        super().__init__()
        self._tls = tls
        self.tls_error: ssl.SSLError | None = None
        """What TLS said against the last connection that it ended."""

    def create_connection(
        self, address: tuple[str, int], hostname: object = None, timeout: float | None = None, **others: Any
    ) -> Any:
        if self._tls is None:
            return super().create_connection(address, hostname=hostname, timeout=timeout, **others)
        named = hostname if isinstance(hostname, str) else None  # for a word of four letters kazoo names the port
        return connect_tls(self._tls, address, named, timeout or CONNECT_S, self._heard)

    def _heard(self, error: ssl.SSLError) -> None:
        self.tls_error = error

    def select(self, rlist: Sequence[Any], wlist: Sequence[Any], xlist: Sequence[Any], timeout: Any = None) -> Any:
        opened = [sock for sock in rlist if isinstance(sock, ssl.SSLSocket) and sock.pending()]
        if not opened:
            return super().select(rlist, wlist, xlist, timeout)
        others = [sock for sock in rlist if sock not in opened]
        readable, writable, broken = super().select(others, wlist, xlist, 0)
        return [*opened, *readable], writable, broken

    def create_socket_pair(self) -> tuple[CounterEnd, CounterEnd]:
        counter = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_SEMAPHORE)
        return CounterEnd(counter), CounterEnd(os.dup(counter))


class CounterEnd:
    """Has one end of it: what kazoo uses of a socket."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def fileno(self) -> int:
        return self._fd

    def send(self, data: bytes) -> int:
        with self._lock:  # else it might write to what has the number by then
            if self._fd < 0:
                raise OSError("closed")
            os.eventfd_write(self._fd, len(data))
        return len(data)

    def recv(self, size: int) -> bytes:
        """Return one byte: kazoo asks for no more, and only where there is one."""
        os.eventfd_read(self._fd)
        return b"\0"

    def close(self) -> None:
        with self._lock:
            fd = self._fd
            self._fd = -1
        if fd >= 0:
            os.close(fd)
