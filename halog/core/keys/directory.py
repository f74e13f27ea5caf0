"""The key directory says where an object is whose mapper is no function of its key (P6). This module is pure.

Where a mapper like round robin places objects, nobody can work out where a key is. So the policy's ring says where a
key's *entry* is, and the entry says where its object is. An entry is a row like an object's, so logs, snapshots, moves
and restores know nothing of it. Its key is `DIRECTORY` and the object's index key, its reference is the object's, and
its value names the object's type and partition. Law: at the end of every transaction an object of such a policy has one
entry, where its key hashes to, and the entry names the partition where the object is; no entry is without its object.
(While a policy changes to such a mapper, or away from one, an object without an entry is where its key hashes to.)
Three things follow. A key is unique because its entry is. A change of an object needs no look at its entry. An object
that is found where it once was is the right one. Nothing here asks anybody: `look` says what to ask next.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from halog.core.ids import ABSENT
from halog.core.keys.mapping import LISTED, UNLISTING, Place
from halog.core.log.records import CREATE, DELETE, UPDATE
from halog.errors import RecordFormatError

ID_BYTES: Final = 8
"""The length of a family or type id, as in every key and value."""
DIRECTORY: Final = hashlib.sha256(b"#directory").digest()[:ID_BYTES]
"""The family id and the type id of entries. No class has this name, so no object's key begins like this."""


class Stored(Protocol):
    """A `Stored` is what a reader finds under a key."""

    @property
    def ref(self) -> bytes:
        """Return the object's reference."""

    @property
    def version(self) -> int:
        """Return the lsn that last changed the object."""

    @property
    def value(self) -> bytes:
        """Return the object's bytes."""


class ObjectChange(Protocol):
    """An `ObjectChange` is one object's change; `halog.backend.Write` is one."""

    @property
    def op(self) -> int:
        """Return CREATE, UPDATE or DELETE."""

    @property
    def ref(self) -> bytes:
        """Return the object's reference."""

    @property
    def key(self) -> bytes:
        """Return the object's index key."""

    @property
    def value(self) -> bytes | None:
        """Return the object's new bytes; None: deleted."""


class DirectoryRow(NamedTuple):
    """A `DirectoryRow` is a change of an entry or an object, with the fields of a `Write`."""

    op: int
    ref: bytes
    key: bytes
    value: bytes | None
    replaced: int


class EntryValue(NamedTuple):
    """An `EntryValue` is what an entry says of its object. `type_id` is the type it was created as; that definition can
    read the key."""

    type_id: bytes
    partition: str


class StoredEntry(NamedTuple):
    """A `StoredEntry` is an entry as it was read: its partition, its version, and what it says."""

    at: str
    version: int
    ref: bytes
    said: EntryValue


S = TypeVar("S", bound=Stored)
Looking = Generator[tuple[str, bytes], "S | None", tuple[str, "S | None"]]

# --- bytes ---


def is_entry(key: bytes) -> bool:
    """Say whether this is an entry's key and not an object's."""
    return key.startswith(DIRECTORY)


def entry_key(key: bytes) -> bytes:
    """Return the key of an object's entry."""
    return DIRECTORY + key


def object_key(key: bytes) -> bytes:
    """Return the key of an entry's object. An object's own key is returned as it is."""
    return key[ID_BYTES:] if is_entry(key) else key


def packed(type_id: bytes, partition: str) -> bytes:
    """Return an entry's value: its type id, then the Avro of (fixed 8, string)."""
    name = partition.encode()
    return DIRECTORY + type_id + _length(len(name)) + name


