"""This module turns objects into changes and back: what a transaction presents to the active node, and what it takes
over from a call there.

It never decides whether a version still holds; the active node's writer does. Changes are derived from the objects each
time they are asked for, always against the committed versions, so presenting them twice is harmless. A version read is
sent once: with the change that replaces it, else among the reads. A key found absent is always sent as a read, so that
a create that lost a race is a conflict (run it again), not a duplicate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import is_
from typing import TYPE_CHECKING

from halog.backend import CommittedObject, Work, Write
from halog.core.ids import ABSENT
from halog.core.log.records import CREATE
from halog.errors import ConflictError, CrossPartitionError, RecordFormatError, RecordTooLargeError
from halog.transactions.entry import ObjectEntry
from halog.transactions.families import entry_at
from halog.transactions.space import Image, Space

if TYPE_CHECKING:
    from halog.transactions.reading import Reading

Reads = tuple[tuple[bytes, int], ...]
Sent = Mapping[bytes, tuple[Write, ...]]

SENT = 1.8
"""Refuse changes of more than this times the largest record: a frame takes twice as much, with its envelope."""

LARGEST = 3
"""Objects named by RecordTooLargeError."""


def compared(entries: Iterable[ObjectEntry]) -> tuple[dict[bytes, list[Write]], dict[bytes, int]]:
    """Return the changes, and the versions read that none of them replaces, by index key. FieldTypeError if a value
    does not fit.

    Most objects were only read, so the loop is about them: one that still holds the very values it was given is skipped
    here, in a third of a microsecond.
    """
    changes: dict[bytes, list[Write]] = {}
    reads: dict[bytes, int] = {}
    for e in entries:
        image, obj = e.image, e.obj
        if image is not None and obj is not None and e.ref is image.ref:
            d, size = obj.__dict__, image.size
            if not image.mutable:
                if len(d) == size and sum(map(is_, d.values(), image.values.values())) == size - 1:
                    reads[e.key] = image.version
                    continue
            elif image.info is not None and len(d) == size + 1 and image.info.unchanged(d, image.values):
                reads[e.key] = image.version
                continue
        if writes := e.writes():
            changes[e.key] = writes
        if image is None:
            if e.known:
                reads[e.key] = ABSENT
        elif not writes:
            reads[e.key] = image.version
    return changes, reads


def check_fit(entries: Iterable[ObjectEntry]) -> None:
    """Raise FieldTypeError if a value does not fit. Of an object that was read and cannot be changed in place, only the
    values that changed are checked."""
    for e in entries:
        image, obj = e.image, e.obj
        if image is not None and image.flat and obj is not None and e.ref is image.ref:
            d, info = obj.__dict__, image.info
            if info is not None and len(d) == image.size and info.fit_still(d, image.values):
                continue
        compared((e,))


def work_in(tx: Reading, partition: str) -> Work:
    """Return the transaction's state in one partition."""
    entries = [e for e in tx.entries.values() if e.partition == partition]
    changes, reads = compared(entries)
    return Work((*reads.items(), *tx.expected.items()), tuple(w for writes in changes.values() for w in writes))


def spread(tx: Reading, changes: Mapping[bytes, Sequence[Write]], reads: Mapping[bytes, int]) -> dict[str, Work]:
    """Return the transaction's state in each partition that it has read or changed anything in."""
    entries = tx.entries
    home = entries[next(iter(changes))].partition
    if len(entries) == 1 or all(e.partition == home for e in entries.values()):
        return {home: Work(tuple(reads.items()), tuple(w for group in changes.values() for w in group))}
    parts: dict[str, tuple[list[tuple[bytes, int]], list[Write]]] = {}
    for key, version in reads.items():
        parts.setdefault(entries[key].partition, ([], []))[0].append((key, version))
    for key, group in changes.items():
        parts.setdefault(entries[key].partition, ([], []))[1].extend(group)
    return {partition: Work(tuple(read), tuple(writes)) for partition, (read, writes) in parts.items()}


def cross_partition(space: Space, one: ObjectEntry, key: bytes, partition: str) -> CrossPartitionError:
    """Return the error that names both partitions and both objects."""
    this, that = space.name_of(one.key), space.name_of(key)
    return CrossPartitionError(
        f"{this} is in partition {one.partition} and {that} in {partition}; a method runs where its object is active "
        "and reaches only that partition: partition both types by the same values, or use both outside of methods",
        partitions=[one.partition, partition],
        objects=[this, that],
    )


# --- size ---


def check_size(space: Space, writes: Sequence[Write]) -> None:
    """Refuse changes that no frame would take, before they are sent (R8). The active node knows which limit counts:
    that of the record, or that of an object."""
    size = sum([len(w.value) for w in writes if w.value is not None])
    if size > space.max_record_bytes * SENT:
        raise too_large(space, writes, size, space.max_record_bytes)


def named(space: Space, writes: Sequence[Write], error: RecordTooLargeError, reads: Reads = ()) -> RecordTooLargeError:
    """Return the error with the objects' names. `reads`: versions read that are in the record, too."""
    size, limit = error.evidence.get("size", 0), error.evidence.get("limit", space.max_record_bytes)
    key = error.evidence.get("key")
    if not isinstance(key, bytes):
        return too_large(space, writes, size, limit, reads)
    name = space.name_of(key)
    error.message = error.message.replace("an object", name, 1)
    error.evidence |= {"object": name, "largest": [[name, size]]}
    return error


