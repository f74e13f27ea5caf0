"""Moves objects of a partition to where they belong (T8): in transactions over two partitions, of bounded size.

A caller names a partition and index keys. Callers are a node's own sweep, a method that needs an object now, and a job
that has found objects elsewhere. What each object is and where it belongs is looked up here. So asking twice is
harmless, and an object that was changed meanwhile is mapped again. A move keeps reference, key and value; the object's
version becomes its position in the log that it moved to. This module decides nothing: the mapper says where, the core
whether a move is allowed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, Protocol

from halog.backend import CommittedObject, Work, Write
from halog.config.mapper import callable_of
from halog.config.tuning import MAX_MOVE_PAUSE_MS
from halog.core.keys.directory import (
    StoredEntry,
    entries_of,
    entry_key,
    is_entry,
    listing,
    moved,
    object_key,
    standing,
    unlisting,
    unpacked,
)
from halog.core.keys.mapping import LISTING, UNLISTING, Layout, OwnedObject, PolicyMapping, batches
from halog.core.log.records import CREATE, DELETE
from halog.errors import (
    ConfigError,
    ConflictError,
    DuplicateKeyError,
    HalogError,
    LockedError,
    NotActiveError,
    RecordFormatError,
    RecordTooLargeError,
    RemappedError,
)
from halog.runtime.client.caller import Asker
from halog.runtime.keys.key_owners import Owner, function_at, routing_of
from halog.runtime.keys.routing import Routing
from halog.runtime.remap.sweep import SweepResult, side_by_side
from halog.runtime.replica.driver import Copy
from halog.runtime.rpc import frames
from halog.runtime.rpc.pages import key_size, pieces, size_of
from halog.schema.definition import ID_BYTES
from halog.schema.placed import new_object
from mappers import NewObject

logger = logging.getLogger("halog.moving")

ATTEMPTS = 20
"""So often a move of one object is tried that others keep changing. An attempt fails only if the object was changed
within a few ms."""

NOT_KNOWN: Final[Mapping[bytes, int]] = {}
"""This is passed where no versions are known."""

LOOK_S = 0.05
"""A pause between two transactions looks this often whether the node is closed."""

RESTS = 3
"""A pause is so many times as long as the move before it. Measured with 16 clients: they kept 0.70 to 0.86 of their
commits with 2, depending on the machine, 0.66 with 1, and 0.52 without a pause."""

MOST_REST_S = MAX_MOVE_PAUSE_MS / 1000
"""A pause is no longer than this: one transaction that waited for a node to come back is no reason to wait as long
again."""

WAIT_S = 0.5
"""A look waits so long for objects that an undecided transaction holds; most are decided within some ms."""


Commit = Callable[[bytes, Mapping[str, Work]], Mapping[str, int]]


class ObjectFetch(Protocol):
    """Reads objects by their index keys, as `Backend.fetch` does."""

    def __call__(self, partition: str, keys: Sequence[bytes], *, mapping: int) -> Sequence[CommittedObject | None]:
        """Return the objects under these keys; None for each that is not there."""


class _MoveSource(NamedTuple):
    """Says which copy objects leave, by which mapping, and which of the policy's threads moves them (`thread`)."""

    copy: Copy
    mapping: PolicyMapping
    swept: SweepResult
    thread: int


