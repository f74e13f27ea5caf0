"""This module holds the things that all transactions of one node share: its backend, the declared types, and values
decoded once.

It never holds a transaction's state. An object's version names its bytes, so every transaction that reads the same
version may share a decoded value; types whose values could be changed in place get a fresh copy each. The place of a
key changes with the mapping of its policy (T8): a route says by which version it was found, and is found anew where
that version is refused.
"""

from __future__ import annotations

import datetime as dt
import time
import uuid
from collections.abc import Callable, Collection
from typing import Any, Final

import msgspec

from halog.backend import Backend, CommittedObject
from halog.core.bounded import make_room
from halog.core.ids import ABSENT
from halog.core.keys.directory import is_entry, object_key
from halog.core.keys.mapping import BY_KEY, Place
from halog.errors import DeadlineError, LaterRecordError, RecordFormatError, RemappedError, UnknownTypeError
from halog.schema.definition import ID_BYTES, Definition
from halog.schema.methods import BINDING
from halog.schema.registry import Registry
from halog.schema.typeinfo import TypeInfo
from halog.transactions import forked
from halog.transactions.families import Family, family_of
from halog.transactions.kept import TakenOutValues

MAX_IMAGES: Final = 100_000
"""Decoded values kept: 65 MB of objects of 200 bytes, with their places (640 bytes each, half of them the bytes and
strings themselves; names are shared). Further values are decoded again."""
MAX_ROUTES: Final = MAX_IMAGES
"""Keys whose place is remembered, each with the value last read there. Beyond that all are forgotten: finding a place
again takes some µs."""
MAX_RECORD_BYTES: Final = 5_000_000
"""The default of R8. The active node checks the exact size; this side only spares it records that cannot pass."""

_BY_EQUALITY: Final = frozenset({str, bytes, int, bool, dt.date, uuid.UUID})
"""Types of which equal values always have equal bytes. Values of other types may equal these: `1 == True == 1.0`, and a
subclass defines its own equality. So a look compares types, too."""

_ROOM: Final = object()
"""Holds the place of a binding in an image's values. No object's binding is this one."""

_PLAIN: Final = frozenset({str, int, float, bool, bytes, type(None)})
"""Types whose values come out of their bytes as they went in."""
UNREADABLE_ADVICE: Final = ": an operator sees its bytes with `halog get --raw` and can delete it with `halog delete`"

_new = object.__new__


class Image(msgspec.Struct, eq=False, gc=False):  # 100,000s are kept; plain values cannot form cycles
    """An `Image` is a committed object, decoded. It is shared: nobody changes it.

    A stub (`info` None) stands for a version whose value this process has not seen, only a later one.
    """

    key: bytes
    partition: str
    ref: bytes
    version: int
    info: TypeInfo | None
    values: dict[str, Any]
    """The object's values by field. If none can be changed in place, a place for a binding is added at the end: a copy
    is an object's `__dict__` then, except for the binding."""
    data: bytes
    found: CommittedObject | None = None
    """What it was decoded from: the active node hands out the same one until it changes."""
    size: int = 0
    """Entries of `values`, and so of an unchanged object's `__dict__`."""
    plain: list[type] | None = None
    """The values' types, if such values come out of their bytes as they went in; looked at when first needed."""
    mutable: bool = True
    flat: bool = False
    """See `TypeInfo`."""
    cls: type[Any] = object
    state: object = None
    """The one of `Backend.states` before this image was last found to be current. It is here, not in the route: several
    threads may put images there, and one must not pass for another."""

    def __post_init__(self) -> None:
        if self.info is not None:
            self.mutable = self.info.mutable
            self.flat = self.info.flat
            self.cls = self.info.cls
        if not self.mutable and BINDING not in self.values:
            self.values = _with_room(self.cls, self.values)
        self.size = len(self.values)

    def fresh(self) -> dict[str, Any]:
        """Return values that a transaction may change."""
        return self.info.fresh(self.values) if self.info is not None and self.mutable else self.values


