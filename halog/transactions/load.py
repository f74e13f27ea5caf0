"""This module creates objects in bulk: grouped by partition, with several commits in flight.

A load is not one transaction: each chunk is one, and loaded chunks stay when a later one fails. Objects given to it
stay plain: they are bound to no transaction. The caller's thread encodes, a few threads wait for the log; both are
bounded, so an endless iterable needs no more memory than a short one, and a thousand partitions no more than sixty.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, Literal

import msgspec

from halog.backend import KnownMappings, Work, Write
from halog.core.ids import ABSENT
from halog.core.keys.directory import ID_BYTES, StoredEntry, beside, entry_key, object_key, vouching
from halog.core.keys.mapping import LISTED, LISTING, UNLISTING, Place
from halog.core.log.records import CREATE
from halog.errors import (
    ConflictError,
    DuplicateKeyError,
    FieldTypeError,
    HalogError,
    OutcomeUnknownError,
    RecordTooLargeError,
    RemappedError,
)
from halog.schema.placed import new_object
from halog.transactions import work_set as work
from halog.transactions.entry import encode
from halog.transactions.gathered import ROOM_BYTES, Gathered
from halog.transactions.space import Space

BATCH: Final = 500
"""Objects per commit: at 200 bytes each 100 kB a record, where the log's cost per record no longer shows."""
CHUNK_BYTES: Final = 1_000_000
"""Bytes of a chunk, or a fifth of the largest record (R8), if that is less. A chunk ends with the object that passes
this size. An object that alone would double it goes into the next chunk, so that the envelope never decides."""
OBJECT_BYTES: Final = 64
"""Bytes of an object in a record beside its value and its key: reference, versions, lengths."""
COMMITS_IN_FLIGHT: Final = 16
"""Threads that wait for commits; more would only lengthen the queue of a log that is written in order."""
MAX_NAMES: Final = 1_000
"""Duplicates listed by name; all are counted."""
MAX_ATTEMPTS: Final = 10
"""Attempts for one chunk whose keys others create at the same time."""

Duplicates = Literal["raise", "skip"]


class Loaded(msgspec.Struct, frozen=True):
    """Holds what `load` did. `duplicates` names keys that existed (at most 1,000), `duplicate_count` counts all."""

    objects: int
    commits: int
    seconds: float
    duplicates: tuple[str, ...] = ()
    duplicate_count: int = 0


def load(
    space: Space,
    objects: Iterable[Any],
    *,
    batch: int = BATCH,
    duplicates: Duplicates = "raise",
    progress: Callable[[int], None] | None = None,
    room: int = ROOM_BYTES,
) -> Loaded:
    """Create all objects, `batch` to a commit (D1). `progress(n)` is called with the number of objects loaded so far.
    What is gathered for commits of all partitions has this `room` in memory; beyond it the fullest go early.

    Keys that exist are left alone; at the end DuplicateKeyError names them, or with `duplicates="skip"` the summary
    does. Any other error stops the load: FieldTypeError, UnknownTypeError, AvailabilityError, RecordTooLargeError. What
    was loaded stays, and the error says how much (`loaded` in its evidence). Where one object is to blame, `number` is
    its place among those given, from 1.
    """
    loader = _Loader(space, batch, progress, room)
    done = loader.run(objects)
    if done.duplicate_count and duplicates == "raise":
        names = ", ".join(done.duplicates[:3])
        raise DuplicateKeyError(
            f"{done.duplicate_count:,} objects were not loaded because their keys exist, the first are {names}; "
            f'the other {done.objects:,} were loaded (duplicates="skip" accepts this)',
            loaded=done.objects,
            duplicates=list(done.duplicates),
        )
    return done


class _Chunk:
    """Holds creates of one partition on their way into one commit."""

    __slots__ = ("mapped", "numbers", "place", "since", "size", "type_name", "writes")

    def __init__(self, place: Place, mapped: KnownMappings, type_name: str) -> None:
        self.place = place
        self.mapped = mapped
        self.size = 0
        self.type_name = type_name
        """The type of one of the objects; if a mapper spreads them over partitions, all are of one policy."""
        self.since = 0.0
        """When a mapping was first refused on this chunk's way (`Space.relearn`)."""
        self.writes: dict[bytes, Write] = {}
        self.numbers: dict[bytes, int] = {}
        """The place of each object among those given, from 1."""


