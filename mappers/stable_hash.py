"""This module has the hash that places objects: seeded BLAKE2b, 64 bits.

The hash never changes: a changed bit would send every key elsewhere. The tests hold fixed vectors. BLAKE2b is in every
Python, the same on every platform, and has no weak inputs an application could hit by accident. Its personalisation
keeps our use apart from other uses of the same hash. Java and Spark have it in Bouncy Castle.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

PERSON: Final = b"halog.mapper.v1"
"""BLAKE2b's personalisation field, which is the seed."""
BITS: Final = 64

_BASE: Final = blake2b(digest_size=BITS // 8, person=PERSON)


def stable_hash(data: bytes) -> int:
    """Return an unsigned 64-bit hash: the 8 bytes of BLAKE2b with our personalisation, read big-endian."""
    return int.from_bytes(_digest(data), "big")


def stable_hashes(data: Iterable[bytes]) -> bytes:
    """Return the hashes of many, 8 bytes each, read big-endian, for readers that look at them as an array."""
    return b"".join(map(_digest, data))


def _digest(data: bytes) -> bytes:
    state = _BASE.copy()
    state.update(data)
    return state.digest()
