"""This module reads extents (D2): all objects of a class, in all partitions, each once, also while objects move (T8).

It holds at most one page of a partition. Objects move from their old owner to their new one. So of two looks at all
partitions, one behind the other, at least one meets every object that was there all the time: the first, if it had not
moved when the second began, else the second. Objects met before are skipped. A partition that serves another mapping by
now refuses to go on, and all are looked at again. An object whose bytes cannot be read does not hide the others: an
error names it at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from halog.backend import CommittedObject, KnownMappings
from halog.errors import CrossPartitionError, LaterRecordError, RecordFormatError, RemappedError
from halog.transactions.directory import is_absent
from halog.transactions.families import entry_at

if TYPE_CHECKING:
    from halog.transactions.entry import ObjectEntry
    from halog.transactions.reading import Reading

T = TypeVar("T")

NAMED: Final = 10
"""Objects that cannot be read: so many are named in an error's text."""
MOST: Final = 1_000
"""So many are named in its evidence."""


def extent(tx: Reading, cls: type[T]) -> Iterator[T]:
    """Yield all objects of a class; see `Reading.extent`."""
    tx.check_open()
    met = ExtentProgress()
    while True:
        mapped = tx.backend.mapped
        try:
            for _ in range(2 if mapped.changing else 1):
                yield from _all_partitions(tx, cls, mapped, met)
            break
        except RemappedError as error:
            tx.space.relearn(error)
    if met.unreadable:
        raise _told(tx.space.info_of(cls).name, met)


class ExtentProgress:
    """Holds what an extent has met so far."""

    def __init__(self) -> None:
        self.seen = set[bytes]()
        """Keys of objects that were met; they are skipped from now on."""
        self.count = 0
        """How many objects cannot be read; the error follows when all others were given."""
        self.unreadable: list[RecordFormatError] = []
        """The first `MOST` of them."""

    def passed_over(self, key: bytes, error: RecordFormatError) -> None:
        """Note that this object cannot be read."""
        self.seen.add(key)
        self.count += 1
        if len(self.unreadable) < MOST:
            self.unreadable.append(error)


def _told(name: str, met: ExtentProgress) -> RecordFormatError:
    if met.count == 1:
        return met.unreadable[0]
    objects = [str(error.evidence["object"]) for error in met.unreadable]
    shown = ", ".join(objects[:NAMED]) + (", …" if met.count > NAMED else "")
    later = next((error for error in met.unreadable if isinstance(error, LaterRecordError)), None)
    first = met.unreadable[0] if later is None else later
    return type(first)(
        f"{met.count:,} objects of the extent of {name} cannot be read, all others were given: {shown}; "
        f"the first one: {first.message}",
        type=name,
        objects=objects,
        count=met.count,
    )


def _all_partitions(tx: Reading, cls: type[T], mapped: KnownMappings, met: ExtentProgress) -> Iterator[T]:
    """Look at all partitions once; skip objects that were met, and note the others."""
    infos = tx.space.registry.subtypes(cls)
    partitions = dict.fromkeys(p for info in infos for p in tx.backend.partitions_of(info.name))
    _check_reach(tx, infos[0].name, list(partitions))
    for partition in partitions:
        yield from _one(tx, cls, partition, infos[0].family_id, mapped, met)


def _check_reach(tx: Reading, name: str, partitions: Sequence[str]) -> None:
    """Raise CrossPartitionError inside a method, which reaches its object's partition only, if there are others."""
    home = tx.home_now
    beyond = [p for p in partitions if p != home]
    if home is None or not beyond:
        return
    raise CrossPartitionError(
        f"an extent of {name} reads {len(partitions)} partitions, {beyond[0]} among them; a method runs where its "
        f"object is active, in {home}, and reaches only that partition: iterate it outside of methods",
        partitions=[home, *beyond],
        type=name,
    )


def _one(
    tx: Reading, cls: type[T], partition: str, family: bytes, mapped: KnownMappings, met: ExtentProgress
) -> Iterator[T]:
    seen = met.seen
    anywhere = mapped.changing or partition in mapped.listed
    for found in _scanned(tx, partition, family, mapped):
        tx.check_open()
        if found.key in seen or (anywhere and is_absent(tx, found.key, partition)):
            continue
        entry = _met(tx, found.key, partition, mapped) if anywhere else entry_at(tx, found.key, partition)
        if entry is None:
            try:
                if not tx.space.is_one(found, cls, partition):
                    continue
                entry = tx.add(found.key, partition, found, remember=False)
            except RecordFormatError as error:
                met.passed_over(found.key, error)
                continue
        seen.add(found.key)
        obj: Any = tx.touched(entry)
        if isinstance(obj, cls):
            yield obj
    for entry in list(tx.entries.values()):
        if entry.partition == partition and entry.key.startswith(family) and entry.key not in seen:
            obj = tx.touched(entry)
            if isinstance(obj, cls):
                seen.add(entry.key)
                yield obj


def _met(tx: Reading, key: bytes, partition: str, mapped: KnownMappings) -> ObjectEntry | None:
    """Return the transaction's entry, at whichever owner it has met the object, or wherever it creates it. An entry
    that says "nothing here" is dropped. An object that has moved since then is a conflict when the transaction ends."""
    entry = tx.entries.get(key)
    if entry is not None and entry.ref is None and entry.image is None:
        del tx.held[key]
        return None
    if entry is None or mapped.changing or mapped.one_directory(entry.partition, partition):
        return entry
    return entry_at(tx, key, partition)


def _scanned(tx: Reading, partition: str, family: bytes, mapped: KnownMappings) -> Iterator[CommittedObject]:
    mapping = mapped.versions.get(partition, 0)
    if tx.local and (view := tx.view_of(partition, family, mapping)) is not None:
        return view.scan(family)
    tx.catch_up(partition)
    return tx.backend.scan(partition, family, least=tx.least_of(partition), mapping=mapping)
