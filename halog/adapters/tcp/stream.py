"""This module holds a connected socket together with what protects its bytes: nothing, or TLS.

Whoever sends and receives is the same for both: what is sent is sealed first, and what is received is opened.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from halog.adapters.tcp.framing import CHUNK, Unpacker
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


class Stream(NamedTuple):
    """A `Stream` is a connected socket and the protection of its bytes."""

    sock: socket.socket
    protection: Protection


def incoming(stream: Stream, limit: int, first: bytes) -> Iterator[bytes]:
    """Yield frames until the other side closes, beginning with those in `first`, which was received already. Raises
    OSError where the connection breaks, FrameError where it is no peer."""
    unpack = Unpacker(limit)
    yield from unpack.feed(first)
    while not stream.protection.ended and (data := stream.sock.recv(CHUNK)):
        yield from unpack.feed(stream.protection.open(data))
