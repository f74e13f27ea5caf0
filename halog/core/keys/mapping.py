"""This module has the mapping of a policy, and how it changes while its partitions are served (T8): pure steps, each a
compare-and-set.

A *layout* says which partition a key belongs to. A change has three steps. It is *begun*: the partitions it adds are
made meanwhile, and nobody routes by it. It is *open*: its version is one higher, keys have two owners, and objects move
from the old owner to the new. It is *done*: only the new layout is left. Law: one change at a time. It is done when
every partition is *clean*: `MapperChanged` of this version is in its log, and a later look at all its objects found
none that belongs elsewhere, and no transaction in doubt that was routed by an older version. Clean is for good: from
`MapperChanged` on, objects come to a partition only by the version it names, which brings none that belongs elsewhere.
So a node may note it that is no longer active and does not know it.

A change can be *turned back* while it is open. That is a change, with a version of its own, to where it came from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from halog.config.mapper import is_custom, is_listed
from halog.core.tolerant import TolerantStruct, carrying

BY_KEY, LISTED, LISTING, UNLISTING = "", "listed", "listing", "unlisting"
"""How a policy's objects are found. BY_KEY: by their keys alone. LISTED: by entries in a key directory (P6). LISTING
and UNLISTING: by entries where they have any, otherwise by their keys, while all objects get entries, or lose them."""


class Layout(msgspec.Struct, frozen=True, omit_defaults=True):
    """A `Layout` decides where a key belongs. `names`: partitions named by hand, by index; otherwise
    `<policy>-<index>`."""

    mapper: str
    partitions: int
    ring_size: int
    mapper_version: int = 0
    """The version of the application's mapper; 0: the mapper is built in."""
    names: tuple[str, ...] = ()

    def partition_names(self, policy: str) -> tuple[str, ...]:
        """Return the names of the partitions, by index."""
        return self.names or tuple(f"{policy}-{i}" for i in range(self.partitions))

    @property
    def listed(self) -> bool:
        """Say whether objects have entries in a key directory. Then the ring says where the entries are."""
        return is_listed(self.mapper)


class MappingChange(TolerantStruct, frozen=True, omit_defaults=True):
    """A `MappingChange` is a change under way."""

    to: Layout
    open: bool = False
    """Do requests route by it?"""
    clean: tuple[str, ...] = ()
    """The partitions that are done with it."""
    back: bool = False
    """Does it turn another change back?"""


class PolicyMapping(msgspec.Struct, frozen=True):
    """A `PolicyMapping` is the mapping of one policy. Requests carry `version`: that of `now`, or that of the change
    while it is open."""

    now: Layout
    version: int = 0
    changing: MappingChange | None = None

    @property
    def next(self) -> Layout | None:
        """Return the layout that the mapping changes to, once requests route by it."""
        return self.changing.to if self.changing is not None and self.changing.open else None

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """Return all layouts that a process must know."""
        return (self.now,) if self.changing is None else (self.now, self.changing.to)

    @property
    def newest(self) -> Layout:
        """Return the layout that places new objects."""
        return self.next or self.now

    @property
    def kind(self) -> str:
        """Return how objects are found now."""
        now, newest = self.now.listed, self.newest.listed
        if now == newest:
            return LISTED if now else BY_KEY
        return LISTING if newest else UNLISTING

    def partition_names(self, policy: str) -> tuple[str, ...]:
        """Return every partition there is, or is about to be, by index."""
        return max((layout.partition_names(policy) for layout in self.layouts), key=len)

    def updating(self, policy: str) -> tuple[str, ...]:
        """Return the partitions whose objects may still leave: those that are not known to be clean of the open change.
        Where entries are taken away these are all: one without entries may have objects, and they leave with theirs."""
        changing = self.changing
        if changing is None or not changing.open:
            return ()
        if self.kind == UNLISTING:
            return self.partition_names(policy)
        return tuple(name for name in self.partition_names(policy) if name not in changing.clean)


# --- what is allowed ---


def why_not(mapping: PolicyMapping, wished: Layout) -> str | None:
    """Return what speaks against changing to `wished`, or None."""
    now = mapping.now
    if mapping.changing is not None:
        return "another change is under way: see `halog rebalance status`"
    if wished == now:
        return "nothing differs"
    if wished.names != now.names:
        return "partitions named by hand are neither added, removed nor renamed"
    if wished.listed != now.listed:
        return _why_not_another_kind(now, wished)
    return None


def _why_not_another_kind(now: Layout, wished: Layout) -> str | None:
    """Return what speaks against getting entries, or losing them.

    A key and its entry must have one and the same owner meanwhile, or the change would not be right. A mapper that is
    asked at create says nothing about either.
    """
    both = f"{now.mapper} and {wished.mapper}"
    if is_custom(now.mapper) or is_custom(wished.mapper):
        return f"{both} cannot be changed one into the other at once: go by way of consistent_hash"
    if (now.partitions, now.ring_size) != (wished.partitions, wished.ring_size):
        return f"{both}: change the mapper alone, and partitions or ring_size when that is done"
    return None


