"""This module makes connections to other processes: TCP, and TLS where the other side is to have it.

Everything here happens before the first frame: whatever fails, nothing was sent.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Final, NamedTuple

from halog.adapters.tcp.framing import CHUNK, parse_address
from halog.adapters.tcp.security import ChannelSecurity
from halog.adapters.tcp.stream import PLAINTEXT, Stream, made
from halog.adapters.tcp.tls_session import HandshakeError, TlsSession
from halog.errors import UnreachableError

MOST_EXPECTED: Final = 10_000
"""So many addresses are kept in mind: those of all registered nodes are noted again with each change of one of them, so
only addresses of nodes that are gone are ever forgotten."""


class _ExpectedNode(NamedTuple):
    node: str
    tls: bool


class Dialler:
    """A `Dialler` connects by what is known of an address. `security`: None, this process speaks no TLS."""

    def __init__(self, security: ChannelSecurity | None) -> None:
        self._security = security
        self._lock = threading.Lock()
        self._expected: dict[str, _ExpectedNode] = {}
        """By address; what was noted longest ago stands first, and is forgotten first."""

    def expect(self, address: str, node: str, *, tls: bool) -> None:
        with self._lock:
            self._expected.pop(address, None)
            self._expected[address] = _ExpectedNode(node, tls)
            while len(self._expected) > MOST_EXPECTED:
                del self._expected[next(iter(self._expected))]

    def connect(self, address: str, timeout_s: float) -> Stream:
        """Return a connected stream. Raises UnreachableError with evidence `refused` and `sent=False`."""
        until = time.monotonic() + timeout_s
        sock = _connected(address, timeout_s)
        expected = self._expected.get(address, _ExpectedNode("", False))
        if self._security is None or not (self._security.required or expected.tls):
            return Stream(sock, PLAINTEXT)
        try:
            session = self._security.client()
            _shake(sock, session, until)
            self._security.judge_node(session, expected.node)
            sock.settimeout(None)
        except TimeoutError:
            sock.close()
            raise _failed(address, f"completed no TLS handshake in {timeout_s:g} s", greeting=False) from None
        except HandshakeError as error:
            sock.close()
            failed = _failed(address, f"is not spoken to: {error}", greeting=True)
            if error.refused:
                failed.evidence["unauthorized"] = str(error)
            raise failed from None
        except OSError as error:
            sock.close()
            failed = _failed(address, f"broke the connection in the TLS handshake: {error}", greeting=False)
            failed.evidence["broke"] = True
            raise failed from None
        return made(sock, session)


def _failed(address: str, said: str, *, greeting: bool) -> UnreachableError:
    """Return the error of a handshake that failed; `greeting`: not for want of an answer."""
    error = UnreachableError(f"{address} {said}", address=address, refused=False, sent=False)
    if greeting:
        error.evidence["greeting"] = True
    return error


def _shake(sock: socket.socket, session: TlsSession, until: float) -> None:
    data = b""
    while True:
        try:
            done = session.shake(data)
        except HandshakeError:
            with contextlib.suppress(OSError):  # it is told why, if it still listens
                sock.send(session.take(), socket.MSG_DONTWAIT)
            raise
        sock.settimeout(_left(until))
        sock.sendall(session.take())
        if done:
            return
        sock.settimeout(_left(until))
        data = sock.recv(CHUNK)
        if not data:
            raise HandshakeError("it ended the TLS handshake; it may speak no TLS (security.node_tls there)")


def _left(until: float) -> float:
    """Return the seconds until then. Raises TimeoutError if it is over."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _connected(address: str, timeout_s: float) -> socket.socket:
    """Return a connected socket. Raises UnreachableError with evidence `refused` and `sent=False`."""
    try:
        sock = socket.create_connection(parse_address(address), timeout=max(timeout_s, 0.001))
    except (OSError, ValueError) as e:  # ValueError: no resolver takes such a name
        refused = isinstance(e, ConnectionRefusedError)
        said = "refuses the connection" if refused else f"cannot be connected: {e}"
        raise UnreachableError(f"{address} {said}", address=address, refused=refused, sent=False) from None
    try:
        itself = sock.getsockname() == sock.getpeername()  # a loopback port connected to itself: nobody listens there
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as e:  # the listener has died since, and the kernel took the connection back
        sock.close()
        raise UnreachableError(
            f"{address} broke the connection: {e}", address=address, refused=False, sent=False, broke=True
        ) from None
    if itself:
        sock.close()
        raise UnreachableError(f"{address} refuses the connection", address=address, refused=True, sent=False)
    sock.settimeout(None)
    return sock