class Mover:
    """A `Mover` is one node's; it moves objects out of the partitions that the node serves."""

    def __init__(
        self, asker: Asker, routing: Routing, fetch: ObjectFetch, commit: Commit, new_id: Callable[[], bytes]
    ) -> None:
        self._asker = asker
        self._routing = routing
        self._fetch = fetch
        self.commit = commit
        """Commits over the partitions that objects leave and come to."""
        self._new_id = new_id
        self._routes: dict[bytes, tuple[str, Callable[[bytes], bytes]]] = {}
        """By type id: the name of the type, and the function that finds the routing key in an index key."""
        self._owners: dict[tuple[str, str, int], Owner] = {}
        self._version = 0
        self._last_moved: dict[tuple[str, int], tuple[float, float]] = {}
        """By partition and thread: when its last transaction that moved objects ended, and how many seconds it took."""

    # --- where ---

    def check_code(self, policy: str, layout: Layout) -> None:
        """Raise ConfigError, naming this node, if its code cannot map keys by this layout."""
        try:
            if policy not in self._routing.places.config.policies:
                raise ConfigError(f"its configuration has no policy {policy}")
            if callable_of(layout.mapper):
                function_at(self._routing.places.config, policy, layout)
        except ConfigError as error:
            raise ConfigError(f"node {self._asker.name}: {error.message}", node=self._asker.name) from None

    def misplaced(self, found: CommittedObject, copy: Copy, mapping: PolicyMapping) -> tuple[OwnedObject, str] | None:
        """Return an object or a directory entry that belongs elsewhere by this mapping, and its target; None if it
        stays. An object with an entry belongs where it is, unless that partition is to be emptied. Objects that are to
        get an entry, and entries that are to be removed, belong elsewhere until that is done. MapperError,
        UnknownTypeError."""
        type_name, routing_key = self._route(found)
        owner = self._owner(copy.core.state.table.policy, type_name, mapping)
        owned = OwnedObject(found.key, routing_key, size_of(found))
        if owner.listed in (LISTING, UNLISTING):
            return (owned, copy.name) if _is_of_the_other_kind(found, copy, owner, owned) else None
        if not owner.listed or is_entry(found.key):
            to = owner.partition(type_name, routing_key)
        else:
            stays, choosing = copy.name in owner.names, self._routing.choosing
            to = copy.name if stays else choosing.next_of(owner, partial(self._made, found))
        return None if to == copy.name else (owned, to)

    def _made(self, found: CommittedObject) -> NewObject:
        definition = self._routing.places.definition(found.value[:ID_BYTES])
        try:
            return new_object(definition, found.value)
        except RecordFormatError as error:  # the mapper needs its value, so nobody can say where it belongs
            raise error.retold(
                f"the object of key bytes {found.key[ID_BYTES:].hex()[:200]} stays where it is: {error.message}; "
                f"`halog get {definition.name} --key-bytes … --raw` shows it, `halog delete` deletes it",
                type=definition.name,
                key=found.key,
            ) from error

    def _route(self, found: CommittedObject) -> tuple[str, bytes]:
        type_id = unpacked(found.value).type_id if is_entry(found.key) else found.value[:ID_BYTES]
        known = self._routes.get(type_id)
        if known is None:
            definition = self._routing.places.definition(type_id)
            known = self._routes[type_id] = definition.name, routing_of(definition)
        return known[0], known[1](object_key(found.key))

    def _owner(self, policy: str, type_name: str, mapping: PolicyMapping) -> Owner:
        """Return the owner by the version of this mapping: what a node knows may change between two looks."""
        if mapping.version > self._version:
            self._owners = {}
            self._version = mapping.version
        at = policy, type_name, mapping.version
        if at not in self._owners:
            self._owners[at] = self._routing.places.owner_by(policy, type_name, mapping)
        return self._owners[at]

    # --- moving ---

    def gather(self, partition: str, keys: Sequence[bytes]) -> None:
        """See Backend."""
        if self._asker.serving(partition) is not None:
            try:
                self.move(partition, keys)
                return
            except NotActiveError:
                pass
        for its in pieces(keys, key_size):
            self._asker.ask(partition, frames.Move(partition, its))

    def move(
        self, partition: str, keys: Iterable[bytes], versions: Mapping[bytes, int] = NOT_KNOWN
    ) -> frames.MoveReply:
        """Move those of these objects that belong elsewhere; this node must be active for the partition. `versions`:
        their versions by key, when they were found. Raises NotActiveError; ConflictError if an object was changed at
        every attempt; MapperError; AvailabilityError. The other objects have moved then: `evidence` has the counts
        (`moved`, `again`)."""
        swept = self.sweep(partition, keys, versions)
        if swept.problem is not None:
            swept.problem.evidence |= {"moved": swept.moved, "again": swept.again}
            raise swept.problem
        return frames.MoveReply(swept.moved, swept.stayed, swept.again)

    def sweep(
        self, partition: str, keys: Iterable[bytes], versions: Mapping[bytes, int] = NOT_KNOWN, *, urgent: bool = True
    ) -> SweepResult:
        """Do the same as `move`, and return the counts also where some objects could not move. Without `urgent` nobody
        waits for the objects, so the policy's pause comes before the first transaction, too. NotActiveError,
        RemappedError."""
        copy = self._asker.serving(partition)
        if copy is None:
            raise NotActiveError(f"{self._asker.name} is not active for {partition}", partition=partition)
        policy, mapping = self._routing.places.config.policies[copy.core.state.table.policy], self._mapping(copy)
        size = copy.core.state.settings.max_record_bytes // 4  # a delete carries the bytes before it, too
        found = _found(copy, list(keys))
        swept, away = SweepResult(versions), set[str]()
        swept.saw(found)
        elsewhere = []
        for f in found:
            try:
                at = self.misplaced(f, copy, mapping)
            except HalogError as error:
                swept.failed(error)
            else:
                elsewhere += [] if at is None else [at]
        hasty = set(range(policy.move_threads)) if urgent else set[int]()

        def carry(thread: int, batch: tuple[str, list[bytes]]) -> None:
            to, moving = batch[0], _MoveSource(copy, mapping, swept, thread)
            try:
                if to not in away:
                    self._rest(partition, thread, 0 if thread in hasty else policy.move_pause_ms)
                    hasty.discard(thread)
                    self._move(moving, to, batch[1])
            except RemappedError:
                raise
            except HalogError as error:  # the target is at fault, not these objects: the next try may take as long
                away.add(to)
                swept.failed(error)

        for its in _batches(elsewhere, policy.move_objects, size):
            side_by_side(carry, its, policy.move_threads)
        swept.stayed = len(found) - swept.moved
        return swept

    def _rest(self, partition: str, thread: int, pause_ms: int | None) -> None:
        """Sleep until the pause behind this thread's last move in this partition is over, or the node closes. Where
        `pause_ms` is None, the pause depends on how long that move took: so others get their share of time, however
        slow they make it."""
        ended, took = self._last_moved.get((partition, thread), (0.0, 0.0))
        until = ended + (min(RESTS * took, MOST_REST_S) if pause_ms is None else pause_ms / 1000)
        while (left := until - time.monotonic()) > 0 and not self._asker.closed:
            time.sleep(min(left, LOOK_S))

    def _move(self, moving: _MoveSource, to: str, keys: Sequence[bytes]) -> None:
        """Move these objects in one transaction. If one is changed meanwhile, move them in transactions of half the
        size."""
        for left in range(ATTEMPTS, 0, -1):
            try:
                moving.swept.took(self._move_once(moving, to, keys))
                return
            except RemappedError:
                raise
            except (ConflictError, DuplicateKeyError, RecordTooLargeError) as error:  # changed, just moved, too large
                if len(keys) > 1:
                    half = len(keys) // 2
                    self._move(moving, to, keys[:half])
                    self._move(moving, to, keys[half:])
                    return
                if left == 1 or isinstance(error, RecordTooLargeError):
                    moving.swept.failed(_stays(moving.copy, to, error))
                    return
                time.sleep(0.001 * (ATTEMPTS - left + 1))

    def _move_once(self, moving: _MoveSource, to: str, keys: Sequence[bytes]) -> int:
        copy, mapping = moving.copy, moving.mapping
        found = _found(copy, keys)
        moving.swept.saw(found)
        reads: tuple[tuple[bytes, int], ...] = ()
        if mapping.kind == LISTING:  # the objects stay; others may have made entries for some of them meanwhile
            found = [f for f in found if copy.objects.find(entry_key(f.key)) is None]
            writes = [(to, Write(*listing(f.key, f, to))) for f in found]
            reads = tuple((f.key, f.version) for f in found)
        elif mapping.kind == UNLISTING:
            writes = list(self._unlisting(copy, found, mapping))
        else:
            writes = list(self._writes(copy, to, found, mapping))
        if not writes:
            return 0
        parts: dict[str, list[Write]] = {}
        for partition, write in writes:
            parts.setdefault(partition, []).append(write)
        works = {p: Work(reads, tuple(its), mapping=mapping.version, moves=True) for p, its in parts.items()}
        began = time.monotonic()
        self.commit(self._new_id(), works)
        ended = time.monotonic()
        self._last_moved[copy.name, moving.thread] = ended, ended - began
        return len(found)

    def _unlisting(
        self, copy: Copy, found: Sequence[CommittedObject], mapping: PolicyMapping
    ) -> Iterator[tuple[str, Write]]:
        """Yield the writes that remove these entries and bring their objects here. ConflictError if an object is not
        where its entry says: it was changed just now."""
        entries = {object_key(f.key): standing(copy.name, f) for f in found}
        away: dict[str, list[bytes]] = {}
        for key, now in entries.items():
            if now.said.partition != copy.name:
                away.setdefault(now.said.partition, []).append(key)
        objects: dict[bytes, CommittedObject] = {}
        for partition, keys in away.items():
            there = self._fetch(partition, keys, mapping=mapping.version)
            objects |= {f.key: f for f in there if f is not None}
        for key, now in entries.items():
            if now.said.partition != copy.name and key not in objects:
                raise ConflictError(f"an object with an entry in {copy.name} was changed just now")
            yield from ((partition, Write(*row)) for partition, row in unlisting(key, objects.get(key), now))

    def _writes(
        self, copy: Copy, to: str, found: Sequence[CommittedObject], mapping: PolicyMapping
    ) -> Iterator[tuple[str, Write]]:
        """Yield the writes that carry these objects to partition `to`; an object's entry changes in the same
        transaction."""
        entries = self._entries(copy, [f for f in found if mapping.kind and not is_entry(f.key)], mapping)
        for f in found:
            if f.key in entries:
                yield from ((partition, Write(*row)) for partition, row in moved(f.key, f, entries[f.key], to))
            else:
                yield copy.name, Write(DELETE, f.ref, f.key, None, f.version)
                yield to, Write(CREATE, f.ref, f.key, f.value, -1)

    def _entries(
        self, copy: Copy, found: Sequence[CommittedObject], mapping: PolicyMapping
    ) -> Mapping[bytes, StoredEntry]:
        """Return the entries by index key. ConflictError if an object is not where its entry says: it is being moved or
        deleted."""
        places = {}
        for f in found:
            type_name, routing_key = self._route(f)
            owner = self._owner(copy.core.state.table.policy, type_name, mapping)
            places[f.key] = owner.place(type_name, routing_key)
        entries = entries_of(places, lambda at, keys, version: self._fetch(at, keys, mapping=version))
        for key in places:
            if key not in entries or entries[key].said.partition != copy.name:
                raise ConflictError(f"an object of {copy.name} has no entry that names it: it was changed just now")
        return entries

    def _mapping(self, copy: Copy) -> PolicyMapping:
        """Return the mapping that this node knows, at least as new as the one in the partition's log. An older one
        would be refused."""
        known = self._routing.mappings.known.get(copy.core.state.table.policy)
        if known is None or known.version < copy.core.state.ledger.mapping:
            known = self._routing.learned(copy.core.state.table.policy, copy.core.state.ledger.mapping)
        return known


