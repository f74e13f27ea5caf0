"""This module holds the reading half of a transaction: its identity map, and the verbs that only look.

It never changes an object and knows neither begin nor end. An index key leads to one `ObjectEntry`, an entry to one
Python object, so the same object read twice is the same Python object. Most entries are made late (`looked`): until an
entry is needed, the key leads to the object, and the object's binding to what it was made from. Each object read is
remembered with its version; a commit needs no more to notice that another transaction was faster.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

from halog.backend import Backend, CommittedObject, KnownMappings, Lag, View
from halog.core.ids import ABSENT
from halog.core.log.provisional import lsn_of
from halog.errors import ConflictError, NotFoundError, NoTransactionError, RemappedError
from halog.schema.methods import BINDING
from halog.schema.reference import Ref
from halog.transactions import calls, directory, extents, remapped as moving
from halog.transactions.calls import CallSnapshot
from halog.transactions.entry import ObjectEntry
from halog.transactions.families import NOTHING, UNLISTED, locate
from halog.transactions.space import Image, Route, Space
from halog.transactions.untouched_reads import Bond, TransactionHandle, images
from halog.transactions.work_set import cross_partition

T = TypeVar("T")
_new = object.__new__

OPEN: Final = 0
NEW, COMMITTED, ROLLED_BACK, UNKNOWN, COMMITTING = 1, 2, 3, 4, 5
OUTCOMES: Final = ("open", "new", "committed", "rolled back", "unknown", "committing")
_WORDS: Final = (
    "is open",
    "has not begun",
    "has committed",
    "was rolled back",
    "ended without a known outcome",
    "is being committed",
)


class Reading:
    """A `Reading` is the reading half of a transaction. Class attributes hold the usual values, since beginning a
    transaction is on the hot path."""

    state = NEW
    local = False
    settled: Mapping[str, int] | None = None
    """Positions that reads wait for, by partition."""
    after: dict[str, int] | None = None
    """Positions of a session's tokens, by partition: no read may be older. A position is removed once the active node
    has reached it."""
    least: dict[str, int] | None = None
    """With `read="barrier"`: the lsn that reads must have, by partition, as the active node has proved it."""
    leased = False
    """With `read="lease"`: reads take no barrier while the active node's lease lasts; else they do."""
    last_seen: Mapping[str, int] | None = None
    """What a transaction of a session has seen, once it has ended."""
    serving: str | None = None
    """The one partition of a transaction that runs a call for another node."""
    saved: CallSnapshot | None = None
    """What a call under way has touched."""
    pinned: ObjectEntry | None = None
    """The object of a call under way: the call may only reach its partition."""
    running = b""
    """The index key of the object whose method runs, of a call for another node."""
    special = False
    """Is any of the above set? Then reads take the longer way."""
    seen: object = NOTHING
    """The one of `Backend.states` during which everything was read; None: it was not all during one."""
    life: TransactionHandle | None = None
    """The handle by which objects that were only looked at know this transaction."""
    quick: TransactionHandle | None = None
    """The same handle, while looks may take the quick way."""
    views: dict[str, View] | None = None
    """With `read="local"`: the view of each partition, from its first read there to its end."""
    checked = False
    """With `read="local"`, while objects move from one partition to another (T8): it reads at the active nodes, and its
    reads are checked at its end."""
    lag: Lag | None = None
    """With `read="local"`: how far behind the copy was that this transaction read last, at the moment of its first read
    there."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.backend: Backend = space.backend
        self.states = self.backend.states
        self.mapped: KnownMappings = self.backend.mapped
        """What was known of mappings when it began (T8)."""
        self.held: dict[bytes, ObjectEntry] = {}
        """Objects that have an entry, by index key: the first, those that could be changed in place, and those changed
        in other ways than by an assignment."""
        self.looked: dict[bytes, Any] = {}
        """All other objects, which were only looked at so far, by index key."""
        self.given: list[Any] = []
        """The values that those objects were given, one after the other: each object's values, and its bond."""
        if space.lent:
            space.kept.look()
        self.expected: dict[bytes, int] = {}
        """Versions that the initiator has read and this side has not looked at."""

    @property
    def entries(self) -> dict[bytes, ObjectEntry]:
        """Return the identity map, complete."""
        return self.hold()

    def hold(self) -> dict[bytes, ObjectEntry]:
        """Give entries to the objects that were only looked at; return all entries."""
        held = self.held
        self.quick = None
        if self.looked:
            for (key, obj), image in zip(self.looked.items(), images(self.given)):
                entry = held[key] = ObjectEntry(self, key, image.partition, image, image.ref, obj)
                obj.__dict__[BINDING] = entry
            self.looked = {}
            self.given = []
        return held

    def partitions(self) -> set[str]:
        """Return the partitions where it has read or changed anything."""
        return {e.partition for e in self.held.values()} | {i.partition for i in images(self.given)}

    def check_open(self) -> None:
        """Raise NoTransactionError unless the transaction is open."""
        if self.state:
            raise NoTransactionError(
                f"this transaction {_WORDS[self.state]}; begin one with `with node.transaction():`"
            )

    def check_live(self, entry: ObjectEntry, obj: Any) -> None:
        """Raise NoTransactionError unless `obj` is the live object of `entry`."""
        if self.state or entry.obj is not obj:
            why = f"belongs to a transaction that {_WORDS[self.state]}" if self.state else "was deleted, or is a copy"
            raise NoTransactionError(
                f"{self.space.name_of(entry.key)}: this Python object {why}; get it again in an open transaction",
                key=entry.key,
            )

    def unchanged(self) -> bool:
        """Is it certain, without asking any node, that everything read still is as it was?

        A role ends a moment before its state goes, and in between other nodes answer reads. So this asks: still active,
        *then* still the same state; a role that went and came back has another one.
        """
        seen = self.seen
        if seen is None or seen is NOTHING:
            return False
        partition = next(iter(self.held.values())).partition
        return self.backend.is_active(partition) and self.states.get(partition) is seen

    # --- verbs ---

    def find(self, cls: type[T], *key: Any) -> T | None:
        """Return the object of this class and key, or None (D1). FieldTypeError for a wrong key, UnknownTypeError,
        MapperError, AvailabilityError, RefusedError as in `create`."""
        return self._find(cls, key)

    def _find(self, cls: type[T], key: tuple[Any, ...]) -> T | None:
        """Return the object, the fast way: its first get, of an object that has not changed since this node read it. It
        takes one look into each of four tables, and makes the object here, as `_look` does, without a call."""
        if self.state:
            self.check_open()
        parts = len(key)
        whole = key[0] if parts == 1 else key
        try:
            route = self.space.routes[cls][whole]
        except Exception:  # not known, or cannot be hashed or compared: `Space.route` says what is wrong with it
            return self._find_at(cls, self.space.route(cls, key), key)
        types = route.types
        if parts == 2:  # most that have several; unpacking costs least
            one, two = key
            first, second = types  # type: ignore[misc]
            if type(one) is not first or type(two) is not second:
                return self._find_at(cls, self.space.route(cls, key), key)
        elif type(whole) is not types and (type(whole) is not tuple or [*map(type, whole)] != types):
            return self._find_at(cls, self.space.route(cls, key), key)
        obj = self.looked.get(route.key)
        if obj is None:
            image, state, life = route.image, self.states.get(route.partition, NOTHING), self.quick
            if image.state is not state or life is None or not image.flat or route.key in self.held:
                return self._find_at(cls, route, key)
            if state is not self.seen:
                self.seen = None
            self.looked[route.key] = obj = _new(image.cls)
            obj.__dict__ = d = image.values.copy()
            d[BINDING] = Bond(life, image)
            self.given += d.values()
        return obj if isinstance(obj, cls) else None

    def _find_at(self, cls: type[T], route: Route, key: tuple[Any, ...]) -> T | None:
        """Return the object whatever is known about it, by the newest mapping (T8)."""
        since = 0.0
        while True:
            try:
                return self._found(cls, route)
            except RemappedError as error:
                since = self.space.relearn(error, since)
                route = self.space.route(cls, key)

    def _found(self, cls: type[T], route: Route) -> T | None:
        key = route.key
        if route.places and (found := locate(self, route)) is not NOTHING:
            obj = None if found is UNLISTED else self.add(key, route.partition, found).get()
            return obj if isinstance(obj, cls) else None
        obj = self.looked.get(key)
        if obj is None:
            entry = self.held.get(key)
            if entry is None:
                obj = self._first(route)
            else:
                if self.saved is not None:
                    self.saved.touch(entry)
                obj = self._now(entry)
        return obj if isinstance(obj, cls) else None

    def _now(self, entry: ObjectEntry) -> Any:
        return entry.get() if entry.known or entry.ref is not None else self._learn(entry)

    def _first(self, route: Route) -> Any:
        """Read the object under an index key into the identity map, and return it; None if there is none."""
        if self.special:
            return self.read(route.key, route.partition, route.mapping).get()
        image = self._current(route)
        if image is None or not image.flat or not self.held:  # most transactions that change something read one object
            entry = ObjectEntry(self, route.key, route.partition, image, None if image is None else image.ref)
            self.held[route.key] = entry
            return entry.get()
        return self._look(route.key, image)

    def _look(self, key: bytes, image: Image) -> Any:
        life = self.life
        if life is None:
            life = self.life = TransactionHandle(weakref.ref(self), Reading, self.space, ROLLED_BACK)
        self.quick = life
        self.looked[key] = obj = _new(image.cls)
        obj.__dict__ = d = image.values.copy()
        d[BINDING] = Bond(life, image)
        self.given += d.values()
        return obj

    def _current(self, route: Route) -> Image | None:
        """Return the committed object there, or None."""
        image, state = route.image, self.states.get(route.partition)
        if state is not self.seen:
            self.seen = state if self.seen is NOTHING and not self.held else None
        if state is None or image.state is not state:
            found = self.backend.find(route.partition, route.key, route.mapping)
            if found is None:
                return None
            if image.found is not found:
                image = route.image = self.space.image(found, route.partition)
                route.key = found.key  # the very bytes the node's table has: compared by identity from now on
            image.state = state
        return image

    def _route(self, cls: type[Any], key: tuple[Any, ...]) -> Route:
        whole = key[0] if len(key) == 1 else key
        try:
            route = self.space.routes[cls][whole]
        except Exception:
            return self.space.route(cls, key)
        if type(whole) is route.types or (type(whole) is tuple and [*map(type, whole)] == route.types):
            return route
        return self.space.route(cls, key)

    def get(self, cls: type[T], *key: Any) -> T:
        """Return the object of this class and key (D1). NotFoundError if there is none; other errors as in `find`."""
        obj = self._find(cls, key)
        if obj is None:
            raise self._not_found(cls, key)
        return obj

    def _not_found(self, cls: type[Any], key: tuple[Any, ...]) -> NotFoundError:
        info = self.space.info_of(cls)
        checked = info.check_key(key)
        index_key, shown = info.index_key(checked), ", ".join(repr(k) for k in checked)[:200]
        return NotFoundError(f"{info.name} {shown} does not exist", type=info.name, key=index_key)

    def is_here(self, cls: type[Any], key: tuple[Any, ...]) -> bool:
        """Can this object be read without asking another node? FieldTypeError for a wrong key, UnknownTypeError."""
        route = self._route(cls, key)
        return not self.special and not route.places and self.backend.is_active(route.partition)

    def resolve(self, ref: Ref[T]) -> T:
        """Return the object that a reference names (D1). NotFoundError if it is gone, also if its key now has a new
        instance."""
        if self.state:
            self.check_open()
        info = self.space.registry.info(ref.type_name)
        key = info.index_key_of(ref)
        obj = self._find(info.cls, info.decode_index_key(key))
        if obj is None or obj.__dict__[BINDING].ref != ref.raw:
            raise NotFoundError(f"{self.space.name_of(key)}: the instance this reference names is gone", key=key)
        return obj  # type: ignore[no-any-return]

    def extent(self, cls: type[T]) -> Iterator[T]:
        """Yield all objects of a class and its subclasses, in all partitions (D2), with this transaction's changes.
        Each counts as read; objects that others create meanwhile may be missed. RecordFormatError behind the last one,
        if the bytes of any cannot be read: it names them."""
        return extents.extent(self, cls)

    def touched(self, entry: ObjectEntry) -> Any:
        if self.saved is not None:
            self.saved.touch(entry)
        return self._now(entry)

    def call(self, entry: ObjectEntry, obj: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a method of one of this transaction's objects; see `calls`."""
        return calls.call(self, entry, obj, name, args, kwargs)

    # --- the node ---

    def read(self, key: bytes, partition: str, mapping: int) -> ObjectEntry:
        """Read the object under an index key into the identity map, the longer way."""
        return self.add(key, partition, self.fetch_at(key, partition, mapping))

    def add(self, key: bytes, partition: str, found: CommittedObject | None, *, remember: bool = True) -> ObjectEntry:
        self.seen = None
        if self.expected:
            self._check_expected(key, found)
        space = self.space
        image = None if found is None else (space.image if remember else space.decoded)(found, partition)
        entry = self.entries[key] = ObjectEntry(self, key, partition, image, None if image is None else image.ref)
        if self.saved is not None:
            self.saved.touch(entry)
        return entry

    def _learn(self, entry: ObjectEntry) -> Any:
        """Read the committed state of a key that this transaction created and deleted without looking."""
        self.seen = None
        entry.partition, found = moving.look_again(self, entry.key, entry.partition)
        entry.known = True
        if found is not None:
            entry.image = self.space.image(found, entry.partition)
            entry.ref = found.ref
        return entry.get()

    def after_in(self, partition: str) -> int:
        """Return the session's position in a partition."""
        return self.after.get(partition, 0) if self.after else 0

    def catch_up(self, partition: str) -> None:
        """Wait until the active node has the session's position, once per partition. DeadlineError."""
        if self.after and partition in self.after:
            self.backend.reach(partition, self.after[partition])
            if not self.local:  # a copy of this node's own may be read next
                del self.after[partition]

    def least_of(self, partition: str) -> int:
        """Return the lsn that reads of the partition must have; ask for it once, before the first of them (R5)."""
        if self.least is None:
            return 0
        if partition not in self.least:
            self.least[partition] = self.backend.barrier(partition)
        return self.least[partition]

    def seen_now(self) -> dict[str, int]:
        """Return the highest version read so far, by partition."""
        seen: dict[str, int] = {}
        for e in self.entries.values():
            if e.image is not None:
                seen[e.partition] = max(lsn_of(e.image.version), seen.get(e.partition, 0))
        return seen

    def view_of(self, partition: str, under: bytes, mapping: int, *, ahead: bool = False) -> View | None:
        """Return this transaction's view of a partition, with `read="local"`: one moment. `under`: the key, or prefix
        of keys, that it asks for first there. `ahead`: use the active node's copy, unless there is a view already.
        None: it must ask the active node, and its reads are checked at its end. ConflictError where the mapping has
        changed since it began."""
        views = self.views
        assert views is not None
        view = views.get(partition)
        if view is None:
            mapped = self.backend.mapped
            if self.checked or mapped.changing:
                self._be_checked(partition)
                return None
            if self.after and partition in mapped.listed:
                ahead = ahead or directory.in_session(self)
            after = self.after_in(partition) if self.after else 0
            view = views[partition] = self.backend.view(partition, (under,), after=after, mapping=mapping, ahead=ahead)
        elif view.mapping != mapping:
            raise self._mapping_changed(partition)
        self.lag = view.lag
        return view

    def _be_checked(self, partition: str) -> None:
        if self.views:
            raise self._mapping_changed(partition)
        self.checked = True
        self.lag = Lag(0, 0.0)

    def _mapping_changed(self, partition: str) -> ConflictError:
        return ConflictError(
            f"where objects of partition {partition} belong has changed since the transaction began to read; nothing "
            "was done; run the transaction again",
            partition=partition,
            settled_lsn=0,
        )

    def fetch_at(self, key: bytes, partition: str, mapping: int) -> CommittedObject | None:
        """Return the object under an index key there, read as this transaction reads. RemappedError if that partition
        serves another version of the mapping."""
        self.check_reach(key, partition)
        if self.local and (view := self.view_of(partition, key, mapping)) is not None:
            return view.find(key)
        self.catch_up(partition)
        if self.leased and (leased := self.backend.fetch_leased(partition, (key,), mapping=mapping)) is not None:
            return leased[0]
        if self.least is not None:
            return self.backend.fetch(partition, (key,), least=self.least_of(partition), mapping=mapping)[0]
        if self.settled is not None:
            return self.backend.fetch(partition, (key,), settled=self.settled.get(partition, 0), mapping=mapping)[0]
        return self.backend.find(partition, key, mapping)

    def _check_expected(self, key: bytes, found: CommittedObject | None) -> None:
        expected = self.expected.pop(key, None)
        version = ABSENT if found is None else found.version
        if expected is not None and expected != version:
            raise ConflictError(
                f"{self.space.name_of(key)} was read as version {expected} and now has {version}; run the transaction "
                "again",
                key=key,
                expected=expected,
                found=version,
                settled_lsn=0,
            )

    @property
    def home_now(self) -> str | None:
        """Return the partition that the running method reaches, if one runs."""
        return self.pinned.partition if self.pinned is not None else self.serving

    def check_reach(self, key: bytes, partition: str) -> None:
        """Check that a method reaches only its object's partition, wherever it runs."""
        home = self.home_now
        if home is not None and partition != home:
            place = self.space.places_of(key, partition)
            if home in place.owners and not place.listed:
                raise moving.stale(self.backend, home)
            one = self.pinned or next(iter(self.entries.values()))
            if self.mapped is not self.backend.mapped:
                raise ConflictError(
                    f"{self.space.name_of(one.key)} and {self.space.name_of(key)} were in one partition when the "
                    "transaction began, perhaps, and the mapping has changed since; run the transaction again",
                    key=one.key,
                    partition=home,
                    settled_lsn=0,
                )
            raise cross_partition(self.space, one, key, partition)
