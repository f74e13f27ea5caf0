"""This module has one TCP connection of the node channel: a reader thread, and a send that never blocks.

What the kernel does not take at once waits in a bounded queue, drained by a thread that exists only meanwhile. A peer
that stops reading (SIGSTOP, a cut) costs memory up to the bound, then its connection, never the sender's time. This
module decides nothing: the runtime finds out who the peer is.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
import time
from collections.abc import Callable

from halog.adapters.tcp.framing import format_address, pack
from halog.adapters.tcp.stream import Stream, incoming
from halog.adapters.tcp.tls_session import HandshakeError
from halog.errors import FrameError, HalogError, UnreachableError
from halog.ports import Principal

logger = logging.getLogger("halog.channel")
MAX_QUEUED = 32 << 20  # two of the largest frames; a healthy peer on a loopback never has more than a burst waiting
DRAIN_S = 1.0  # how often a draining thread looks whether the connection was closed under it


class Connection:
    """A `Connection` implements a Peer. `on_closed` is called exactly once, on the reader's thread, whoever closed."""

    def __init__(
        self,
        stream: Stream,
        on_frame: Callable[[Connection, bytes], None],
        on_closed: Callable[[Connection], None],
        max_frame: int,
        first: bytes = b"",
    ) -> None:
        """Take a connected stream. `first` was received of it already."""
        sock = stream.sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(None)
        self._sock = sock
        self._stream = stream
        self._first = first
        self._on_frame = on_frame
        self._on_closed = on_closed
        self._max_frame = max_frame
        self._lock = threading.Lock()
        self._queue = bytearray()
        self._draining = False
        self._broken = False
        self.refusal = ""
        self.remote = format_address(sock.getpeername())
        self.thread = threading.Thread(target=self._read, name=f"halog-peer-{self.remote}", daemon=True)

    @property
    def principal(self) -> Principal | None:
        return self._stream.protection.principal

    @property
    def aged(self) -> bool:
        return time.monotonic() >= self._stream.renewed_at

    def start(self) -> None:
        """Begin to read. It is separate, so that the owner has registered the connection before its first frame."""
        self.thread.start()

    def send(self, frame: bytes) -> None:
        packed = pack(frame, self._max_frame)
        with self._lock:
            if self._broken:
                raise UnreachableError(f"the connection to {self.remote} is closed", address=self.remote)
            data = self._seal(packed)
            if self._queue:
                self._enqueue(data)
                return
            sent = self._try(data)
            if sent < len(data):
                self._enqueue(data[sent:])

    def offer(self, frame: bytes) -> None:
        if not self._queue:
            self.send(frame)

    def _seal(self, data: bytes) -> bytes:
        try:
            return self._stream.protection.seal(data)
        except OSError as e:
            self._break()
            raise UnreachableError(f"the connection to {self.remote} broke: {e}", address=self.remote) from None

    def _try(self, data: bytes | bytearray) -> int:
        try:
            return self._sock.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError as e:
            self._break()
            raise UnreachableError(f"the connection to {self.remote} broke: {e}", address=self.remote) from None

    def _enqueue(self, data: bytes) -> None:
        if len(self._queue) + len(data) > MAX_QUEUED:
            self._break()
            raise UnreachableError(
                f"{self.remote} does not read: {MAX_QUEUED >> 20} MiB wait for it; connection closed",
                address=self.remote,
            )
        self._queue += data
        if not self._draining:
            self._draining = True
            threading.Thread(target=self._drain, name=f"halog-drain-{self.remote}", daemon=True).start()

    def _drain(self) -> None:
        poller = select.poll()
        try:
            poller.register(self._sock, select.POLLOUT)
        except (ValueError, OSError):
            return  # closed meanwhile
        while self._drain_some():
            with contextlib.suppress(OSError):
                poller.poll(DRAIN_S * 1000)

    def _drain_some(self) -> bool:
        with self._lock:
            if not self._broken:
                with contextlib.suppress(UnreachableError):
                    del self._queue[: self._try(self._queue[: 1 << 20])]
            self._draining = bool(self._queue) and not self._broken
            return self._draining

    def _break(self) -> None:
        """End reads and writes; the reader closes the socket, so that its number is never reused under a thread."""
        self._broken = True
        self._queue.clear()
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with self._lock:
            self._break()

    def _read(self) -> None:
        try:
            for frame in incoming(self._stream, self._max_frame, self._first):
                self._on_frame(self, frame)
        except FrameError as e:
            level = logging.DEBUG if e.evidence.get("told") else logging.WARNING
            logger.log(level, "connection to %s closed: %s", self.remote, e)
        except HandshakeError as e:
            self.refusal = str(e)
            logger.warning("connection to %s closed: %s", self.remote, e)
        except OSError as e:
            logger.debug("connection to %s broke: %s", self.remote, e)
        except HalogError as e:
            logger.warning("connection to %s closed: %s", self.remote, e)
        except Exception:
            logger.exception("connection to %s closed: a handler raised", self.remote)
        finally:
            self._finish()

    def _finish(self) -> None:
        with self._lock:
            self._break()
            self._sock.close()
        try:
            self._on_closed(self)
        except Exception:
            logger.exception("after the connection to %s closed, a handler raised", self.remote)
