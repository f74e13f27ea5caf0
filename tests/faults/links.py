"""A TCP proxy for one connection's way between two processes: hold, slow, cut, and lose chosen replies.

All three protocols of a cluster (Kafka, ZooKeeper, the node channel) send frames with four bytes of length in front, so
whole frames are moved, and one kind of request can be picked. What is held is not lost: as with TCP, it comes when the
way is open again, unless the connection broke meanwhile. A connection that is opened while the way is held is taken and
stays silent.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from enum import Flag, auto

LENGTH = struct.Struct(">i")
LOOK_S = 0.02
Named = Callable[[bytes], tuple[bytes, int]]
"""A request's number, which its reply repeats in its first four bytes, and its kind."""


def kafka_request(frame: bytes) -> tuple[bytes, int]:
    return frame[4:8], int.from_bytes(frame[:2], "big")


def zookeeper_request(frame: bytes) -> tuple[bytes, int]:
    return frame[:4], int.from_bytes(frame[4:8], "big")


class Way(Flag):
    """From the side that connected, or back to it."""

    OUT = auto()
    BACK = auto()
    BOTH = OUT | BACK


class Link:
    """Listens at `address` for connections to `target`. `edit` changes frames on their way back."""

    def __init__(
        self,
        target: Callable[[], str],
        *,
        named: Named | None = None,
        edit: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self._target = target
        self._named = named
        self._edit = edit
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.lost = 0
        """Replies lost so far, of those asked for by `lose`."""
        self.held = 0
        """Frames that had to wait."""
        self._sockets: set[socket.socket] = set()
        self._closed = Way(0)
        self._kinds: Collection[int] | None = None
        self._delay_s = 0.0
        self._refusing = self._ended = False
        self._losing: list[int] = []
        threading.Thread(target=self._accept, name=f"link-{self.port}", daemon=True).start()

    # --- faults ---

    def hold(self, way: Way = Way.BOTH, kinds: Collection[int] | None = None) -> None:
        """Frames that go this way wait; `kinds`: only requests of these kinds, or replies to them."""
        self._kinds = kinds
        self._closed = way

    def slow(self, seconds: float) -> None:
        """Each frame takes so long in each direction."""
        self._delay_s = seconds

    def lose(self, kind: int, times: int = 1) -> None:
        """The next replies to requests of this kind never come: the connection breaks in their place."""
        self._losing = [kind] * times

    def cut(self) -> None:
        """Break what is connected, and whatever is connected until `heal`."""
        self._refusing = True
        self.reset()

    def reset(self) -> None:
        """Break what is connected."""
        for sock in list(self._sockets):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def heal(self) -> None:
        self._closed = Way(0)
        self._kinds = None
        self._delay_s = 0.0
        self._refusing = False
        self._losing = []

    def close(self) -> None:
        self.heal()
        self._ended = True
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()

    # --- moving ---

    def _accept(self) -> None:
        while not self._ended:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            host, _, port = self._target().rpartition(":")
            try:
                if self._refusing:
                    raise ConnectionRefusedError
                far = socket.create_connection((host, int(port)), 2)
            except OSError:
                near.close()
                continue
            self._join(near, far)

    def _join(self, near: socket.socket, far: socket.socket) -> None:
        asked: dict[bytes, int] = {}
        for sock in (near, far):
            sock.settimeout(None)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sockets |= {near, far}
        for source, sink, way in ((near, far, Way.OUT), (far, near, Way.BACK)):
            threading.Thread(target=self._pump, args=(source, sink, way, asked), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, way: Way, asked: dict[bytes, int]) -> None:
        with suppress(OSError):
            for frame in _frames(source):
                kind = self._kind(frame, way, asked)
                if way is Way.BACK and kind in self._losing:
                    self._losing.remove(kind)
                    self.lost += 1
                    break
                self._wait(way, kind, source)
                edited = self._edit(frame) if self._edit is not None and way is Way.BACK else frame
                sink.sendall(LENGTH.pack(len(edited)) + edited)
        for sock in (source, sink):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._sockets.discard(source)
        source.close()

    def _kind(self, frame: bytes, way: Way, asked: dict[bytes, int]) -> int:
        if self._named is None:
            return -1
        if way is Way.BACK:
            return asked.pop(frame[:4], -1)
        number, kind = self._named(frame)
        asked[number] = kind
        return kind

    def _wait(self, way: Way, kind: int, source: socket.socket) -> None:
        if self._delay_s:
            time.sleep(self._delay_s)
        self.held += self._stands(way, kind)
        while self._stands(way, kind):
            if source not in self._sockets:
                raise ConnectionError("the other direction has ended")
            time.sleep(LOOK_S)

    def _stands(self, way: Way, kind: int) -> bool:
        return bool(way & self._closed) and (self._kinds is None or kind in self._kinds)


def _frames(source: socket.socket) -> Iterator[bytes]:
    with source.makefile("rb") as said:
        while len(length := said.read(4)) == 4:
            (size,) = LENGTH.unpack(length)
            frame = said.read(size)
            if len(frame) < size:
                return
            yield frame
