"""This module keeps a hash of a copy's objects, which is the same on every copy of the same lsn (U1).

The chain's hash says that copies have read the same records. This one says that they have made the same objects of
them, also where two versions of halog did it. It is the sum, modulo 2**128, of one term for each object that the log
has. So it does not depend on the order of the objects, nor on how a copy came by them, and a change costs two terms,
however many objects there are. Versions and lsns are not in it. `docs/protocol.md` specifies the term.

Copies under traffic are rarely at the same lsn. So each remembers its hash at some lsns that all of them pass: the
multiples of `EVERY`.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final

from halog.core.ids import REF_BYTES
from halog.core.log.records import Change

HASH_BYTES: Final = 16
EVERY: Final = 64
"""Lsns from one mark to the next."""
KEPT: Final = 64
"""Marks that a copy remembers: its last 4,096 records."""

MASK: Final = (1 << 8 * HASH_BYTES) - 1
_LENGTH: Final = struct.Struct(">I").pack
_REF: Final = slice(8, 8 + REF_BYTES)
_VALUE: Final = slice(8 + REF_BYTES, None)

Marks = tuple[tuple[int, bytes], ...]
"""Lsns with the hash of the objects there, ascending."""


def term(key: bytes, ref: bytes, value: bytes) -> int:
    """Return what one object adds to the hash."""
    data = _LENGTH(len(key)) + key + ref + value
    return int.from_bytes(blake2b(data, digest_size=HASH_BYTES).digest())


def stored_term(key: bytes, data: bytes | None) -> int:
    """Return what an object adds, from its bytes as stored; None: there is none."""
    return 0 if data is None else term(key, data[_REF], data[_VALUE])


def total(objects: Iterable[tuple[bytes, bytes]]) -> int:
    """Return the hash of objects as stored, each with its index key, as a number."""
    return sum(stored_term(key, data) for key, data in objects) & MASK


def to_bytes(number: int) -> bytes:
    """Return a hash in the form in which it is stored and told."""
    return number.to_bytes(HASH_BYTES)


class StateHash:
    """Keeps the hash of one copy. Changes run under the partition's lock."""

    def __init__(self) -> None:
        self.lsn = 0
        """Where the objects are those that the hash is of."""
        self._total = 0
        self._marks: deque[tuple[int, int]] = deque(maxlen=KEPT)
        self.settled = False
        """Are the objects those of the log at this copy's lsn? Not yet while a copy reads what it missed: what it took
        from a state topic may be newer than its position."""

    @property
    def now(self) -> bytes:
        """Return the hash of all objects as they are."""
        return to_bytes(self._total)

    @property
    def marks(self) -> Marks:
        """Return what is remembered of earlier lsns, ascending."""
        return tuple((lsn, to_bytes(number)) for lsn, number in self._marks)

    def begin(self, number: int, lsn: int) -> None:
        """Begin with the hash of what a store holds."""
        self._total, self.lsn = number, lsn
        self._marks.clear()
        self.settled = False

    def settle(self) -> None:
        """Remember marks from here on: everything that the log had when the copy was opened is taken."""
        self.settled = True

    def change(self, changes: Sequence[Change], standing: dict[bytes, int]) -> None:
        """Take changes into the hash, in order. `standing` has the term of what stands under each of their keys, and
        has it again afterwards."""
        number = self._total
        for c in changes:
            new = 0 if c.value is None else term(c.key, c.ref, c.value)
            number += new - standing[c.key]
            standing[c.key] = new
        self._total = number & MASK

    def passed(self, lsn: int) -> None:
        """Note that everything up to this lsn is taken."""
        if lsn % EVERY == 0 and lsn != self.lsn and self.settled:
            self._marks.append((lsn, self._total))
        self.lsn = lsn
