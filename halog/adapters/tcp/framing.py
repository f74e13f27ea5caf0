"""This module makes the bytes of the node channel: 4 bytes length, big-endian, then the frame. It never looks into a
frame."""

from __future__ import annotations

import struct

from halog.errors import FrameError

HEAD = struct.Struct(">I")
MAX_FRAME = 16 << 20  # three times the largest commit record (R8), so a batch of pushes or a page of objects fits
CHUNK = 1 << 16  # one read takes a burst of small frames at once


def pack(frame: bytes, limit: int = MAX_FRAME) -> bytes:
    """Return the frame with its length. Raises FrameError if it is too large to be accepted by the other side."""
    if len(frame) > limit:
        said = f"a frame of {len(frame)} bytes exceeds the limit of {limit} (limits.max_frame_bytes)"
        raise FrameError(said, size=len(frame), limit=limit)
    return HEAD.pack(len(frame)) + frame


class Unpacker:
    """Makes frames of bytes."""

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames completed by `data`. Raises FrameError for a length over the limit, before anything is
        allocated."""
        buffer = self._buffer
        buffer += data
        frames, at = [], 0
        while len(buffer) - at >= 4:
            (size,) = HEAD.unpack_from(buffer, at)
            if size > self._limit:
                raise FrameError(f"a peer announced a frame of {size} bytes, the limit is {self._limit}", size=size)
            if len(buffer) - at - 4 < size:
                break
            frames.append(bytes(memoryview(buffer)[at + 4 : at + 4 + size]))
            at += 4 + size
        if at:
            del buffer[:at]
        return frames

    @property
    def is_empty(self) -> bool:
        """Say whether everything fed so far was complete frames."""
        return not self._buffer


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of `host:port`, with brackets around an IPv6 host."""
    host, _, port = address.rpartition(":")
    return host.strip("[]") or "127.0.0.1", int(port)


def format_address(name: tuple[object, ...]) -> str:
    """Return `host:port` of what a socket calls its name; the inverse of `parse_address`."""
    host, port = str(name[0]), name[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