class _Loader:
    def __init__(self, space: Space, batch: int, progress: Callable[[int], None] | None, room: int) -> None:
        if batch < 1:
            raise FieldTypeError(f"batch must be at least 1, not {batch}")
        self.space = space
        self.batch = batch
        self.progress = progress
        self.objects = self.commits = self.duplicate_count = 0
        self.names: list[str] = []
        self.error: BaseException | None = None
        self._chunks: dict[Place | str, _Chunk] = {}
        self._gathered = Gathered[Place | str](room)
        self._lock = threading.Lock()
        self._free = threading.Semaphore(2 * COMMITS_IN_FLIGHT)

    def run(self, objects: Iterable[Any]) -> Loaded:
        begin = time.perf_counter()
        pool = ThreadPoolExecutor(COMMITS_IN_FLIGHT, thread_name_prefix="halog-load")
        try:
            self._feed(objects, pool)
        finally:
            pool.shutdown(wait=True)
        if self.error is not None:
            if isinstance(self.error, HalogError):
                self._tell(self.error)
            raise self.error
        seconds = time.perf_counter() - begin
        return Loaded(self.objects, self.commits, seconds, tuple(self.names), self.duplicate_count)

    def _tell(self, error: HalogError) -> None:
        """Say in the error that ended the load what became of the load. What the error says is of one commit alone."""
        error.evidence["loaded"] = self.objects
        number = error.evidence.get("number")
        whose = f"its object {number:,}" if number else "one of its commits"
        least = "at least " if isinstance(error, OutcomeUnknownError) else ""
        said = f'the load ended with {least}{self.objects:,} objects stored (duplicates="skip" passes over these)'
        error.message = f"{said}; {whose}: {error.message}"

    # --- the caller's thread ---

    def _feed(self, objects: Iterable[Any], pool: ThreadPoolExecutor) -> None:
        """Encode and group; this loop's body runs once per object."""
        backend, info_of = self.space.backend, self.space.info_of
        mapped, new_reference = backend.mapped, backend.new_reference
        whole = mapped.changing or mapped.listed
        place_of: Callable[[str, bytes], Place | str] = backend.place_of if whole else backend.partition_of
        chunks, gathered = self._chunks, self._gathered
        batch, most = self.batch, min(CHUNK_BYTES, self.space.max_record_bytes // 5)
        try:
            for number, obj in enumerate(objects, 1):
                try:
                    info = info_of(type(obj))
                    index_key, routing_key = info.keys_of(obj)
                    at = place_of(info.name, routing_key)
                    value = encode(info, obj)
                except HalogError as error:
                    error.evidence["number"] = number
                    raise
                size = len(value) + len(index_key) + OBJECT_BYTES
                chunk = chunks.get(at)
                if chunk is not None and index_key in chunk.writes:
                    self._duplicate(index_key)
                    continue
                if chunk is not None and chunk.size + size > 2 * most:
                    self._send(pool, [at])
                    chunk = None
                if chunk is None:
                    place = at if isinstance(at, Place) else Place(at, mapped.versions.get(at, 0))
                    chunk = chunks[at] = _Chunk(place, mapped, info.name)
                chunk.writes[index_key] = Write(CREATE, new_reference().to_bytes(), index_key, value, -1)
                chunk.numbers[index_key] = number
                chunk.size += size
                too_much = gathered.add(at, size)
                full = chunk.size >= most or len(chunk.writes) >= batch
                if full or too_much:
                    self._send(pool, [at] if full else gathered.fullest())
                if self.error is not None:
                    return
        except BaseException as error:
            self._fail(error)
            return
        self._send(pool, list(chunks))

    def _send(self, pool: ThreadPoolExecutor, places: list[Place | str]) -> None:
        for at in places:
            self._gathered.sent(at)
            self._free.acquire()
            pool.submit(self._store, self._chunks.pop(at)).add_done_callback(self._stored)

    # --- the pool's threads ---

    def _stored(self, done: Future[None]) -> None:
        self._free.release()
        error = done.exception()
        if error is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self.error = self.error or error

    def _duplicate(self, key: bytes) -> None:
        with self._lock:
            self.duplicate_count += 1
            if len(self.names) < MAX_NAMES:
                self.names.append(self.space.name_of(key))

    def _store(self, chunk: _Chunk) -> None:
        for _ in range(MAX_ATTEMPTS):
            if self.error is not None or not chunk.writes:
                return
            try:
                if chunk.mapped is self.space.backend.mapped:
                    if self._presented(chunk):
                        return
                    continue
            except RemappedError as error:
                chunk.since = self.space.relearn(error, chunk.since)
            self._store_anew(chunk)  # some objects were routed by another mapping
            return
        partition = chunk.place.partition
        raise ConflictError(f"others keep creating the same objects in {partition}", partition=partition)

    def _presented(self, chunk: _Chunk) -> bool:
        """Commit the chunk and say whether that worked; if not, drop from it the objects that exist."""
        writes = tuple(chunk.writes.values())
        try:
            work.check_size(self.space, writes)
            self._commit(chunk.place, chunk.type_name, writes)
        except (DuplicateKeyError, ConflictError) as error:
            self._drop_existing(chunk, error)
            return False
        except RecordTooLargeError as error:
            key = error.evidence.get("key", writes[0].key if len(writes) == 1 else None)
            told = work.named(self.space, writes, error)
            if key in chunk.numbers:
                told.evidence["number"] = chunk.numbers[key]
            raise told from None
        self._count(len(writes))
        return True

    def _commit(self, place: Place, type_name: str, writes: tuple[Write, ...]) -> None:
        """Commit the chunk. Where a key may still have an object at its old owner, that partition takes part, too
        (T8)."""
        backend, parts = self.space.backend, {place.partition: list(writes)}
        none: dict[str, list[bytes]] = {}
        if place.listed:
            parts, none = self._spread(place, type_name, writes)
        if place.before:
            none[place.before] = [entry_key(w.key) if place.listed else w.key for w in writes]
        works = {
            p: Work(tuple((key, ABSENT) for key in none.get(p, ())), tuple(parts.get(p, ())), mapping=place.version)
            for p in {**parts, **none}
        }
        if len(works) == 1:
            backend.commit(place.partition, backend.new_transaction_id(), works[place.partition])
        else:
            backend.commit_over(backend.new_transaction_id(), works)

    def _spread(
        self, place: Place, type_name: str, writes: tuple[Write, ...]
    ) -> tuple[dict[str, list[Write]], dict[str, list[bytes]]]:
        """Return each object in the partition that its mapper says, with all their entries at `place` (P6); and the
        keys that must be absent, by partition."""
        parts: dict[str, list[Write]] = {}
        for write in writes:
            to = place.partition if place.listed == UNLISTING else self._said(type_name, write)
            parts.setdefault(to, []).append(write)
        nothing: dict[bytes, StoredEntry] = {}
        rows = [r for at, its in parts.items() for r in beside(its, at, lambda key: place, nothing.get)]
        none: dict[str, list[bytes]] = {}
        for at, its in parts.items() if place.listed != LISTED else ():
            for where, key in vouching(its, at, lambda key: place, nothing.get):
                none.setdefault(where, []).append(key)
        parts.setdefault(place.partition, []).extend(Write(*row) for _, row in rows)
        return parts, none

    def _said(self, type_name: str, write: Write) -> str:
        value = write.value
        assert value is not None, "it is created"
        return self.space.backend.next_partition(
            type_name, lambda: new_object(self.space.reader_of(value[:ID_BYTES])[0].parsed, value)
        )

    def _store_anew(self, chunk: _Chunk) -> None:
        """Commit the chunk's objects by the mapping as it is now."""
        mapped = self.space.backend.mapped
        parts: dict[Place, _Chunk] = {}
        for key, write in chunk.writes.items():
            place = self.space.places_of(key, chunk.place.partition)
            parts.setdefault(place, _Chunk(place, mapped, chunk.type_name)).writes[key] = write
        for part in parts.values():
            part.since, part.numbers = chunk.since, chunk.numbers
            self._store(part)

    def _drop_existing(self, chunk: _Chunk, error: HalogError) -> None:
        settled, place = error.evidence.get("settled_lsn", 0), chunk.place
        for partition in place.owners:
            keys = list(chunk.writes)
            entries = [*map(entry_key, keys)] if place.listed else keys
            for asked in (entries, keys) if place.listed in (LISTING, UNLISTING) else (entries,):
                found = self.space.backend.fetch(partition, asked, settled=settled, mapping=place.version, brief=True)
                for key in [object_key(k) for k, there in zip(asked, found, strict=True) if there is not None]:
                    if chunk.writes.pop(key, None) is not None:
                        self._duplicate(key)

    def _count(self, objects: int) -> None:
        with self._lock:
            self.objects += objects
            self.commits += 1
            if self.progress is not None:
                self.progress(self.objects)