def too_large(space: Space, writes: Sequence[Write], size: int, limit: int, reads: Reads = ()) -> RecordTooLargeError:
    """Return the error that names size, limit and what is large: objects, or the number of reads."""
    read = sum([len(key) for key, _ in reads])
    if read > size // 2:
        return RecordTooLargeError(
            f"the commit record has {size:,} bytes, the limit is {limit:,} (limits.max_record_bytes); most of it are "
            f"the keys of {len(reads):,} objects that were read ({read:,} bytes), which the record of a transaction "
            "over several partitions has, too: read fewer in it",
            size=size,
            limit=limit,
            largest=[],
            read=len(reads),
        )
    sizes = sorted(((len(w.value or b""), w.key) for w in writes), reverse=True)[:LARGEST]
    largest = [[space.name_of(key), n] for n, key in sizes]
    shown = ", ".join(f"{name} ({n:,} bytes)" for name, n in largest)
    return RecordTooLargeError(
        f"the commit record has {size:,} bytes, the limit is {limit:,} (limits.max_record_bytes); the largest objects "
        f"are {shown}; {'split the transaction' if len(writes) > 1 else 'make it smaller'}",
        size=size,
        limit=limit,
        largest=largest,
    )


# --- taking over ---


def by_key(writes: Iterable[Write]) -> dict[bytes, tuple[Write, ...]]:
    """Return changes grouped by index key, in order."""
    out: dict[bytes, tuple[Write, ...]] = {}
    for w in writes:
        out[w.key] = (*out.get(w.key, ()), w)
    return out


def learn(tx: Reading, partition: str, reads: Reads, found: Iterable[CommittedObject]) -> None:
    """Take over what a call on another node has read: it counts as read by this transaction. That includes a key that
    was created and deleted here without looking, if the call has looked."""
    tx.seen = None
    for f in _whole(tx, partition, found):
        entry = entry_at(tx, f.key, partition)
        if entry is None:
            entry = tx.entries[f.key] = ObjectEntry(tx, f.key, partition, known=False)
        if _unread(entry):
            entry.image = image = tx.space.image(f, partition)
            entry.ref, entry.known = image.ref, True
    for key, version in reads:
        entry = entry_at(tx, key, partition)
        if entry is None and version != ABSENT:
            raise RecordFormatError(f"the active node of {partition} read an object it did not send", key=key)
        if entry is None:
            tx.entries[key] = ObjectEntry(tx, key, partition)
        elif _unread(entry) and version == ABSENT:
            entry.known = True


def _whole(tx: Reading, partition: str, found: Iterable[CommittedObject]) -> list[CommittedObject]:
    """Fetch the values that no frame took beside the others. ConflictError if one was changed since the call has read
    it."""
    told = list(found)
    missing = [f.key for f in told if not f.value]
    if not missing:
        return told
    there = tx.backend.fetch(partition, missing, mapping=tx.backend.mapped.versions.get(partition, 0))
    now = dict(zip(missing, there, strict=True))
    whole = [f if f.value else now[f.key] for f in told]
    for was, then in zip(told, whole, strict=True):
        if then is None or then.version != was.version:
            raise ConflictError(
                f"{tx.space.name_of(was.key)} was changed while a method that has read it was called; nothing was "
                "done; run the transaction again",
                key=was.key,
                partition=partition,
                expected=was.version,
                settled_lsn=0,
            )
    return [f for f in whole if f is not None]


def _unread(entry: ObjectEntry) -> bool:
    return not entry.known and entry.ref is None


def take_over(tx: Reading, partition: str, sent: Sent, writes: Iterable[Write]) -> None:
    """Make the transaction's changes in `partition` be `writes`; existing Python objects keep their identity."""
    now = by_key(writes)
    for key, group in now.items():
        if sent.get(key) != group:
            _place(tx, key, partition, group)
    for key in sent:
        if key not in now:
            _set(tx.entries[key], *_committed(tx.entries[key]))


def _place(tx: Reading, key: bytes, partition: str, group: tuple[Write, ...]) -> None:
    entry = entry_at(tx, key, partition)
    if entry is None:
        first = group[0]
        read = first.op != CREATE
        image = Image(key, partition, first.ref, first.replaced, None, {}, b"") if read else None
        entry = tx.entries[key] = ObjectEntry(tx, key, partition, image, known=image is not None)
    last = group[-1]
    _set(entry, None if last.value is None else last.ref, last.value)


def _committed(entry: ObjectEntry) -> tuple[bytes | None, bytes | None]:
    return (None, None) if entry.image is None else (entry.image.ref, entry.image.data)


def _set(entry: ObjectEntry, ref: bytes | None, value: bytes | None) -> None:
    if entry.obj is not None and entry.ref == ref and value is not None:
        _, read = entry.tx.space.reader_of(value[:8])
        entry.assume(read(value))
        return
    entry.detach()
    entry.ref, entry.pending = ref, value
