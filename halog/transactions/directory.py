"""This module finds objects whose mapper is no function of the key, and changes their directory entries (P6); see
`halog.core.keys.directory`.

Other objects never come this way. An entry is read only to find its object: the object is in its partition as long as
its version holds, so changing it takes one partition. An entry that is absent counts as read: that keeps the key free.
Entries are written where the transaction ends, from what it does to the objects, so a method may create and delete
objects, wherever it runs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from halog.backend import CommittedObject, KnownMappings, Work, Write
from halog.core.ids import ABSENT
from halog.core.keys.directory import Looking, StoredEntry, beside, entries_of, entry_key, is_entry, look, vouching
from halog.core.keys.mapping import LISTED, Place
from halog.core.log.records import DELETE, UPDATE
from halog.errors import ConflictError, CrossPartitionError, RemappedError, UnknownTypeError
from halog.transactions.entry import ObjectEntry

if TYPE_CHECKING:
    from halog.transactions.reading import Reading

AGAIN_S = 0.002
"""Pause before another look for an object that is not where its entry says. It is moving, or a node was replaced and
does not know it yet."""


# --- looking ---


def look_up(tx: Reading, key: bytes, place: Place) -> tuple[str, CommittedObject | None]:
    """Return where an object is, and the object, by its entry. If there is no entry, that counts as read.
    CrossPartitionError in a method, unless the object is in the partition that the method reaches."""
    home = tx.home_now
    if home is not None:
        return home, _within(tx, key, place, home)
    known = tx.held.get(entry_key(key))
    if known is not None and known.partition in place.owners:
        return known.partition, None
    read = None if tx.views is None else frozenset(tx.views)
    at, found = _where_it_was(tx, key, place) or _asked(tx, key, place, read)
    if found is None:
        tx.seen = None
        if known is None or tx.backend.mapped.one_directory(known.partition, at):  # else it is of another policy
            tx.held[entry_key(key)] = ObjectEntry(tx, entry_key(key), at)
    return at, found


def _where_it_was(tx: Reading, key: bytes, place: Place) -> tuple[str, CommittedObject] | None:
    """Return an object that is still where this process has last seen it. It can be in one place only, so no directory
    is asked."""
    if in_session(tx):
        return None
    mapped, known = tx.backend.mapped, tx.space.images.get(key)
    if known is None or not mapped.one_directory(known.partition, place.partition):
        return None
    if known.partition in mapped.leaving:  # it is or will be empty; nodes need not keep it for ever
        return None
    found = tx.fetch_at(key, known.partition, mapped.versions.get(known.partition, 0))
    return None if found is None else (known.partition, found)


def is_absent(tx: Reading, key: bytes, partition: str) -> bool:
    """Has the transaction found that there is no such object in the policy of this partition?"""
    known = tx.held.get(entry_key(key))
    return known is not None and tx.backend.mapped.one_directory(known.partition, partition)


def _asked(tx: Reading, key: bytes, place: Place, read: frozenset[str] | None) -> tuple[str, CommittedObject | None]:
    """Find an object by driving `halog.core.keys.directory.look`. ConflictError if an object is not where its entry
    says for too long, or if the transaction's views of partitions that it has `read` do not show it."""
    until, missed = time.monotonic() + tx.backend.deadline_of(place.partition), False
    asking: Looking[CommittedObject] = look(key, place)
    asked = next(asking)
    while True:
        partition, wanted = asked
        if missed and partition == place.owners[0] and is_entry(wanted):
            _pause(tx, key, partition, until)
        found = _read(tx, wanted, partition, place.version, ahead=missed)
        if found is None and not is_entry(wanted):
            if read is not None and not tx.checked:
                _look_anew(tx, key, partition, read, again=missed)
            missed = True
        try:
            asked = asking.send(found)
        except StopIteration as end:
            where, what = end.value
            return where, what


def _read(tx: Reading, key: bytes, partition: str, mapping: int, *, ahead: bool) -> CommittedObject | None:
    """Read as the transaction reads. Copies of this node may be behind each other: with `ahead` the active nodes are
    asked."""
    if tx.local and ahead and (view := tx.view_of(partition, key, mapping, ahead=True)) is not None:
        return view.find(key)
    return tx.fetch_at(key, partition, mapping)


def _look_anew(tx: Reading, key: bytes, partition: str, read: frozenset[str], *, again: bool) -> None:
    """Forget views, since an object is not where its entry says by the views of both partitions. Partitions that the
    transaction had not `read` before it looked for this object may be seen at another moment. ConflictError if there
    are none."""
    assert tx.views is not None
    anew = tx.views.keys() - read
    if not anew or (again and partition in read):
        raise ConflictError(
            f"{tx.space.name_of(key)} came to partition {partition}, or went, after the transaction began to read "
            "there; run the transaction again",
            key=key,
            partition=partition,
            settled_lsn=0,
        )
    for name in anew:
        del tx.views[name]


