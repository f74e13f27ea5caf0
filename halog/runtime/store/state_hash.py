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

from halog.core.ids import ABSENT, REF_BYTES
from halog.core.log.records import CREATE, Change

HASH_BYTES: Final = 16
EVERY: Final = 64
"""Lsns from one mark to the next."""
KEPT: Final = 64
"""Marks that a copy remembers: its last 4,096 records."""

_MASK: Final = (1 << 8 * HASH_BYTES) - 1
_LENGTH: Final = struct.Struct(">I").pack
_REF: Final = slice(8, 8 + REF_BYTES)
_VALUE: Final = slice(8 + REF_BYTES, None)
_FROM_BYTES: Final = int.from_bytes  # most significant byte first

NO_OBJECTS: Final = bytes(HASH_BYTES)
"""The hash of an empty copy."""

Marks = tuple[tuple[int, bytes], ...]
"""Lsns with the hash of the objects there, ascending."""


def term(key: bytes, ref: bytes, value: bytes) -> int:
    """Return what one object adds to the hash."""
    data = _LENGTH(len(key)) + key + ref + value
    return _FROM_BYTES(blake2b(data, digest_size=HASH_BYTES).digest())


def stored_term(key: bytes, data: bytes | None) -> int:
    """Return what an object adds, from its bytes as stored; None: there is none."""
    return 0 if data is None else term(key, data[_REF], data[_VALUE])


def total(objects: Iterable[tuple[bytes, bytes]]) -> int:
    """Return the hash of objects as stored, each with its index key, as a number."""
    return sum(stored_term(key, data) for key, data in objects) & _MASK


def to_bytes(number: int) -> bytes:
    """Return a hash in the form in which it is stored and told."""
    return (number & _MASK).to_bytes(HASH_BYTES)


class StateHash:
    """Keeps the hash of one copy. Changes run under the partition's lock.

    What a change replaces its record says, where it can: a look at a store costs ten times as much. So the hash follows
    the log, and whoever doubts that the store does so too looks at all that is stored. Where a store does not say what
    its objects come to, they are counted once somebody asks, when the copy is settled. Until then the hash is known but
    for a constant.
    """

    def __init__(self) -> None:
        self.lsn = 0
        """Where the objects are those that the hash is of."""
        self.settled = False
        """Has the copy read what the log had when it was opened? Before that, what it took from a state topic may be
        newer than its lsn."""
        self._base: int | None = 0
        """The hash where the copy began; None: not counted."""
        self.since = 0
        """What was added to it since."""
        self._marks: deque[tuple[int, int]] = deque(maxlen=KEPT)

    @property
    def known(self) -> bool:
        """Say whether the objects were counted."""
        return self._base is not None

    @property
    def now(self) -> bytes:
        """Return the hash of all objects as they are; b"": they were not counted."""
        return self.after(self.since)

    def after(self, since: int) -> bytes:
        """Return the hash when `since` had been added to where the copy began; b"": the objects were not counted."""
        return b"" if self._base is None else to_bytes(self._base + since)

    @property
    def marks(self) -> Marks:
        """Return what is remembered of earlier lsns, ascending; nothing where the objects were not counted."""
        base = self._base
        return () if base is None else tuple((lsn, to_bytes(base + since)) for lsn, since in self._marks)

    def begin(self, stored: bytes, lsn: int) -> None:
        """Begin with the hash that stands beside the objects in the store; b"": none does."""
        self._base = int.from_bytes(stored) if stored else None
        self.lsn, self.since, self.settled = lsn, 0, False
        self._marks.clear()

    def settle(self) -> None:
        """Note that everything is taken that the log had when the copy was opened. Remember marks from here on."""
        self.settled = True

    def counted(self, number: int, since: int) -> None:
        """Note what the objects came to, when `since` had been added."""
        if self._base is None:
            self._base = number - since

    def follow(self, changes: Sequence[Change]) -> bool:
        """Take changes into the hash, if the log alone says what they replace. Return False, and take nothing, if it
        does not: what stands there must be looked up. What is taken before the objects may be counted, the count
        has."""
        if self._base is None and not self.settled:
            return True
        since = self.since
        for c in changes:
            key, value, before = c.key, c.value, c.before
            head = _LENGTH(len(key)) + key + c.ref
            if value is not None:
                since += _FROM_BYTES(blake2b(head + value, digest_size=HASH_BYTES).digest())
            if c.op == CREATE:
                if c.replaced != ABSENT:
                    return False
            elif before is None:
                return False
            else:
                since -= _FROM_BYTES(blake2b(head + before, digest_size=HASH_BYTES).digest())
        self.since = since & _MASK
        return True

    def change(self, changes: Sequence[Change], terms: dict[bytes, int]) -> None:
        """Take changes into the hash, in order. `terms` has what stands under each of their keys, and has it again
        afterwards."""
        since = self.since
        for c in changes:
            new = 0 if c.value is None else term(c.key, c.ref, c.value)
            since += new - terms[c.key]
            terms[c.key] = new
        self.since = since & _MASK

    def passed(self, lsn: int) -> None:
        """Note that everything up to this lsn is taken."""
        if lsn % EVERY == 0 and lsn != self.lsn and self.settled:
            self._marks.append((lsn, self.since))
        self.lsn = lsn
