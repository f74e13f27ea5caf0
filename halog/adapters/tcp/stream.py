"""This module holds a connected socket together with what protects its bytes: nothing, or TLS.

Whoever sends and receives is the same for both: what is sent is sealed first, and what is received is opened.
"""

from __future__ import annotations

import math
import random
import socket
import time
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from halog.adapters.tcp.framing import CHUNK, Unpacker
from halog.adapters.tcp.tls_session import HandshakeError
from halog.ports import Principal


class Protection(Protocol):
    """A `Protection` turns the bytes of frames into those on the wire, and back. Thread-safe."""

    @property
    def principal(self) -> Principal | None:
        """Return whom the other side's certificate names; None: it showed none."""

    @property
    def ended(self) -> bool:
        """Say whether the other side said that nothing more comes."""

    def seal(self, data: bytes) -> bytes:
        """Return what is to be sent for these bytes. Results must be sent in the order in which they were made."""

    def open(self, data: bytes) -> bytes:
        """Return what was sent with these bytes; it may be nothing yet. OSError if the other side broke the
        protection, or ended it with an error."""


class Plaintext:
    """`Plaintext` is the protection that leaves everything as it is."""

    principal: Final = None
    ended: Final = False

    def seal(self, data: bytes) -> bytes:
        return data

    def open(self, data: bytes) -> bytes:
        return data


PLAINTEXT: Final = Plaintext()


LIVES_S: Final = 3_600.0
"""A connection by TLS is used for so long at most: then the certificates of both sides count anew."""
SOONEST: Final = 0.75
"""Whoever made it replaces it a little before, each at another time."""
PATIENCE: Final = 1.1
"""Whoever took it ends it only then."""


class Stream(NamedTuple):
    """A `Stream` is a connected socket and the protection of its bytes. Times are of `time.monotonic`."""

    sock: socket.socket
    protection: Protection
    renewed_at: float = math.inf
    """From then on whoever made the connection makes another one in its place."""
    ended_at: float = math.inf
    """From then on nothing more is taken of it."""


def made(sock: socket.socket, protection: Protection) -> Stream:
    """Return a connection by TLS that this process made."""
    return Stream(sock, protection, renewed_at=time.monotonic() + LIVES_S * random.uniform(SOONEST, 1.0))


def taken(sock: socket.socket, protection: Protection) -> Stream:
    """Return a connection by TLS that somebody made to this process."""
    return Stream(sock, protection, ended_at=time.monotonic() + LIVES_S * PATIENCE)


def incoming(stream: Stream, limit: int, first: bytes) -> Iterator[bytes]:
    """Yield frames until the other side closes, beginning with those in `first`, which was received already. Raises
    OSError where the connection breaks, FrameError where it is no peer."""
    unpack = Unpacker(limit)
    yield from unpack.feed(first)
    while not stream.protection.ended and (data := stream.sock.recv(CHUNK)):
        if time.monotonic() > stream.ended_at:
            raise HandshakeError("it is older than a connection by TLS may be, and was not made anew")
        yield from unpack.feed(stream.protection.open(data))
