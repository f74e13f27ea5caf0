"""This module says how much goes into one frame: pages of answers, and pieces of questions, by their bytes.

Limits are in bytes, and objects have any size, so nothing is cut by a count alone. A page says itself whether it is the
end: a short one may be short because its objects are large.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from halog.backend import CommittedObject, InvocationResult
from halog.runtime.rpc import frames
from halog.schema.definition import ID_BYTES

T = TypeVar("T")

PAGE_BYTES: Final = 1_000_000
"""Of objects in a page, unless one alone is larger; of keys in a question."""

ITEM_BYTES: Final = 64
"""Of an object beside its value and its key: reference, version, lengths."""

COUNTED: Final = 50_000
COUNTED_BYTES: Final = 50_000_000
"""Objects, and bytes of them, that are counted for one answer: about 0.1 s."""

PAGE_OBJECTS: Final = 500
"""Asked for in one page of a scan: about 100 kB at 200 bytes each."""


def room_in(max_frame_bytes: int) -> int:
    """Return how many bytes a page has, so that it fits a frame: `max_frame_bytes` is at least twice the largest
    record."""
    return min(PAGE_BYTES, max_frame_bytes // 2)


def size_of(found: CommittedObject | None) -> int:
    """Return how many bytes an object has in a frame, or a little more."""
    return 1 if found is None else len(found.value) + len(found.key) + ITEM_BYTES


def page(found: Iterable[CommittedObject | None], room: int, limit: int = sys.maxsize) -> frames.Objects:
    """Return the first of them, at least one, as many as `room` and `limit` take; its `end` says whether they are
    all."""
    items: list[CommittedObject | None] = []
    for one in found:
        size = size_of(one)
        if items and (size > room or len(items) >= limit):
            return frames.Objects(items, end=False)
        items.append(one)
        room -= size
    return frames.Objects(items, end=True)


def abridged(invoked: InvocationResult, room: int) -> InvocationResult:
    """Return an answer to a call: of the objects that it read, those beyond `room` bytes have no values, and who called
    fetches them by itself."""
    if sum(map(size_of, invoked.found)) <= room:
        return invoked
    told: list[CommittedObject] = []
    for one in invoked.found:
        room -= size_of(one)
        told.append(one if room >= 0 else CommittedObject(one.ref, one.version, b"", one.key))
    return msgspec.structs.replace(invoked, found=tuple(told))


def count(found: Iterable[CommittedObject], lsn: int) -> frames.CountReply:
    """Count how many of each type the first of them are, as many as `COUNTED` and `COUNTED_BYTES` take."""
    types: dict[bytes, int] = {}
    last, room, left = b"", COUNTED_BYTES, COUNTED
    for one in found:
        if not left or room < 0:
            return frames.CountReply(types, last, end=False, lsn=lsn)
        type_id = one.value[:ID_BYTES]
        types[type_id] = types.get(type_id, 0) + 1
        last, room, left = one.key, room - len(one.value), left - 1
    return frames.CountReply(types, last, end=True, lsn=lsn)


def pieces(
    items: Iterable[T], size_of: Callable[[T], int], room: int = PAGE_BYTES, limit: int = sys.maxsize
) -> Iterator[list[T]]:
    """Yield all of them in order, in pieces of at most `room` bytes and `limit` items; what is larger goes alone."""
    piece: list[T] = []
    size = 0
    for item in items:
        its = size_of(item)
        if piece and (size + its > room or len(piece) >= limit):
            yield piece
            piece, size = [], 0
        piece.append(item)
        size += its
    if piece:
        yield piece


def first_of(keys: Sequence[bytes], at: int, room: int = PAGE_BYTES) -> list[bytes]:
    """Return the keys from `at` on that one question takes."""
    if len(keys) == 1:
        return list(keys)
    return next(pieces(keys[at:] if at else keys, key_size, room), [])


def key_size(key: bytes) -> int:
    """Return how many bytes a key has in a frame, or a little more."""
    return len(key) + 5