def in_session(tx: Reading) -> bool:
    """Must reads be no older than tokens say, without any stronger rule? A token names the partition in which an object
    was seen. It names neither that of the object's entry nor those in which the object was before, so copies of these
    may be older."""
    return tx.after is not None and tx.least is None and (bool(tx.after) or not tx.local)


def _pause(tx: Reading, key: bytes, partition: str, until: float) -> None:
    if time.monotonic() >= until:
        raise ConflictError(
            f"{tx.space.name_of(key)} is not where its entry in {partition} says, for "
            f"{tx.backend.deadline_of(partition):g} s by now; run the transaction again",
            key=key,
            partition=partition,
            settled_lsn=0,
        )
    time.sleep(AGAIN_S)


def _within(tx: Reading, key: bytes, place: Place, home: str) -> CommittedObject:
    """Return an object that a method looks for. A method reaches no directory, so it cannot say that an object does not
    exist."""
    mapped = tx.backend.mapped
    here = mapped.one_directory(home, place.partition)
    found = tx.fetch_at(key, home, mapped.versions.get(home, 0)) if here else None
    if found is None:
        one = tx.pinned or next(iter(tx.entries.values()))
        this, that = tx.space.name_of(one.key), tx.space.name_of(key)
        raise CrossPartitionError(
            f"{this} is in partition {home}, and {that} is not; a method reaches only its object's partition, and "
            "where the mapper is no function of the key it cannot find out what is elsewhere: use both outside of "
            "methods",
            partitions=[home],
            objects=[this, that],
        )
    return found


# --- the end ---


def entered(tx: Reading, works: Mapping[str, Work]) -> Mapping[str, Work]:
    """Return the transaction's works with its changes of the directory. ConflictError if an object that it deletes has
    no entry any more: another transaction was faster. UnknownTypeError if a method on another node has created an
    object of a type that is not declared here."""
    since = 0.0
    while True:
        mapped = tx.backend.mapped
        try:
            made = _entered(tx, works, mapped)
        except RemappedError as error:
            since = tx.space.relearn(error, since)
        else:
            if mapped is tx.backend.mapped and made is not None:  # else it mixes kinds and places of two mappings
                return made


def _entered(tx: Reading, works: Mapping[str, Work], mapped: KnownMappings) -> Mapping[str, Work] | None:
    """Return the works with the directory's changes; None if the mapping changed meanwhile."""
    rows: dict[str, list[Write]] = {}
    absent: dict[str, dict[bytes, int]] = {}
    for partition, its in works.items():
        kind = mapped.listed.get(partition)
        if kind is None:
            continue
        places = _places(tx, partition, its.writes)
        if mapped is not tx.backend.mapped:
            return None
        _check_listed(tx, partition, places)
        gone = _standing(
            tx, partition, kind, {w.key: places[w.key] for w in its.writes if w.op == DELETE and w.key in places}
        )
        for at, row in beside(its.writes, partition, places.__getitem__, gone.get):
            rows.setdefault(at, []).append(Write(*row))
        for at, key in vouching(its.writes, partition, places.__getitem__, gone.get) if kind != LISTED else ():
            absent.setdefault(at, {})[key] = ABSENT
    made = dict(works)
    for at in {**rows, **absent}:
        had = made.get(at, Work((), ()))
        reads = {**absent.get(at, {}), **dict(had.reads)}
        made[at] = Work(tuple(reads.items()), (*had.writes, *rows.get(at, ())))
    return made


def _places(tx: Reading, partition: str, writes: Sequence[Write]) -> dict[bytes, Place]:
    """Return where the entries belong of objects that come to this partition, or leave it."""
    return {w.key: tx.space.places_of(w.key, partition) for w in writes if w.op != UPDATE and not is_entry(w.key)}


def _check_listed(tx: Reading, partition: str, places: Mapping[bytes, Place]) -> None:
    for key, place in places.items():
        if not place.listed:
            raise UnknownTypeError(
                f"a method has created {tx.space.name_of(key)} in partition {partition}; its type is not declared "
                "here, so the place of its entry in the key directory is not known; nothing was done: declare it "
                "(import its module)",
                partition=partition,
                key=key,
            )


def _standing(tx: Reading, partition: str, kind: str, places: Mapping[bytes, Place]) -> dict[bytes, StoredEntry]:
    """Return the entries of objects in this partition."""
    found = entries_of(places, lambda at, asked, version: tx.backend.fetch(at, asked, mapping=version))
    for key in places if kind == LISTED else ():
        if key not in found:
            raise ConflictError(
                f"{tx.space.name_of(key)} was deleted by somebody else; run the transaction again",
                key=key,
                partition=partition,
                settled_lsn=0,
            )
    return found
