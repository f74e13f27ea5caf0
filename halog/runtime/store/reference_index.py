"""This module says which key a reference is under, on a copy that checks whether records contradict it (R2).

The index is a hint, kept behind `r <reference>` in the store. Whoever follows it checks that the object is there and
has that reference, so what is left over here does no harm. Only async replicas ask. So a copy begins the index when it
is first asked, and keeps it from then on, whatever its kind: all others pay nothing for it. What the store holds is
read into it a few objects at a time, with each question: a replica that is about to become a sync one is async for a
moment, and then commits wait for it. An entry of a key directory has its object's reference; it is not in the index.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from halog.core.ids import REF_BYTES
from halog.core.keys.directory import is_entry
from halog.core.log.records import CREATE, Change
from halog.ports import Store

EACH, EACH_BYTES = 1_000, 1_000_000
"""Objects, and bytes of them, read into the index with each question: 2 ms."""

_REF = slice(8, 8 + REF_BYTES)
"""Where the reference is in an object as stored."""

Item = tuple[bytes, bytes | None]


class References:
    """Keeps the references of one copy. The key `r` alone in the store says that the index is complete."""

    def __init__(self, store: Store, prefix: bytes, each: int = EACH) -> None:
        """Begin with nothing known. `each`: so many objects are read with each question."""
        self._store = store
        self._each = each
        self._k = prefix + b"k"
        self._r = prefix + b"r"
        self.kept = False
        """Are changes that are taken noted here?"""
        self._after: bytes | None = None
        """The last object looked at, while there are more."""

    def load(self) -> None:
        """Go on as the store says."""
        self.kept = self._store.get(self._r) is not None
        self._after = None

    def begin(self) -> None:
        """Start the index; all that was taken is stored."""
        self.kept = True
        self._after = b""

    def look_on(self) -> None:
        """Read some more of what the store held into the index."""
        if self._after is None:
            return
        found: list[Item] = []
        n, count, room = len(self._k), 0, EACH_BYTES
        for stored, data in self._store.scan(self._k, self._after):
            key, count, room = stored[n:], count + 1, room - len(data)
            if not is_entry(key):
                found.append((self._r + data[_REF], key))
            if count == self._each or room <= 0:
                self._after = stored
                break
        else:
            self._after = None
        self._store.write(found if self._after is not None else [*found, (self._r, b"")])

    def items_for(self, changes: Iterable[Change]) -> list[Item]:
        """Return the store's changes of the index."""
        return [
            (self._r + c.ref, None if c.value is None else c.key)
            for c in changes
            if (c.value is None or c.op == CREATE) and not is_entry(c.key)
        ]

    def keys_of(self, refs: Collection[bytes], waiting: Mapping[bytes, bytes | None]) -> dict[bytes, bytes]:
        """Return the key of each reference, as stored or among what waits to be; those under no key are left out."""
        found = {ref: waiting.get(self._r + ref, b"") for ref in refs}
        missing = [ref for ref, key in found.items() if key == b""]
        if missing:
            found.update(zip(missing, self._store.get_many([self._r + ref for ref in missing]), strict=True))
        return {ref: key for ref, key in found.items() if key}