def _with_room(cls: type[Any], values: dict[str, Any]) -> dict[str, Any]:
    """Return values with a place for a binding (`Image.values`). The dict is an object's, which shares the table of
    names with those of its class."""
    made: dict[str, Any] = _new(cls).__dict__
    for name, value in values.items():
        made[name] = value
    made[BINDING] = _ROOM
    return made


NOWHERE: Final = Image(b"", "", b"", ABSENT, None, {}, b"")
"""Stands for "no image" on the hot path."""


class Route(msgspec.Struct, eq=False, gc=False):  # 100,000s are kept; they cannot form cycles
    """A `Route` says where an object is: its index key and its partition."""

    key: bytes
    partition: str
    types: type | list[type]
    """The type of the key's only part, or of all its parts. A value that equals a part but has another type may be
    another key, or none."""
    image: Image
    """The image last read there. It is kept here so that reading it again looks into one table less: with 10,000s of
    objects every table is a cache miss or two."""
    mapping: int = 0
    """The version of the mapping that led there: the partition refuses an older one than it serves (T8)."""
    places: tuple[Place, ...] = ()
    """Where the object may be, if at several places: a relative of its class is bound to another policy, the mapping is
    being changed, or a key directory says where it is. Such a route is not remembered."""


def _is_of(image: Image, value: bytes) -> bool:
    """Was the image made of these bytes? A version is a position in one log, and sites that have parted have two
    (M5)."""
    return image.data == value or (image.found is not None and image.found.value == value)


