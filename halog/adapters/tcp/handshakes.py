"""This module brings new connections to their first frame, where a listener has TLS: all of them on one thread.

Whoever connects and says nothing, or little, costs a place in a table until its time is over, and no thread. The first
byte tells TLS from halog's frames: a TLS record of a handshake begins with 0x16, and a frame that began so would be of
369 MB. Whoever is refused is told why, as far as it can understand it.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from halog.adapters.tcp.framing import CHUNK, format_address, pack
from halog.adapters.tcp.security import ChannelSecurity
from halog.adapters.tcp.stream import PLAINTEXT, Stream, taken
from halog.adapters.tcp.tls_session import HandshakeError, TlsSession

logger = logging.getLogger("halog.channel")

TIME_S: Final = 5.0
"""A handshake takes some ms, and some hundred on a busy machine."""
FAREWELL_S: Final = 1.0
"""So long whoever is refused may take to read why."""
MOST: Final = 256
"""So many are under way at once. If there are more, the oldest one gives way: whoever means it is done long before."""
TLS_RECORD: Final = 0x16
LARGEST_FRAME: Final = TLS_RECORD << 24
"""A frame of so many bytes would begin as TLS does."""


class _Step(Enum):
    FIRST_BYTE = auto()
    SHAKING = auto()
    FAREWELL = auto()


class _Newcomer:
    """A `_Newcomer` is a connection without a frame yet."""

    def __init__(self, sock: socket.socket, host: str, until: float) -> None:
        self.sock = sock
        self.host = host
        self.until = until
        self.step = _Step.FIRST_BYTE
        self.session: TlsSession | None = None


class Handshakes:
    """`Handshakes` are those of one listener. `take(stream, first)` is given each connection that may begin;
    `refused(host, why)` is told of each that may not."""

    def __init__(
        self,
        security: ChannelSecurity,
        name: str,
        take: Callable[[Stream, bytes], None],
        refused: Callable[[str, str], None],
    ) -> None:
        self._security = security
        self._take = take
        self._refused = refused
        self._lock = threading.Lock()
        self._added: list[socket.socket] = []
        self._closed = False
        self._newcomers: dict[socket.socket, _Newcomer] = {}
        """In the order in which they came."""
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name=f"halog-handshakes-{name}", daemon=True)
        self._thread.start()

    def add(self, sock: socket.socket) -> None:
        """Begin with a connection that was just accepted."""
        with self._lock:
            if self._closed:
                sock.close()
                return
            self._added.append(sock)
        with contextlib.suppress(OSError):  # full: it is awake
            self._wake.send(b"x")

    def close(self) -> None:
        """Drop all that are under way."""
        with self._lock:
            self._closed = True
        with contextlib.suppress(OSError):
            self._wake.send(b"x")
        self._thread.join(FAREWELL_S)

    # --- its thread ---

    def _run(self) -> None:
        while not self._closed:
            for key, _ in self._selector.select(self._left()):
                if key.fileobj is self._woken:
                    self._admit()
                else:
                    self._advance(key.data)
            now = time.monotonic()
            for newcomer in [n for n in self._newcomers.values() if n.until <= now]:
                self._expire(newcomer)
        for newcomer in list(self._newcomers.values()):
            self._end(newcomer)
        with self._lock:
            for sock in self._added:
                sock.close()
        self._selector.close()
        self._wake.close()
        self._woken.close()

    def _left(self) -> float | None:
        ends = min((n.until for n in self._newcomers.values()), default=None)
        return None if ends is None else max(ends - time.monotonic(), 0.0)

    def _admit(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(CHUNK)
        with self._lock:
            added, self._added = self._added, []
        for sock in added:
            try:
                host = format_address(sock.getpeername()).rpartition(":")[0]
                sock.setblocking(False)
            except OSError:
                sock.close()
                continue
            if len(self._newcomers) >= MOST:
                self._expire(next(iter(self._newcomers.values())))
            newcomer = _Newcomer(sock, host, time.monotonic() + TIME_S)
            self._newcomers[sock] = newcomer
            self._selector.register(sock, selectors.EVENT_READ, newcomer)

    def _advance(self, newcomer: _Newcomer) -> None:
        if newcomer.sock not in self._newcomers:
            return  # it gave way meanwhile
        try:
            data = newcomer.sock.recv(CHUNK)
            if not data:
                self._end(newcomer)
            elif newcomer.step is not _Step.FAREWELL:
                self._received(newcomer, data)
        except BlockingIOError:
            pass
        except HandshakeError as error:
            self._refuse(newcomer, str(error), b"")
        except OSError:
            self._end(newcomer)
        except Exception:  # one must not end the handshakes of all others
            logger.exception("a connection from %s ends: its handshake failed", newcomer.host)
            self._end(newcomer)

    def _received(self, newcomer: _Newcomer, data: bytes) -> None:
        if newcomer.step is _Step.FIRST_BYTE and data[0] != TLS_RECORD:
            if self._security.required:
                why = "this node requires TLS (security.node_tls there), and the connection has none"
                self._refuse(newcomer, why, pack(self._security.refusal(why)))
            else:
                self._release(newcomer, Stream(newcomer.sock, PLAINTEXT), data)
            return
        if newcomer.session is None:
            newcomer.session = self._security.server()
            newcomer.step = _Step.SHAKING
        self._shake(newcomer, newcomer.session, data)

    def _shake(self, newcomer: _Newcomer, session: TlsSession, data: bytes) -> None:
        try:
            done = session.shake(data)
        finally:
            with contextlib.suppress(OSError):  # a few KB: whose buffer takes them not means no handshake
                newcomer.sock.send(session.take())
        if not done:
            return
        try:
            self._security.judge(session)
            first = session.open(b"")
        except HandshakeError as error:
            with contextlib.suppress(HandshakeError):
                self._refuse(newcomer, str(error), session.seal(pack(self._security.refusal(str(error)))))
            return
        self._release(newcomer, taken(newcomer.sock, session), first)

    def _release(self, newcomer: _Newcomer, stream: Stream, first: bytes) -> None:
        """Hand a connection over to whoever listens."""
        self._forget(newcomer)
        newcomer.sock.setblocking(True)
        self._take(stream, first)

    def _refuse(self, newcomer: _Newcomer, why: str, said: bytes) -> None:
        """Tell why, then wait a moment: a socket that is closed with something unread takes back what was sent."""
        newcomer.step = _Step.FAREWELL
        newcomer.until = time.monotonic() + FAREWELL_S
        self._refused(newcomer.host, why)
        try:
            newcomer.sock.send(said)
            newcomer.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._end(newcomer)

    def _expire(self, newcomer: _Newcomer) -> None:
        if newcomer.step is not _Step.FAREWELL:
            self._refused(newcomer.host, "its first words, or its TLS handshake, took too long")
        self._end(newcomer)

    def _forget(self, newcomer: _Newcomer) -> None:
        self._newcomers.pop(newcomer.sock, None)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(newcomer.sock)

    def _end(self, newcomer: _Newcomer) -> None:
        self._forget(newcomer)
        newcomer.sock.close()
