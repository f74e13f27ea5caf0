"""The hash that places objects: seeded BLAKE2b, 64 bits.

Never changes: a changed bit would send every key elsewhere; the tests hold fixed vectors. The theory: BLAKE2b is in
every Python, the same on every platform, has no weak inputs an application could hit by accident, and its
personalisation keeps ours apart from other uses of the same hash. Java and Spark have it in Bouncy Castle.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

PERSON: Final = b"halog.mapper.v1"
"""BLAKE2b's personalisation field: the seed."""
BITS: Final = 64

_BASE: Final = blake2b(digest_size=BITS // 8, person=PERSON)


def stable_hash(data: bytes) -> int:
    """An unsigned 64-bit hash: the 8 bytes of BLAKE2b with our personalisation, read big-endian."""
    return int.from_bytes(_digest(data), "big")


def stable_hashes(data: Iterable[bytes]) -> bytes:
    """The hashes of many, 8 bytes each, read big-endian: for whoever looks at them as an array."""
    return b"".join(map(_digest, data))


def _digest(data: bytes) -> bytes:
    state = _BASE.copy()
    state.update(data)
    return state.digest()
