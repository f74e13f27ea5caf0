"""This module keeps connections for request and reply, one request at a time each; the caller itself writes and reads.

A connection goes back only after a whole reply: after any error or timeout it is closed, so that a late reply can never
be taken for the next request's. Nothing is retried here.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections.abc import Callable

from halog.adapters.tcp.connect import Dialler
from halog.adapters.tcp.framing import CHUNK, Unpacker, pack
from halog.adapters.tcp.stream import Stream
from halog.adapters.tcp.tls_session import HandshakeError
from halog.errors import ClosedError, DeadlineError, FrameError, HalogError, UnreachableError, mark_unsent, unmark

MAX_IDLE = 64  # per address: as many callers as a busy client has threads; more would be opened and closed each time

_TIMEVAL = struct.Struct("@ll")


class Pool:
    """Keeps idle and busy connections by address."""

    def __init__(self, max_frame: int, dialler: Dialler) -> None:
        self._max_frame = max_frame
        self._dialler = dialler
        self._idle: dict[str, list[Stream]] = {}
        self._busy: dict[Stream, str] = {}
        self._lock = threading.Lock()
        self._greeting = b""
        self._answered: Callable[[str, bytes], object] = _unasked
        self._closed = False

    def introduce(self, frame: bytes, answered: Callable[[str, bytes], object]) -> None:
        """Set what every new connection begins with, and who judges what is answered; those already open keep what
        they said."""
        self._greeting = pack(frame, self._max_frame)
        self._answered = answered

    def request(self, address: str, frame: bytes, timeout_s: float, connect_s: float | None = None) -> bytes:
        """See `Channel.request`."""
        try:
            data = pack(frame, self._max_frame)
        except FrameError as error:
            error.evidence["sent"] = False
            raise
        now, ready_s = time.monotonic(), timeout_s if connect_s is None else min(connect_s, timeout_s)
        deadline = now + timeout_s
        try:
            stream = self._borrow(address, now + ready_s, ready_s)
        except BaseException as error:
            mark_unsent(error, frame)
            raise
        try:
            _send(stream, address, data, timeout_s)
            reply = _receive(stream, address, deadline, timeout_s, self._max_frame)
        except BaseException as error:
            unmark(error)
            self._discard(stream)
            raise
        self._give_back(stream, address)
        return reply

    def drop(self, address: str) -> None:
        """Close all connections to an address, also those in use: their callers' reads end at once."""
        with self._lock:
            idle = self._idle.pop(address, [])
            busy = [s for s, a in self._busy.items() if a == address]
            for stream in busy:
                with contextlib.suppress(OSError):
                    stream.sock.shutdown(socket.SHUT_RDWR)  # its caller closes it
        for stream in idle:
            stream.sock.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            addresses = {*self._idle, *self._busy.values()}
        for address in addresses:
            self.drop(address)

    def _borrow(self, address: str, deadline: float, timeout_s: float) -> Stream:
        while (kept := self._take(address)) is not None:
            # asked outside the lock: the question gives up the GIL, and others would queue up
            if time.monotonic() < kept.renewed_at and not _readable(kept.sock):
                return kept
            self._discard(kept)  # the other side closed it, or said something nobody asked for; or it is too old
        stream = self._dialler.connect(address, timeout_s)
        with self._lock:
            self._busy[stream] = address
        if self._greeting:
            try:
                self._greet(stream, address, deadline, timeout_s)
            except BaseException as error:
                if isinstance(error, HalogError):  # whatever was met: the request was not sent
                    error.evidence["sent"] = False
                self._discard(stream)
                raise
        return stream

    def _greet(self, stream: Stream, address: str, deadline: float, timeout_s: float) -> None:
        _send(stream, address, self._greeting, timeout_s)
        try:
            self._answered(address, _receive(stream, address, deadline, timeout_s, self._max_frame))
        except FrameError as error:  # something else listens there by now
            said = f"{address} did not answer as a node does: {error}"
            raise UnreachableError(said, address=address, refused=False) from None

    def _take(self, address: str) -> Stream | None:
        with self._lock:
            if self._closed:
                raise ClosedError("the channel is closed")
            idle = self._idle.get(address)
            if not idle:
                return None
            stream = idle.pop()
            self._busy[stream] = address
            return stream

    def _give_back(self, stream: Stream, address: str) -> None:
        with self._lock:
            self._busy.pop(stream, None)
            idle = self._idle.setdefault(address, [])
            if not self._closed and len(idle) < MAX_IDLE:
                idle.append(stream)
                return
        stream.sock.close()

    def _discard(self, stream: Stream) -> None:
        with self._lock:
            self._busy.pop(stream, None)
        stream.sock.close()


def _unasked(address: str, reply: bytes) -> None:
    """Do nothing: nobody is greeted, so nobody answers."""


def _readable(sock: socket.socket) -> bool:
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    return bool(poller.poll(0))


def _send(stream: Stream, address: str, data: bytes, timeout_s: float) -> None:
    """Send a frame. An incomplete one cannot be acted on, so a failure here is `sent=False`. Almost always the kernel
    takes all of it at once; only else there is a time limit to set."""
    sock = stream.sock
    try:
        data = stream.protection.seal(data)
        try:
            sent = sock.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            _limit(sock, socket.SO_SNDTIMEO, timeout_s)
            sock.sendall(memoryview(data)[sent:])
    except OSError as e:
        raise _lost(address, str(e), sent=False) from None


def _receive(stream: Stream, address: str, deadline: float, timeout_s: float, limit: int) -> bytes:
    unpack = Unpacker(limit)
    frames: list[bytes] = []
    while not frames:
        try:
            _limit(stream.sock, socket.SO_RCVTIMEO, deadline - time.monotonic())
            data = stream.sock.recv(CHUNK)
            opened = stream.protection.open(data)
        except BlockingIOError:
            raise DeadlineError(f"{address} did not reply in {timeout_s:g} s", address=address) from None
        except HandshakeError as e:
            raise _distrusted(address, e) from None
        except OSError as e:
            raise _lost(address, str(e), sent=True) from None
        if not data or (stream.protection.ended and not opened):
            raise _lost(address, "closed before the reply", sent=True)
        frames = unpack.feed(opened)
    if len(frames) > 1 or not unpack.is_empty:
        raise FrameError(f"{address} sent more than the one reply", address=address)
    return frames[0]


def _limit(sock: socket.socket, which: int, seconds: float) -> None:
    """Set a time limit that the kernel watches: Python's own timeouts cost two more calls that give up the GIL."""
    us = max(round(seconds * 1_000_000), 1_000)
    sock.setsockopt(socket.SOL_SOCKET, which, _TIMEVAL.pack(us // 1_000_000, us % 1_000_000))


def _distrusted(address: str, why: HandshakeError) -> UnreachableError:
    """Return the error of two processes that do not trust each other, or not any more."""
    error = UnreachableError(
        f"{address} is not spoken to: {why}", address=address, refused=False, sent=True, greeting=True
    )
    if why.refused:
        error.evidence["unauthorized"] = str(why)
    return error


def _lost(address: str, why: str, *, sent: bool) -> UnreachableError:
    return UnreachableError(f"{address} broke the connection: {why}", address=address, refused=False, sent=sent)
