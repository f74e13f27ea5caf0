"""Baselines of the direct path: a record pushed to a second process over TCP, alone or beside Kafka.

The second process stores it in a dict and acknowledges; nothing else is checked or kept.
"""

from __future__ import annotations

import itertools
import socket
import struct
import threading
from typing import Any

from benchmarks.loop import Op, closed_loop
from benchmarks.raw import VALUE, WAIT_S, producer

_FRAME = struct.Struct(">iq")
_ID = struct.Struct(">q")


class RawStore:
    """The second process."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    def port(self) -> dict[str, Any]:
        """Where to push to."""
        return {"port": self._server.getsockname()[1]}

    def _accept(self) -> None:
        while True:
            sock, _ = self._server.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        store: dict[int, bytes] = {}
        held = b""
        while data := sock.recv(262_144):
            held += data
            at, answers = 0, []
            while len(held) - at >= _FRAME.size:
                size, ident = _FRAME.unpack_from(held, at)
                end = at + _FRAME.size + size
                if end > len(held):
                    break
                store[ident % 1000] = held[at + _FRAME.size : end]
                answers.append(_ID.pack(ident))
                at = end
            held = held[at:]
            sock.sendall(b"".join(answers))


class RawPusher:
    """The client process: pushes, produces, or both, and waits for all of it."""

    def __init__(self, bootstrap: str, topic: str, port: int) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.port = port
        self._producer: Any = None
        self._count = itertools.count(1)

    def _out(self) -> Any:
        self._producer = self._producer or producer(self.bootstrap, idempotent=True)
        return self._producer

    def pushed(self, clients: int, seconds: float) -> dict[str, Any]:
        """To the second process only; each caller has a connection of its own."""
        return closed_loop(lambda i: self._pushing(self._connect()), clients, seconds)

    def parallel(self, clients: int, seconds: float) -> dict[str, Any]:
        """To the second process and to Kafka at once, until both have acknowledged."""
        if clients == 1:
            return closed_loop(self._both_polling, 1, seconds)
        return self._with_poller(self._both, clients, seconds)

    def produced(self, clients: int, seconds: float) -> dict[str, Any]:
        """To Kafka only."""
        if clients == 1:
            return closed_loop(self._produce_polling, 1, seconds)
        return self._with_poller(self._produce, clients, seconds)

    def _with_poller(self, make: Any, clients: int, seconds: float) -> dict[str, Any]:
        stop = threading.Event()

        def poll() -> None:
            while not stop.is_set():
                self._out().poll(0.1)

        poller = threading.Thread(target=poll)
        poller.start()
        try:
            return closed_loop(make, clients, seconds)
        finally:
            stop.set()
            poller.join()

    def _connect(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def _frame(self) -> bytes:
        return _FRAME.pack(len(VALUE), next(self._count)) + VALUE

    def _pushing(self, sock: socket.socket) -> Op:
        def op(k: int) -> None:
            sock.sendall(self._frame())
            _exactly(sock)

        return op

    def _produce_polling(self, i: int) -> Op:
        out, done = self._out(), list[Any]()

        def op(k: int) -> None:
            done.clear()
            out.produce(self.topic, VALUE, b"k%d" % (k % 1000), partition=0, on_delivery=lambda e, m: done.append(e))
            while not done:
                out.poll(1)

        return op

    def _both_polling(self, i: int) -> Op:
        out, sock, done = self._out(), self._connect(), list[Any]()

        def op(k: int) -> None:
            done.clear()
            out.produce(self.topic, VALUE, b"k%d" % (k % 1000), partition=0, on_delivery=lambda e, m: done.append(e))
            sock.sendall(self._frame())
            while not done:
                out.poll(1)
            _exactly(sock)

        return op

    def _produce(self, i: int) -> Op:
        out, lock = self._out(), threading.Lock()
        lock.acquire()

        def op(k: int) -> None:
            out.produce(self.topic, VALUE, b"k%d" % (k % 1000), partition=0, on_delivery=lambda e, m: lock.release())
            if not lock.acquire(timeout=WAIT_S):
                raise TimeoutError("Kafka did not acknowledge")

        return op

    def _both(self, i: int) -> Op:
        sock, produce = self._connect(), self._produce(i)

        def op(k: int) -> None:
            sock.sendall(self._frame())
            produce(k)
            _exactly(sock)

        return op


def _exactly(sock: socket.socket) -> None:
    got = 0
    while got < _ID.size:
        data = sock.recv(_ID.size - got)
        if not data:
            raise ConnectionError("the second process has gone")
        got += len(data)
