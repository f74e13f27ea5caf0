"""This module brings objects that several definitions of their type have written to the newest of these, to compare
them (U2, U3).

What the newest definition reads it also writes: then equal bytes say that only the definition differed. Larger versions
are newer, and none is oldest; of equal ones, the one that was published last is the newest. Some states are not
compared this way: those that the newest cannot read, and those of older definitions that differ in a field which the
newest has dropped, since such a change must not be overlooked. No class of the application is needed.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from halog.errors import HalogError
from halog.schema.codec import encoder
from halog.schema.definition import ID_BYTES, Definition
from halog.schema.evolution import evolved_reader
from halog.schema.scalars import Misfit

Bring = Callable[[bytes], bytes]
Even = Callable[[Sequence[bytes]], Sequence[bytes] | None]
"""See `restore.merge`."""


def several(definitions: Iterable[Definition]) -> tuple[Definition, ...]:
    """Return the definitions of types that have more than one, in the same order."""
    found = tuple(definitions)
    many = Counter(d.name for d in found)
    return tuple(d for d in found if many[d.name] > 1)


def bringing(definitions: Iterable[Definition]) -> Even | None:
    """Return a function that brings objects to the newest definition of their type; None if no type has several.
    `definitions`: in the order in which they were published."""
    found = several(definitions)
    return _Versions(found).even if found else None


class _Versions:
    def __init__(self, definitions: Sequence[Definition]) -> None:
        self._known = {d.type_id: (-1 if d.version is None else d.version, n, d) for n, d in enumerate(definitions)}
        self._bring: dict[tuple[bytes, bytes], Bring | None] = {}

    def even(self, values: Sequence[bytes]) -> Sequence[bytes] | None:
        ids = {value[:ID_BYTES] for value in values}
        if len(ids) < 2 or not ids <= self._known.keys():
            return None
        _, _, newest = max(self._known[type_id] for type_id in ids)
        made: list[bytes] = []
        for value in values:
            brought = self._brought(value, newest)
            if brought is None:
                return None
            made.append(brought)
        older = {v: m for v, m in zip(values, made, strict=True) if v[:ID_BYTES] != newest.type_id}
        pairs = itertools.combinations(older, 2)
        return None if any(older[a] == older[b] and not self._are_equal(a, b) for a, b in pairs) else made

    def _are_equal(self, one: bytes, other: bytes) -> bool:
        """Are the two equal as the newer of their two definitions reads them?"""
        _, _, newer = max(self._known[v[:ID_BYTES]] for v in (one, other))
        return self._brought(one, newer) == self._brought(other, newer)

    def _brought(self, value: bytes, newest: Definition) -> bytes | None:
        type_id = value[:ID_BYTES]
        if type_id == newest.type_id:
            return value
        pair = type_id, newest.type_id
        if pair not in self._bring:
            self._bring[pair] = _bring(self._known[type_id][2], newest)
        bring = self._bring[pair]
        try:
            return None if bring is None else bring(value)
        except (HalogError, Misfit):
            return None


def _bring(stored: Definition, newest: Definition) -> Bring | None:
    """Return a function from bytes of one definition to bytes of the newest; None: the newest cannot read them."""
    try:
        read = evolved_reader(stored, newest)
    except HalogError:
        return None
    fields = [(f.name, encoder(f.shape, lambda _n, _t: True, bound=False)) for f in newest.record.fields]

    def bring(value: bytes) -> bytes:
        found = read(value)
        return newest.type_id + b"".join([encode(found[name]) for name, encode in fields])

    return bring
