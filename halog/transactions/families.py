"""This module handles families whose classes are bound to different policies (P6): where a key may be, and what one
transaction may do.

A type and its managed bases have one key space, and the identity map has one entry per index key. Where a subclass has
a binding of its own, the same key may be at two places. A look for a base class goes to its own place first, then to
those of its subclasses. An entry that says "nothing here" is dropped for an object that is elsewhere. Two objects of
one key, at two places, in one transaction are refused by name, since the map cannot hold both.

The same way is taken while a mapping changes and a key has two owners (T8): the old one is asked first. Families bound
to one policy that does not change, which is all but a few, pay one look at a flag.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from halog.backend import Backend, CommittedObject
from halog.core.keys.mapping import LISTED, Place
from halog.errors import ConflictError, DuplicateKeyError, RefusedError, UnknownTypeError
from halog.schema.registry import Registry
from halog.schema.typeinfo import TypeInfo
from halog.transactions import remapped as moving

if TYPE_CHECKING:
    from halog.transactions.entry import ObjectEntry
    from halog.transactions.reading import Reading
    from halog.transactions.space import Route


NOTHING: Final = object()
"""No node was asked."""
UNLISTED: Final = object()
"""A key directory has no entry: the object does not exist, and it has no partition."""


class Family(NamedTuple):
    """Says of one class whether a relative is bound to another policy, and which of its subclasses are."""

    split: bool
    below: tuple[str, ...]


def family_of(backend: Backend, registry: Registry, info: TypeInfo) -> Family:
    """Return the `Family` of a class. UnknownTypeError if the class itself is bound to no policy, or a relative is
    bound to one of another site alone."""
    own = tuple(backend.partitions_of(info.name))
    others = {
        t.name
        for t in registry.by_name.values()
        if t.family_id == info.family_id and _partitions(backend, t.name) not in ((), own)
    }
    return Family(bool(others), tuple(t.name for t in registry.subtypes(info.name) if t.name in others))


def _partitions(backend: Backend, type_name: str) -> tuple[str, ...]:
    """Return the partitions of the type's policy; none: the type is bound to no policy. UnknownTypeError if it is kept
    at another site alone."""
    try:
        return tuple(backend.partitions_of(type_name))
    except UnknownTypeError as error:
        if "policy" in error.evidence:
            raise
        return ()


def locate(tx: Reading, route: Route) -> CommittedObject | Any | None:
    """Find out at which of its places, in one partition each, the object of a route is, and note that in the route.

    The places are those of its class, where it may be still and where it belongs, and those of subclasses. An object
    that is nowhere gets the place where it belongs. Return what was found there, or None; `NOTHING` if no node was
    asked; `UNLISTED`. RefusedError if the transaction has another object of this key; ConflictError if objects that a
    method reaches are being moved apart.
    """
    own, home = route.places[0], tx.home_now
    if (own.listed or home not in own.owners) and any(place.listed for place in route.places):
        return _locate_listed(tx, route)
    key = route.key
    entry = tx.entries.get(key)
    places = [Place(partition, p.version) for p in route.places if not p.listed for partition in p.owners]
    at = next((p for p in places if entry is not None and p.partition == entry.partition), None)
    found: Any = NOTHING
    if at is None or entry is None or (_is_blank(entry) and (len(route.places) > 1 or not entry.known)):
        at, found = _looked_for(tx, key, own, places, entry)
    entry_at(tx, key, at.partition)
    route.partition, route.mapping = at.partition, at.version
    return NOTHING if key in tx.held or key in tx.looked else found


def _locate_listed(tx: Reading, route: Route) -> CommittedObject | Any | None:
    """Do what `locate` does where one of the classes has a key directory, so that the object may be anywhere."""
    key, own, entry = route.key, route.places[0], tx.entries.get(route.key)
    if entry is not None and not _is_blank(entry):
        mapped, at = tx.backend.mapped, entry.partition
        if any(at in place.owners or mapped.one_directory(at, place.partition) for place in route.places):
            tx.check_reach(key, entry.partition)
            return NOTHING
    at, version, found = own.partition, own.version, None
    for place in route.places:
        if not place.listed and _is_known_absent(entry, place):
            continue
        partition, found = moving.look(tx, key, place)
        if found is not None:
            at, version = partition, place.version
            break
    if found is None and own.listed == LISTED:
        return UNLISTED
    entry_at(tx, key, at)
    route.partition, route.mapping = at, version
    return found


def _looked_for(
    tx: Reading, key: bytes, own: Place, places: list[Place], entry: ObjectEntry | None
) -> tuple[Place, CommittedObject | Any | None]:
    home = tx.home_now
    if home is not None and home in own.owners:
        moving.bring_home(tx, key, own, home)
        return Place(home, own.version), NOTHING
    for place in places if len(places) > 1 else ():
        known_absent = entry is not None and entry.known and entry.partition == place.partition and not own.before
        found = None if known_absent else tx.fetch_at(key, place.partition, place.version)
        if found is not None:
            return place, found
    return Place(own.partition, own.version), None if own.before else NOTHING


def entry_at(tx: Reading, key: bytes, partition: str) -> ObjectEntry | None:
    """Return the entry of an index key, if it is of this partition; drop a blank one of another.

    If the entry is not blank: RefusedError; ConflictError if the mapping has changed since the transaction began (T8),
    or if another object was created in its place where the mapper is no function of the key (P6); there,
    DuplicateKeyError if the transaction creates it.
    """
    entry = tx.entries.get(key)
    if entry is None or entry.partition == partition:
        return entry
    anywhere = tx.backend.mapped.one_directory(entry.partition, partition)
    if anywhere and entry.image is None and entry.ref is not None:
        raise DuplicateKeyError(f"{tx.space.name_of(key)} exists", key=key, partition=partition)
    if not _is_blank(entry) and (anywhere or tx.mapped is not tx.backend.mapped):
        raise ConflictError(
            f"{tx.space.name_of(key)} was read in partition {entry.partition} and belongs in {partition} by now; run "
            "the transaction again",
            key=key,
            settled_lsn=0,
        )
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


def _is_known_absent(entry: ObjectEntry | None, place: Place) -> bool:
    """Was it found that nothing is there? Then that holds for the whole transaction, and is checked at its end."""
    return entry is not None and entry.known and entry.partition in place.owners


def _is_blank(entry: ObjectEntry) -> bool:
    """Does the entry only say that nothing is there?"""
    return entry.ref is None and entry.image is None