def unpacked(value: bytes) -> EntryValue:
    """Read what an entry says. RecordFormatError if the bytes are no entry."""
    if value[:ID_BYTES] != DIRECTORY:
        raise RecordFormatError(f"no directory entry: {value.hex()[:100]}")
    at, size, shift = 2 * ID_BYTES, 0, 0
    while at < len(value):
        size |= (value[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if value[at - 1] < 0x80:
            break
    if size & 1 or not size or at + size // 2 != len(value):
        raise RecordFormatError(f"a malformed directory entry: {value.hex()[:100]}")
    try:
        return EntryValue(value[ID_BYTES : 2 * ID_BYTES], value[at:].decode())
    except UnicodeDecodeError:
        raise RecordFormatError(f"a malformed directory entry: {value.hex()[:100]}") from None


def _length(size: int) -> bytes:
    """Encode an Avro length: zigzag, seven bits a byte."""
    rest, made = size << 1, bytearray()
    while rest > 0x7F:
        made.append(rest & 0x7F | 0x80)
        rest >>= 7
    made.append(rest)
    return bytes(made)


def standing(at: str, found: Stored) -> StoredEntry:
    """Read an entry that was found in partition `at`."""
    return StoredEntry(at, found.version, found.ref, unpacked(found.value))


# --- looking ---


def look(key: bytes, place: Place) -> Looking[S]:
    """Find an object. The generator yields (partition, key) to read, is sent what is there, and returns the object's
    partition and the object; None: none of the owners has its entry.

    An object that is not where its entry says was moved, or created anew, since the entry was read; so the entry is
    read again.
    """
    while True:
        entry: S | None = None
        for partition in place.owners:
            entry = yield partition, entry_key(key)
            if entry is not None:
                break
        if entry is None:
            unlisted = None if place.listed == LISTED else (yield place.partition, key)
            return place.partition, unlisted
        home = unpacked(entry.value).partition
        found = yield home, key
        if found is not None:
            return home, found


def entries_of(
    places: Mapping[bytes, Place], fetch: Callable[[str, list[bytes], int], Sequence[Stored | None]]
) -> dict[bytes, StoredEntry]:
    """Return the entries of many objects, by their keys, as far as there are any. `fetch(partition, keys, version of
    the mapping)` says what is there; old owners are asked before new ones."""
    found: dict[bytes, StoredEntry] = {}
    for turn in range(2):
        asked: dict[tuple[str, int], list[bytes]] = {}
        for key, place in places.items():
            if key not in found and turn < len(place.owners):
                asked.setdefault((place.owners[turn], place.version), []).append(key)
        for (at, version), keys in asked.items():
            there = fetch(at, [entry_key(key) for key in keys], version)
            found |= {key: standing(at, f) for key, f in zip(keys, there, strict=True) if f is not None}
    return found


# --- changing ---


def beside(
    changes: Iterable[ObjectChange],
    home: str,
    place_of: Callable[[bytes], Place],
    standing_of: Callable[[bytes], StoredEntry | None],
) -> Iterator[tuple[str, DirectoryRow]]:
    """Yield what changes in the directory together with these objects of partition `home`: (partition, row).

    `place_of` says where an object's entry belongs. `standing_of` says which entry an object has; None if it has none
    yet, or no more. An object that is deleted and created anew keeps its entry where it is, so that owners cannot
    contradict each other.
    """
    gone: dict[bytes, StoredEntry | None] = {}
    for change in changes:
        if change.op == UPDATE or is_entry(change.key):
            continue
        key = entry_key(change.key)
        if change.op == DELETE:
            now = gone[key] = standing_of(change.key)
            if now is not None:
                yield now.at, DirectoryRow(DELETE, now.ref, key, None, now.version)
        elif (at := _listed_at(key, gone, place_of(change.key))) is not None:
            assert change.value is not None
            yield at, DirectoryRow(CREATE, change.ref, key, packed(change.value[:ID_BYTES], home), ABSENT)


def _listed_at(key: bytes, gone: Mapping[bytes, StoredEntry | None], place: Place) -> str | None:
    """Return where a new object's entry is to be; None: it gets none."""
    if key in gone:
        was = gone[key]
        return None if was is None else was.at
    return None if place.listed == UNLISTING else place.partition


def vouching(
    changes: Iterable[ObjectChange],
    home: str,
    place_of: Callable[[bytes], Place],
    standing_of: Callable[[bytes], StoredEntry | None],
) -> Iterator[tuple[str, bytes]]:
    """Yield what must be absent for these changes to be right while objects get entries, or lose them: (partition,
    key).

    For a created object there must be neither entry nor object where its key hashes to. For an object deleted without
    an entry, none may have been made meanwhile.
    """
    gone = set[bytes]()
    for change in changes:
        if change.op == UPDATE or is_entry(change.key):
            continue
        at, _, _, kind = place_of(change.key)
        if change.op == DELETE:
            gone.add(change.key)
            if standing_of(change.key) is None:
                yield at, entry_key(change.key)
        elif change.key not in gone and kind == UNLISTING:
            yield at, entry_key(change.key)
        elif change.key not in gone and at != home:
            yield at, change.key


def listing(key: bytes, found: Stored, partition: str) -> DirectoryRow:
    """Return the change that gives an object of this partition an entry there, where both belong. The object's version
    counts as read."""
    return DirectoryRow(CREATE, found.ref, entry_key(key), packed(found.value[:ID_BYTES], partition), ABSENT)


def unlisting(key: bytes, found: Stored | None, now: StoredEntry) -> tuple[tuple[str, DirectoryRow], ...]:
    """Return the changes that take an entry away: its object moves to where the entry was, or is there already
    (None)."""
    entry = (now.at, DirectoryRow(DELETE, now.ref, entry_key(key), None, now.version))
    if found is None:
        return (entry,)
    return (
        entry,
        (now.said.partition, DirectoryRow(DELETE, found.ref, key, None, found.version)),
        (now.at, DirectoryRow(CREATE, found.ref, key, found.value, ABSENT)),
    )


def moved(key: bytes, found: Stored, now: StoredEntry, to: str) -> tuple[tuple[str, DirectoryRow], ...]:
    """Return the changes that carry an object to partition `to`: (partition, row) for the object, in its old and new
    partition, and for its entry."""
    return (
        (now.said.partition, DirectoryRow(DELETE, found.ref, key, None, found.version)),
        (to, DirectoryRow(CREATE, found.ref, key, found.value, ABSENT)),
        (now.at, DirectoryRow(UPDATE, now.ref, entry_key(key), packed(now.said.type_id, to), now.version)),
    )