# --- the steps ---


def begun(mapping: PolicyMapping, wished: Layout) -> PolicyMapping:
    """Return the mapping with a change to `wished` begun. The caller has asked `why_not`."""
    return msgspec.structs.replace(mapping, changing=MappingChange(wished))


def opened(mapping: PolicyMapping) -> PolicyMapping:
    """Return the mapping with its change open: the partitions of the new layout are there, and requests route by it
    from now on."""
    assert mapping.changing is not None
    assert not mapping.changing.open
    now_open = msgspec.structs.replace(mapping.changing, open=True)
    return PolicyMapping(mapping.now, mapping.version + 1, now_open)


def cleaned(mapping: PolicyMapping, policy: str, version: int, clean: Iterable[str]) -> PolicyMapping:
    """Return the mapping with these partitions clean of `version`. With the last partition the change is done."""
    changing = mapping.changing
    if changing is None or not changing.open or mapping.version != version:
        return mapping
    done = sorted({*changing.clean, *clean})
    if set(mapping.partition_names(policy)) <= set(done):
        return PolicyMapping(changing.to, mapping.version)
    return msgspec.structs.replace(mapping, changing=msgspec.structs.replace(changing, clean=tuple(done)))


def turned_back(mapping: PolicyMapping) -> PolicyMapping:
    """Return the mapping with its change turned back. A change that was not open yet has moved nothing."""
    changing = mapping.changing
    assert changing is not None
    if not changing.open:
        return msgspec.structs.replace(mapping, changing=None)
    back = carrying(MappingChange(mapping.now, open=True, back=True), changing)
    return PolicyMapping(changing.to, mapping.version + 1, back)


# --- who owns a key ---


class Place(NamedTuple):
    """A `Place` is where a key belongs by mapping `version`.

    `before` is another partition where its object may still be. A look-up asks there first, and a create makes sure
    that neither partition has the object.
    """

    partition: str
    version: int = 0
    before: str = ""
    listed: str = BY_KEY
    """Other than BY_KEY: the key's directory entry belongs in this partition, and the entry says where the object
    is."""

    @property
    def owners(self) -> tuple[str, ...]:
        """Return the partitions in the order in which a look-up asks them."""
        return (self.before, self.partition) if self.before else (self.partition,)


class OwnedObject(NamedTuple):
    """An `OwnedObject` is an object of a partition: its key, the bytes of the values that route it, and its size."""

    key: bytes
    routing_key: bytes
    size: int


def batches(found: Iterable[tuple[OwnedObject, str]], objects: int, size: int) -> list[tuple[str, list[bytes]]]:
    """Return (partition, keys) to move in one transaction each, with at most so many objects and bytes.

    Objects that share a routing key stay together if they fit, because methods reach what is in their object's
    partition.
    """
    order = sorted(found, key=lambda item: (item[1], item[0].routing_key, item[0].key))
    made: list[tuple[str, list[bytes]]] = []
    at: tuple[str, int] = "", 0
    for to, group in _groups(order):
        heavy = sum(o.size for o in group)
        fits = made and at[0] == to and len(made[-1][1]) + len(group) <= objects and at[1] + heavy <= size
        if fits:
            made[-1][1].extend(o.key for o in group)
            at = to, at[1] + heavy
            continue
        for piece in _cut(group, objects, size):
            made.append((to, [o.key for o in piece]))
            at = to, sum(o.size for o in piece)
    return made


def _groups(order: Sequence[tuple[OwnedObject, str]]) -> Iterable[tuple[str, list[OwnedObject]]]:
    """Yield the objects that share target and routing key."""
    group: list[OwnedObject] = []
    last: tuple[str, bytes] | None = None
    for owned, to in order:
        if last is not None and last != (to, owned.routing_key):
            yield last[0], group
            group = []
        group.append(owned)
        last = to, owned.routing_key
    if last is not None:
        yield last[0], group


def _cut(group: Sequence[OwnedObject], objects: int, size: int) -> Iterable[list[OwnedObject]]:
    """Cut a group into pieces that fit. One object always fits."""
    piece: list[OwnedObject] = []
    heavy = 0
    for owned in group:
        if piece and (len(piece) >= objects or heavy + owned.size > size):
            yield piece
            piece, heavy = [], 0
        piece.append(owned)
        heavy += owned.size
    if piece:
        yield piece


def count(moves: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], int]:
    """Count how many objects go from where to where."""
    found: dict[tuple[str, str], int] = {}
    for move in moves:
        found[move] = found.get(move, 0) + 1
    return dict(sorted(found.items()))
