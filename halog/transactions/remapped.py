"""This module handles keys that have two owners while a mapping changes (T8); see `halog.core.keys.mapping`.

Clusters whose mapping does not change never come this way. An object moves from its old owner to its new one and never
back. So a look at the old one, then at the new one, finds any object that was there all the time; two looks at all
partitions see every object; and a key that is absent in both owners when the transaction commits is absent. Work that
was routed by a version that is not served any more is refused whole, and done again by the newer one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from halog.backend import Backend, CommittedObject, KnownMappings, Work, Write
from halog.core.ids import ABSENT
from halog.core.keys.directory import object_key
from halog.core.keys.mapping import BY_KEY, LISTED, LISTING, UNLISTING, Place
from halog.core.log.records import CREATE
from halog.errors import ConflictError, RemappedError
from halog.schema.placed import new_object
from halog.schema.typeinfo import TypeInfo
from halog.transactions import directory
from halog.transactions.entry import encode

if TYPE_CHECKING:
    from halog.transactions.reading import Reading

# --- looking ---


def look(tx: Reading, key: bytes, place: Place) -> tuple[str, CommittedObject | None]:
    """Look for the object under an index key at the old owner, at the new one, or where its entry says; return where,
    and what."""
    if place.listed:
        return directory.look_up(tx, key, place)
    for partition in place.owners:
        found = tx.fetch_at(key, partition, place.version)
        if found is not None:
            return partition, found
    return place.partition, None


def look_again(tx: Reading, key: bytes, partition: str) -> tuple[str, CommittedObject | None]:
    """Do what `look` does for a key that was routed before."""
    since = 0.0
    while True:
        try:
            return look(tx, key, tx.space.places_of(key, partition))
        except RemappedError as error:
            since = tx.space.relearn(error, since)


# --- methods ---


def stale(backend: Backend, home: str) -> RemappedError:
    """Return the error for a method that looks for an object by a route of an older mapping. Elsewhere the partition at
    the route's end would refuse it; a method does not get there."""
    mapping = backend.mapped.versions.get(home, 0)
    return RemappedError(
        f"a route of an older mapping led out of partition {home}; mapping version {mapping} does not",
        partition=home,
        mapping=mapping,
    )


def bring_home(tx: Reading, key: bytes, place: Place, home: str) -> None:
    """Bring an object to partition `home`, where the method runs that looks for it, if it is at its old owner still and
    the method's object is at the new one. The other way round the method's object is moved, and ConflictError is
    raised."""
    other = next((p for p in place.owners if p != home), None)
    if other is None or tx.fetch_at(key, home, place.version) is not None:
        return
    if tx.backend.find(other, key, place.version) is None:
        return
    if home == place.before:
        raise _moved_away(tx, home)
    tx.backend.gather(other, (key,))
    if tx.fetch_at(key, home, place.version) is None and tx.backend.find(other, key, place.version) is not None:
        raise ConflictError(
            f"{tx.space.name_of(key)} is held in partition {other} by somebody else; run the transaction again",
            key=key,
            partition=other,
            settled_lsn=0,
        )


def create_in(tx: Reading, key: bytes, place: Place, info: TypeInfo, obj: Any) -> str:
    """Return the partition in which an object is created: the new owner; or the one that the mapper says, if it is no
    function of the key; or the method's. If the transaction has deleted an object of this key, it is that object's
    partition."""
    entry = tx.entries.get(key)
    if entry is not None and (entry.ref is not None or entry.image is not None):
        anywhere = place.listed and tx.backend.mapped.one_directory(entry.partition, place.partition)
        if anywhere or entry.partition in place.owners:
            return entry.partition
    if place.listed and place.listed != UNLISTING:
        return _said(tx, place, info, obj)
    if place.before and tx.home_now == place.before:
        raise _moved_away(tx, place.before)
    return place.partition


def _said(tx: Reading, place: Place, info: TypeInfo, obj: Any) -> str:
    home = tx.home_now
    if home is None or not tx.backend.mapped.one_directory(home, place.partition):
        return tx.backend.next_partition(info.name, lambda: new_object(info.parsed, encode(info, obj)))
    if home in tx.backend.mapped.leaving:
        raise _moved_away(tx, home)
    return home


def _moved_away(tx: Reading, home: str) -> ConflictError:
    """Move the method's object to where the objects it works with belong, and return the conflict to raise."""
    running = tx.running if tx.pinned is None else tx.pinned.key
    tx.backend.gather(home, (running,))
    return ConflictError(
        f"{tx.space.name_of(running)} is moved out of partition {home}, together with what its method works with; run "
        "the transaction again",
        key=running,
        partition=home,
        settled_lsn=0,
    )


# --- the end ---