class Space:
    """A `Space` holds everything that the transactions of one node share. Thread-safe: every entry of a cache is
    written whole and can be made again."""

    def __init__(
        self,
        backend: Backend,
        registry: Registry,
        *,
        definition_of: Callable[[bytes], str | bytes | None] | None = None,
        application_modules: Collection[str] = (),
        max_record_bytes: int = MAX_RECORD_BYTES,
    ) -> None:
        self.backend = backend
        self.registry = registry
        self.application_modules = application_modules
        self.max_record_bytes = max_record_bytes
        self.forked = False
        """Is this a child of the process that made it? Then it belongs to the parent."""
        self.routes: dict[type[Any], dict[Any, Route]] = {}
        """Routes by class, then by the key's only part or the tuple of its parts (which may also be given as one
        tuple). These are keys for which equal values and types mean one key (`_is_by_equality`)."""
        self.encoded: dict[type[Any], dict[bytes, Route]] = {}
        """Routes of all other keys, by class, then by index key."""
        self.images: dict[bytes, Image] = {}
        self.kept = TakenOutValues(self.name_of)
        self.lent = self.kept.pending
        """Is there anything to look at? Asked when a transaction begins."""
        self._families: dict[str, tuple[int, Family]] = {}
        """Families by type name, each with how many types were declared then."""
        self._definition_of = definition_of
        self._readers: dict[bytes, tuple[TypeInfo, Callable[[bytes], dict[str, Any]]]] = {}
        forked.SPACES.add(self)  # whole: another thread may fork at any moment

    def leave_behind(self) -> None:
        """Mark this space in a forked child, which must not use it."""
        self.forked = True
        self.kept.leave_behind()

    # --- types ---

    def info_of(self, cls: type[Any]) -> TypeInfo:
        """Return the declared type of a class; UnknownTypeError."""
        found = self.registry.by_class.get(cls)
        return found if found is not None else self.registry.info(cls)

    def reader_of(self, type_id: bytes) -> tuple[TypeInfo, Callable[[bytes], dict[str, Any]]]:
        """Return the declared type that bytes of this type id belong to, and what reads them (also of older
        definitions)."""
        found = self._readers.get(type_id)
        if found is None or self.registry.by_name.get(found[0].name) is not found[0]:
            found = self._readers[type_id] = self._make_reader(type_id)
        return found

    def _make_reader(self, type_id: bytes) -> tuple[TypeInfo, Callable[[bytes], dict[str, Any]]]:
        info = self.registry.by_type_id.get(type_id)
        if info is not None:
            return info, info.decode
        stored = None if self._definition_of is None else self._definition_of(type_id)
        if stored is None:
            raise UnknownTypeError(
                f"an object of type id {type_id.hex()}, which is neither declared here nor stored with its definition",
                type=type_id.hex(),
            )
        definition = Definition.parse(stored)
        info = self.registry.info(definition.name)
        return info, info.reader(definition)

    def is_one(self, found: CommittedObject, cls: type[Any], partition: str) -> bool:
        """Is a committed object of this class? RecordFormatError if it is of a subclass that is not declared here."""
        type_id = found.value[:ID_BYTES]
        try:
            return issubclass(self.reader_of(type_id)[0].cls, cls)
        except LaterRecordError as error:
            raise self._unreadable("", found, partition, error) from error
        except UnknownTypeError as error:
            stored = None if self._definition_of is None else self._definition_of(type_id)
            if stored is not None and self.info_of(cls).name not in Definition.parse(stored).bases:
                return False  # of another branch of the family
            name = self.name_of(found.key)
            raise RecordFormatError(
                f"{name} in partition {partition} cannot be read: {error.message}; nothing was changed, and other "
                "objects can be read",
                type=error.evidence.get("type", ""),
                key=found.key,
                object=name,
                partition=partition,
                version=found.version,
            ) from error

    # --- values ---

    def image(self, found: CommittedObject, partition: str) -> Image:
        """Return the decoded value of a committed object of this partition, and remember it."""
        image = self.images.get(found.key)
        same = image is not None and image.version == found.version and image.ref == found.ref
        if image is not None and same and image.partition == partition and _is_of(image, found.value):
            image.found = found
            return image
        image = self.decoded(found, partition)
        self._keep(found.key, image)
        return image

    def _keep(self, key: bytes, image: Image) -> None:
        self.images[key] = image
        make_room(self.images, MAX_IMAGES)

    def after(self, before: Image, obj: Any, data: bytes) -> Image | None:
        """Return what an object that was `before` and now has the bytes `data` will be once they are committed; None if
        decoding them might give other values than it has."""
        info = before.info
        if info is None or info.mutable or type(obj) is not before.cls:
            return None
        now = obj.__dict__
        if now.keys() != before.values.keys():
            return None
        values = _with_room(before.cls, {name: now[name] for name in before.values})
        types = [*map(type, values.values())]
        if types != before.plain:
            if before.plain is not None or not _PLAIN.issuperset(types[:-1]):
                return None
            if types != [*map(type, before.values.values())]:
                return None
        image = Image(before.key, before.partition, before.ref, ABSENT, info, values, data)
        image.plain = types
        return image

    def remember(self, key: bytes, image: Image, version: int) -> None:
        """Keep the image of an object that was just committed with this version."""
        image.version = version
        self._keep(key, image)

    def decoded(self, found: CommittedObject, partition: str) -> Image:
        """Return the decoded value of a committed object of this partition, for one use."""
        type_name = ""
        try:
            info, read = self.reader_of(found.value[:ID_BYTES])
            type_name = info.name
            values = read(found.value)
        except RecordFormatError as error:
            raise self._unreadable(type_name, found, partition, error) from error
        same = found.value[:ID_BYTES] == info.type_id
        data = found.value if same else info.encode_values([values[n] for n in info.fields])
        return Image(found.key, partition, found.ref, found.version, info, values, data, found)

    def _unreadable(
        self, type_name: str, found: CommittedObject, partition: str, error: RecordFormatError
    ) -> RecordFormatError:
        name = self.name_of(found.key)
        advice = "" if isinstance(error, LaterRecordError) else UNREADABLE_ADVICE
        return error.retold(
            f"{name} in partition {partition} cannot be read: {error.message}; nothing was changed, and other objects "
            f"can be read{advice}",
            type=type_name,
            key=found.key,
            object=name,
            partition=partition,
            version=found.version,
        )

    # --- places ---

    def route(self, cls: type[Any], key: tuple[Any, ...]) -> Route:
        """Return where the object of this class and key is. FieldTypeError for a wrong key, UnknownTypeError."""
        info = self.info_of(cls)
        checked = info.key_in(key)
        index_key = info.index_key(checked)
        known = self.encoded.get(cls)
        if known is not None and index_key in known:
            return known[index_key]
        place = self.backend.place_of(info.name, info.routing_key(checked))
        types: type | list[type] = type(checked[0]) if len(checked) == 1 else [*map(type, checked)]
        route = Route(index_key, place.partition, types, NOWHERE, place.version)
        family = self._family(info)
        if family.split or place.before or place.listed:
            below = [self.backend.place_of(name, info.routing_key(checked)) for name in family.below]
            route.places = tuple(dict.fromkeys((place, *below)))
        else:
            self._keep_route(cls, checked, route)
        return route

    def _keep_route(self, cls: type[Any], key: tuple[Any, ...], route: Route) -> None:
        if sum(map(len, (*self.routes.values(), *self.encoded.values()))) >= MAX_ROUTES:
            self.forget_routes()
        if all(map(_is_by_equality, key)):
            self.routes.setdefault(cls, {})[key[0] if len(key) == 1 else key] = route
        else:
            self.encoded.setdefault(cls, {})[route.key] = route

    def _family(self, info: TypeInfo) -> Family:
        declared = len(self.registry.by_name)
        found = self._families.get(info.name)
        if found is None or found[0] != declared:
            found = self._families[info.name] = declared, family_of(self.backend, self.registry, info)
        return found[1]

    def forget_routes(self) -> None:
        """Forget all routes, since keys may now live elsewhere."""
        self.routes = {}
        self.encoded = {}
        self._families = {}

    def relearn(self, error: RemappedError, since: float = 0.0) -> float:
        """Go by another mapping from now on, since a partition serves another one than the one that led there (T8).
        Return a time; a caller that is refused again gives it as `since`. DeadlineError once that takes longer than any
        answer may."""
        now, partition = time.monotonic(), error.evidence["partition"]
        limit_s = self.backend.deadline_of(partition)
        if since and now - since > limit_s:
            version = error.evidence["mapping"]
            raise DeadlineError(
                f"partition {partition} serves mapping version {version} and has refused what was routed by the newest "
                f"one known here for {limit_s:g} s; nothing was done: see `halog rebalance status`",
                partition=partition,
                mapping=version,
            )
        self.backend.relearn(partition, error.evidence["mapping"])
        self.forget_routes()
        return since or now

    def places_of(self, key: bytes, partition: str) -> Place:
        """Return where the object under an index key belongs, or an entry, in the policy of this partition."""
        its = object_key(key)
        for info in self.registry.by_name.values():
            if its.startswith(info.family_id) and self.backend.had(info.name, partition):
                place = self.backend.place_of(info.name, info.routing_key(info.decode_index_key(its)))
                return place._replace(listed=BY_KEY) if is_entry(key) else place
        return Place(partition, self.backend.mapped.versions.get(partition, 0))

    # --- words ---

    def name_of(self, key: bytes) -> str:
        """Return an object's name for errors: `Aircraft 'N1'`; also by the key of its entry."""
        key = object_key(key)
        for info in self.registry.by_name.values():
            if key.startswith(info.family_id) and info.name == info.parsed.root:
                try:
                    return describe(info, info.decode_index_key(key))
                except RecordFormatError:
                    break
        return f"object {key.hex()}"


def _is_by_equality(part: Any) -> bool:
    """Have all values of this part's type that equal it the same bytes? Datetimes of one zone are equal if the clock
    shows the same, also in the hour that comes twice (`fold`); datetimes that equal one of UTC are the same instant."""
    kind = type(part)
    return kind in _BY_EQUALITY or (kind is dt.datetime and part.tzinfo is dt.UTC)


def describe(info: TypeInfo, key: tuple[Any, ...]) -> str:
    """Return an object's name for errors."""
    return f"{info.name} {', '.join(repr(k) for k in key)}"[:200]
