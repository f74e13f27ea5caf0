"""This module wakes kazoo's connection thread by a counter, which never blocks whoever makes the request.

kazoo wakes it with a byte a request in a socket pair that only that thread empties. The pair holds some 280 of them.
Whoever asks for more while the thread does something else (it runs listeners, it connects) waits for it; if it is that
very thread, or one it waits for, they wait for ever. Bytes whose requests were dropped with a connection count, too.

An `eventfd` counts the same, one a request, and has room for 2^64 - 2.
"""

from __future__ import annotations

import os
import threading

from kazoo.handlers.threading import SequentialThreadingHandler


class CountingHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """A `CountingHandler` is kazoo's handler of threads, with such a counter for its socket pair."""

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