def presented(tx: Reading, works: Mapping[str, Work]) -> Mapping[str, Work]:
    """Return a transaction's works as they are presented, in a cluster that has ever changed a mapping."""
    if tx.mapped is tx.backend.mapped and not tx.mapped.changing:
        return marked(works, tx.mapped)
    return routed(tx, works)


def marked(works: Mapping[str, Work], mapped: KnownMappings) -> Mapping[str, Work]:
    """Return the works with the version of each partition's mapping."""
    return {p: Work(w.reads, w.writes, w.durability, mapped.versions.get(p, 0)) for p, w in works.items()}


def routed(tx: Reading, works: Mapping[str, Work]) -> Mapping[str, Work]:
    """Return the works by the mapping as it is now. A key that was found absent, or is created, must be absent in every
    owner; a created object goes to the new owner."""
    while True:
        mapped = tx.backend.mapped
        _check_kinds(tx, works, mapped)
        parts = _placed(tx, works, mapped)
        if mapped is tx.backend.mapped:  # else it may mix places of two mappings
            began = tx.mapped.sites  # it keeps the sites where it has read (M5)
            tx.mapped = mapped if mapped.sites is began else msgspec.structs.replace(mapped, sites=began)
            return marked(parts, mapped)


def _check_kinds(tx: Reading, works: Mapping[str, Work], mapped: KnownMappings) -> None:
    """Raise ConflictError if it changed whether a partition's objects have directory entries: reads and writes rely on
    that. A change that only ends (all entries made, or all gone) does not matter."""
    before, now = tx.mapped.listed, mapped.listed
    for partition in works if before != now else ():
        kinds = before.get(partition, BY_KEY), now.get(partition, BY_KEY)
        if partition in tx.mapped.policies and kinds[0] != kinds[1] and kinds not in _ENDS:
            raise ConflictError(
                f"how objects of partition {partition} are found has changed; run the transaction again",
                partition=partition,
                settled_lsn=0,
            )


_ENDS = frozenset({(LISTING, LISTED), (UNLISTING, BY_KEY)})
"""Pairs (before, after) in which such a change came to its end."""


def _check_stays(tx: Reading, key: bytes, partition: str, mapped: KnownMappings) -> None:
    if partition in mapped.leaving:
        raise ConflictError(
            f"{tx.space.name_of(key)} was to be created in partition {partition}, which is being emptied; run the "
            "transaction again",
            key=key,
            partition=partition,
            settled_lsn=0,
        )


def _placed(tx: Reading, works: Mapping[str, Work], mapped: KnownMappings) -> Mapping[str, Work]:
    parts: dict[str, tuple[dict[bytes, int], list[Write]]] = {}

    def part(partition: str) -> tuple[dict[bytes, int], list[Write]]:
        return parts.setdefault(partition, ({}, []))

    for partition, its in works.items():
        for key, version in its.reads:
            place = tx.space.places_of(key, partition) if version == ABSENT else Place(partition)
            for owner in (partition,) if place.listed else place.owners:
                part(owner)[0][key] = version
        known = {w.key for w in its.writes if w.op != CREATE}
        for w in its.writes:
            at = partition
            if w.op == CREATE and w.key not in known:
                place = tx.space.places_of(w.key, partition)
                if place.listed:
                    _check_stays(tx, w.key, partition, mapped)
                    place = Place(partition, place.version)
                at = place.partition
                for owner in place.owners:
                    if owner != at:
                        part(owner)[0][w.key] = ABSENT
            part(at)[1].append(w)
    return {p: Work(tuple(reads.items()), tuple(writes)) for p, (reads, writes) in parts.items()}


def reserved(works: Mapping[str, Work], key: object, partition: object) -> bool:
    """Say whether the transaction created this key without looking, and claims its absence in that partition. If so, a
    lost race is a duplicate key; for a transaction that has looked it is a conflict."""
    theirs = works.get(partition) if isinstance(partition, str) else None
    if theirs is None or not any(k == key and version == ABSENT for k, version in theirs.reads):
        return False
    made = object_key(key) if isinstance(key, bytes) else key
    blind = [w for w in works.values() if not any(k == made for k, _ in w.reads)]
    return any(w.key == made and w.op == CREATE for work in blind for w in work.writes)


def read_only(tx: Reading, parts: Mapping[str, Mapping[bytes, int]]) -> Mapping[str, Mapping[bytes, int]]:
    """Return what `presented` does, for versions that were only read."""
    if tx.mapped is tx.backend.mapped and not tx.mapped.changing:
        return parts
    works = routed(tx, {p: Work(tuple(reads.items()), ()) for p, reads in parts.items()})
    return {p: dict(work.reads) for p, work in works.items()}
