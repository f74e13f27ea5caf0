"""A TCP proxy for faults on the way: replies held back, connections cut, and the way closed."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading


class Proxy:
    """Forwards to `target`. `hold_replies` loses what the server says from now on; `cut` breaks all connections."""

    def __init__(self, target: str, at: str = "127.0.0.1") -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._server = socket.create_server((at, 0))
        self.address = f"{at}:{self._server.getsockname()[1]}"
        self._sockets: set[socket.socket] = set()
        self._open = True
        self._holding = threading.Event()
        self.lost = threading.Event()
        """An answer of a ZooKeeper to a request has been held back."""
        self._ended = False
        threading.Thread(target=self._accept, name="proxy-accept", daemon=True).start()

    def hold_replies(self) -> None:
        self.lost.clear()
        self._holding.set()

    def pass_replies(self) -> None:
        self._holding.clear()

    def cut(self, *, reopen: bool = True) -> None:
        """Break what is connected; with `reopen=False` new connections are broken, too, until `open`."""
        self._open = reopen
        for sock in list(self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def open(self) -> None:
        self._open = True

    def close(self) -> None:
        self._ended = True
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut(reopen=False)

    def _accept(self) -> None:
        while not self._ended:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            if not self._open:
                client.close()
                continue
            try:
                server = socket.create_connection(self._target, timeout=2)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for sock in (client, server):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets |= {client, server}
            threading.Thread(target=self._pump, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, replies: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if replies and self._holding.is_set():
                    if _answers(data):
                        self.lost.set()
                    continue  # lost
                sink.sendall(data)
        for sock in (source, sink):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._sockets.discard(source)
        source.close()


def _answers(data: bytes) -> bool:
    """Say whether a ZooKeeper's frames answer a request: pings and watches have numbers below 0."""
    while len(data) >= 8:
        size, number = struct.unpack_from(">ii", data)
        if number >= 0:
            return True
        data = data[4 + size :]
    return False
