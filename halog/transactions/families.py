"""Families whose classes are bound to different policies (P6): where a key may be, and what one transaction may do.

A type and its managed bases have one key space, and the identity map has one entry an index key. Where a subclass has
a binding of its own, the same key may be at two places. The theory: whoever looks for a base looks at its own place
first, then at those of its subclasses; an entry that says "nothing here" makes way for what is elsewhere; and two
objects of one key, at two places, in one transaction are refused by name, since the map cannot hold both.

Families bound to one policy, which is all but a few, pay one look at a flag.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from halog.backend import Backend
from halog.errors import RefusedError, UnknownTypeError
from halog.schema.registry import Registry
from halog.schema.typeinfo import TypeInfo

if TYPE_CHECKING:
    from halog.transactions.entry import Entry
    from halog.transactions.reading import Reading


class Family(NamedTuple):
    """Of one class: is a relative bound to another policy, and which of its subclasses are."""

    split: bool
    below: tuple[str, ...]


def family_of(backend: Backend, registry: Registry, info: TypeInfo) -> Family:
    """See `Family`. UnknownTypeError if the class itself is bound to no policy."""
    own = tuple(backend.partitions_of(info.name))
    others = {
        t.name
        for t in registry.by_name.values()
        if t.family_id == info.family_id and _partitions(backend, t.name) not in ((), own)
    }
    return Family(bool(others), tuple(t.name for t in registry.subtypes(info.name) if t.name in others))


def _partitions(backend: Backend, type_name: str) -> tuple[str, ...]:
    """Empty: the type is bound to no policy."""
    try:
        return tuple(backend.partitions_of(type_name))
    except UnknownTypeError:
        return ()


def place_of(tx: Reading, key: bytes, own: str, below: tuple[str, ...]) -> str:
    """The partition in which the object under an index key is, of its class's own and those of subclasses; its own if
    it is nowhere. RefusedError if the transaction has another object of this key."""
    entry = tx.entries.get(key)
    places = (own, *below)
    if entry is not None and not _is_blank(entry) and entry.partition in places:
        return entry.partition
    for partition in places if below else ():
        known_absent = entry is not None and entry.known and entry.partition == partition
        if not known_absent and tx.fetch_at(key, partition) is not None:
            entry_at(tx, key, partition)
            return partition
    entry_at(tx, key, own)
    return own


def entry_at(tx: Reading, key: bytes, partition: str) -> Entry | None:
    """The entry of an index key, if it is of this partition; a blank one of another is dropped. RefusedError if it is
    not blank."""
    entry = tx.entries.get(key)
    if entry is None or entry.partition == partition:
        return entry
    if not _is_blank(entry):
        raise RefusedError(
            f"{tx.space.name_of(key)} is in this transaction as an object of partition {entry.partition}, and one of "
            f"the same key belongs in {partition}, since its class has a binding of its own: use a transaction for "
            "each",
            partitions=[entry.partition, partition],
        )
    tx.seen = None
    del tx.held[key]
    return None


def _is_blank(entry: Entry) -> bool:
    """Says it only that nothing is there?"""
    return entry.ref is None and entry.image is None