def _is_of_the_other_kind(found: CommittedObject, copy: Copy, owner: Owner, owned: OwnedObject) -> bool:
    """Is it an object without an entry that is to get one, or an entry that is to be removed?"""
    if owner.listed == UNLISTING:
        return is_entry(found.key)
    at_home = owner.names[owner.mapper.partition(owned.routing_key)] == copy.name
    return not is_entry(found.key) and at_home and copy.objects.find(entry_key(found.key)) is None


def _batches(
    elsewhere: Sequence[tuple[OwnedObject, str]], objects: int, size: int
) -> Iterator[list[tuple[str, list[bytes]]]]:
    """Yield batches of objects, then batches of entries: a transaction that carries an object also changes its entry,
    and one transaction must not change an entry twice."""
    for entries in (False, True):
        yield batches([at for at in elsewhere if is_entry(at[0].key) is entries], objects, size)


def _found(copy: Copy, keys: Sequence[bytes]) -> list[CommittedObject]:
    """Return the objects under these keys, once no transaction in doubt holds them: an object may just be arriving.
    Objects that are held for longer are left out."""
    wanted = set(keys)
    held = wanted.intersection(list(copy.core.state.ledger.locks))
    if held:
        with suppress(LockedError):
            copy.wait_free(held, WAIT_S)
        wanted.difference_update(list(copy.core.state.ledger.locks))
    return [f for f in (copy.objects.find(key) for key in keys if key in wanted) if f is not None]


def _stays(copy: Copy, to: str, error: HalogError) -> HalogError:
    """Return the error for an object that did not move in spite of all attempts."""
    if not isinstance(error, DuplicateKeyError):
        return error
    return HalogError(
        f"an object in {copy.name} belongs in {to}, which has another object of the same key", partition=copy.name
    )
