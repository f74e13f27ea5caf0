"""Which key a reference is under, on a copy that looks whether records contradict it (R2).

A hint, kept behind `r <reference>` in the store: whoever follows it looks whether that object is there and has that
reference, so what is left over here does no harm. Only async replicas ask, so a copy begins with it when it is first
asked, from what the store holds, and keeps it from then on, whatever its kind: all others pay nothing for it. An entry
of a key directory has its object's reference; it is none of these.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice

from halog.core.directory import is_entry
from halog.core.ids import REF_BYTES
from halog.core.records import CREATE, Change
from halog.ports import Store

EACH = 10_000
"""Written together at the beginning: about 1 MB."""

_REF = slice(8, 8 + REF_BYTES)
"""In an object as stored."""

Item = tuple[bytes, bytes | None]


class References:
    """Of one copy. The key `r` alone says that all there was is in it."""

    def __init__(self, store: Store, prefix: bytes) -> None:
        self._store, self._k, self._r = store, prefix + b"k", prefix + b"r"
        self.kept = False

    def load(self) -> None:
        """Go on as the store says."""
        self.kept = self._store.get(self._r) is not None

    def begin(self) -> None:
        """From what the store holds: nothing waits to be stored."""
        rows = self._rows()
        while some := [*islice(rows, EACH)]:
            self._store.write(some)
        self._store.write([(self._r, b"")])
        self.kept = True

    def _rows(self) -> Iterator[Item]:
        for key, data in self._store.scan(self._k):
            if not is_entry(key[len(self._k) :]):
                yield self._r + data[_REF], key[len(self._k) :]

    def items_for(self, changes: Iterable[Change]) -> list[Item]:
        """The store's changes of it."""
        return [
            (self._r + c.ref, None if c.value is None else c.key)
            for c in changes
            if (c.value is None or c.op == CREATE) and not is_entry(c.key)
        ]

    def keys_of(self, refs: Collection[bytes], waiting: Mapping[bytes, bytes | None]) -> dict[bytes, bytes]:
        """By reference, as stored or among what waits to be; those under no key are left out."""
        found = {ref: waiting.get(self._r + ref, b"") for ref in refs}
        missing = [ref for ref, key in found.items() if key == b""]
        if missing:
            found.update(zip(missing, self._store.get_many([self._r + ref for ref in missing]), strict=True))
        return {ref: key for ref, key in found.items() if key}
