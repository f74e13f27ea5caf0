"""The objects of one partition on one node: a part of the local store, with a cache of entries in front.

`items_for` turns an accepted record into the store's objects; it is the only function that does, for active, replica,
restore and merge alike, so live and replay cannot drift. It is blind (it reads nothing), so replay runs at the log's
speed. Values stay encoded. Objects, outcomes and position go to the store in one atomic write, behind: a record
taken is visible at once and stored with the next `save`, some ms later (decision 6). Whoever reads the store saves
first, so nobody sees it lag; a process that dies reads the rest again from the log.

Keys, all behind the 8 first bytes of the log id, so that another history's leftovers are never taken for ours:
    k <index key>        lsn (8), reference (24), encoded value
    t <lsn>              outcomes from that lsn on, as many as were stored together: each lsn (8), transaction id (16)
    x <lsn> <index key>  deleted at lsn (until a snapshot has passed it)
    p                    position: chain state, next offset, outcome horizon
"""

from __future__ import annotations

import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from halog.backend import Found
from halog.core import records
from halog.core.caches import make_room
from halog.core.chain import ChainState
from halog.core.ids import ABSENT, REF_BYTES, TX_BYTES
from halog.core.outcomes import Outcomes
from halog.errors import StoreError
from halog.ports import Snapshot, Store
from halog.runtime.consistency import Consistency

PREFIX_BYTES = 8
CACHE_OBJECTS = 200_000
"""Entries kept decoded-ready in memory per partition; about 100 MB at 200 bytes each over a dozen busy partitions."""

_HEAD = struct.Struct(f">Q{REF_BYTES}s")
_LSN = struct.Struct(">Q")
_OUTCOME = struct.Struct(f">Q{TX_BYTES}s")
_OUTCOMES_EACH = 1_000
"""Outcomes stored together by a restore: 24 kB."""

MANY = 8
"""Objects from which on they are looked up in one go: below, the list costs what it saves."""

SAVE_AT = 1_000
"""Changes not yet stored: about 0.3 MB of small objects. Beyond that they are stored at once."""

Item = tuple[bytes, bytes | None]


class StoredPosition(msgspec.Struct, frozen=True):
    """What stands under `p`."""

    state: ChainState
    next_offset: int
    last_offset: int
    """Offset of the last accepted record: its hash in the log must be the chain's, else this copy is foreign."""
    horizon: bytes


_POSITION = msgspec.msgpack.Decoder(StoredPosition)


def pack_object(lsn: int, ref: bytes, value: bytes) -> bytes:
    """An object as stored and as written to the state topic."""
    return _HEAD.pack(lsn, ref) + value


def _last_lsn(block: bytes) -> int:
    lsn: int = _OUTCOME.unpack_from(block, len(block) - _OUTCOME.size)[0]
    return lsn


def unpack_object(key: bytes, data: bytes) -> Found:
    """The inverse of `pack_object`."""
    lsn, ref = _HEAD.unpack_from(data)
    return Found(ref, lsn, data[_HEAD.size :], key)


class ObjectTable:
    """One partition's objects. What changes them runs under the partition's lock; reads need none for cached entries
    and take it to fill the cache."""

    def __init__(self, store: Store, log_id: bytes, lock: threading.RLock, cache_objects: int = CACHE_OBJECTS) -> None:
        self.store, self.lock, self.limit = store, lock, cache_objects
        self.prefix = log_id[:PREFIX_BYTES]
        self._k, self._t = self.prefix + b"k", self.prefix + b"t"
        self._x, self._p = self.prefix + b"x", self.prefix + b"p"
        self.cache: dict[bytes, Found] = {}
        self._early: dict[bytes, tuple[int, Found | None]] = {}
        """Index key → (lsn, object) of commits that are visible before the log has them; None: deleted."""
        self._outcomes = Outcomes()
        self._unsaved: dict[bytes, bytes | None] = {}
        self._happened: list[bytes] = []
        """Outcomes, as stored."""
        self._flushed = False
        """Is all that was stored on the disk, for certain?"""
        self._position: tuple[ChainState, int] | None = None
        """What the next `save` stores."""
        self._last_offset = -1
        self.consistency = Consistency()
        self.dirty: set[bytes] | None = None
        """Index keys changed since the last snapshot of this copy; None: unknown (nobody is counting)."""

    # --- applying ---

    def begin(self, outcomes: Outcomes, last_offset: int) -> None:
        """The partition goes on from what the store holds."""
        self._outcomes, self._last_offset = outcomes, last_offset

    def take(
        self, accepted: Sequence[records.Record], state: ChainState, next_offset: int, *, check: bool = False
    ) -> None:
        """Accepted records: visible from here on. `check`: look first whether they change what this copy has (R2)."""
        if check:
            self.consistency.check(accepted, self._held)
        unsaved, happened = self._unsaved, self._happened
        for record in accepted:
            if type(record) is records.Commit:
                lsn = _LSN.pack(record.header.lsn)
                happened.append(lsn + record.header.tx)
                unsaved.update(self.items_for(record, lsn))
                self.show(record)
                if self._early:
                    self._take_early(record)
            elif self._early and type(record) is records.EpochOpened:
                self._drop_early()
        self._position, self._last_offset = (state, next_offset), next_offset - 1

    def _held(self, keys: Iterable[bytes]) -> dict[bytes, Found | None]:
        """As stored or about to be; what only the cache would know is no reason to fill it."""
        found = {key: self.cache.get(key) for key in keys}
        waiting = {key: self._unsaved.get(self._k + key, b"") for key, known in found.items() if known is None}
        missing = [key for key, data in waiting.items() if data == b""]
        waiting.update(zip(missing, self.store.get_many([self._k + key for key in missing]), strict=True))
        found.update((key, unpack_object(key, data)) for key, data in waiting.items() if data)
        return found

    def keep(self, state: ChainState, next_offset: int) -> None:
        """A record that changed the position only."""
        self._position = (state, next_offset)

    @property
    def unsaved(self) -> bool:
        """Is there anything the store does not have yet?"""
        return self._position is not None

    @property
    def overfull(self) -> bool:
        """Does it wait for too much?"""
        return len(self._unsaved) + len(self._happened) >= SAVE_AT

    def save(self, *, flush: bool = False) -> None:
        """Store everything taken so far and the position behind it, in one write; `flush`: down to the disk, what was
        stored before too."""
        with self.lock:
            if self._position is not None:
                self._unsaved.update([self._position_item(*self._position)])
                if self._happened:
                    self._unsaved[self._t + self._happened[0][: _LSN.size]] = b"".join(self._happened)
            elif self._flushed or not flush:
                return
            self.store.write(self._unsaved.items(), flush=flush)
            self._forget_unsaved()
            self._flushed = flush

    def _forget_unsaved(self) -> None:
        self._unsaved, self._happened, self._position = {}, [], None

    def items_for(self, record: records.Commit, lsn: bytes) -> list[Item]:
        """The store's changes of objects for one accepted commit; `lsn` is its lsn, packed."""
        items: list[Item] = []
        for c in record.changes:
            if c.value is None:
                items.append((self._k + c.key, None))
                items.append((self._x + lsn + c.key, b""))
            else:
                items.append((self._k + c.key, pack_object(record.header.lsn, c.ref, c.value)))
        return items

    def _position_item(self, state: ChainState, next_offset: int) -> Item:
        position = StoredPosition(state, next_offset, self._last_offset, self._outcomes.horizon)
        return self._p, msgspec.msgpack.encode(position)

    def show(self, record: records.Commit) -> None:
        """Make an accepted commit visible."""
        cache, lsn, dirty = self.cache, record.header.lsn, self.dirty
        for c in record.changes:
            if dirty is not None:
                dirty.add(c.key)
            if c.value is None:
                cache.pop(c.key, None)
            else:
                cache[c.key] = Found(c.ref, lsn, c.value, c.key)
        make_room(cache, self.limit)

    # --- before the log ---

    def show_early(self, acknowledged: Iterable[records.Record]) -> None:
        """Commits are visible that the log may not have yet; none of it is stored before `take` brings them."""
        for record in acknowledged:
            assert type(record) is records.Commit
            lsn = record.header.lsn
            for c in record.changes:
                self._early[c.key] = lsn, None if c.value is None else Found(c.ref, lsn, c.value, c.key)
            self.show(record)

    def _take_early(self, record: records.Commit) -> None:
        """The log has it; what became of its objects later on stays visible."""
        for c in record.changes:
            lsn, found = self._early.get(c.key, (0, None))
            if lsn <= record.header.lsn:
                self._early.pop(c.key, None)
            elif found is None:
                self.cache.pop(c.key, None)
            else:
                self.cache[c.key] = found

    def _drop_early(self) -> None:
        """An epoch opened without it: it is not to come."""
        for key in self._early:
            self.cache.pop(key, None)
        self._early.clear()

    # --- reading ---

    def find(self, key: bytes) -> Found | None:
        """The object under an index key, or None."""
        found = self.cache.get(key)
        return found if found is not None else self._fill(key)

    def _fill(self, key: bytes) -> Found | None:
        with self.lock:
            if key in self._early:
                return self._early[key][1]
            self.save()
            data = self.store.get(self._k + key)
            if data is None:
                return None
            found = unpack_object(key, data)
            self.cache[found.key] = found
            make_room(self.cache, self.limit)
            return found

    def lookup(self, keys: Sequence[bytes]) -> Callable[[bytes], Found | None]:
        """What finds these objects; many are found now."""
        return self.find if len(keys) < MANY else self.find_all(keys).get

    def find_all(self, keys: Iterable[bytes]) -> dict[bytes, Found | None]:
        """As `find` for each: what is not in memory is looked up in one go, half the cost of one by one."""
        found = {key: self.cache.get(key) for key in keys}
        missing = [key for key, known in found.items() if known is None]
        if missing:
            with self.lock:
                self.save()
                for key, data in zip(missing, self.store.get_many([self._k + key for key in missing]), strict=True):
                    if key in self._early:
                        found[key] = self._early[key][1]
                    elif data is not None:
                        found[key] = self.cache[key] = unpack_object(key, data)
                make_room(self.cache, self.limit)
        return found

    def version(self, key: bytes) -> int:
        """The version under an index key; -1 if there is none."""
        found = self.find(key)
        return ABSENT if found is None else found.version

    def first_changed(self, reads: Iterable[tuple[bytes, int]]) -> tuple[bytes, int, int] | None:
        """The first of (index key, version) that no longer holds, with the version now."""
        cached = self.cache.get
        for key, version in reads:
            found = cached(key)
            now = self.version(key) if found is None else found.version
            if now != version:
                return key, version, now
        return None

    def scan(self, key_prefix: bytes, after: bytes = b"") -> Iterator[Found]:
        """Objects whose index key starts with `key_prefix` and is greater than `after`, as of the call."""
        with self.lock:
            self.save()
            early = {k: found for k, (_, found) in self._early.items() if k.startswith(key_prefix) and k > after}
            stored = scan(self.store.snapshot(), self.prefix, key_prefix, after)
        return merged(stored, early) if early else stored

    # --- life of the copy ---

    def load_position(self, source: Snapshot | None = None) -> StoredPosition | None:
        """What the store holds of this partition; StoreError if it cannot be read."""
        data = (source or self.store).get(self._p)
        if data is None:
            return None
        try:
            return _POSITION.decode(data)
        except msgspec.MsgspecError as e:
            raise StoreError(f"the local store's position cannot be read: {e}; delete the data directory") from e

    def load_outcomes(self) -> Outcomes:
        """The outcome table, oldest first."""
        position = self.load_position()
        items = ((tx, lsn) for _, block in self.store.scan(self._t) for lsn, tx in _OUTCOME.iter_unpack(block))
        return Outcomes(items, position.horizon if position else b"")

    def forget_outcomes(self, keep_from_lsn: int) -> list[Item]:
        """Changes that drop remembered transaction ids below an lsn; a few of them stay with later ones."""
        drop: list[Item] = []
        for k, block in self.store.scan(self._t):
            if _last_lsn(block) >= keep_from_lsn:
                break
            drop.append((k, None))
        return drop

    def tombstones(self, source: Snapshot | None = None) -> Iterator[tuple[int, bytes]]:
        """(lsn, index key) of remembered deletions, oldest first."""
        for k, _ in (source or self.store).scan(self._x):
            yield _LSN.unpack_from(k, PREFIX_BYTES + 1)[0], k[PREFIX_BYTES + 9 :]

    def forget_tombstones(self, upto_lsn: int) -> list[Item]:
        """Changes that drop remembered deletions up to an lsn that a snapshot has passed."""
        return [(self._x + _LSN.pack(lsn) + key, None) for lsn, key in self.tombstones() if lsn <= upto_lsn]

    def object_bytes(self, source: Snapshot, key: bytes) -> bytes | None:
        """One object as stored, or None."""
        return source.get(self._k + key)

    def outcomes_between(self, source: Snapshot, above_lsn: int) -> list[tuple[int, bytes]]:
        """(lsn, transaction id) of remembered outcomes above an lsn, oldest first."""
        blocks = (block for _, block in source.scan(self._t) if _last_lsn(block) > above_lsn)
        return [item for block in blocks for item in _OUTCOME.iter_unpack(block) if item[0] > above_lsn]

    def objects(self, source: Snapshot) -> Iterator[tuple[bytes, bytes]]:
        """(index key, stored bytes) of every object in a snapshot of the store, by index key."""
        for k, v in source.scan(self._k):
            yield k[PREFIX_BYTES + 1 :], v

    def restore(
        self, objects: Mapping[bytes, bytes], outcomes: Sequence[tuple[bytes, int]], position: StoredPosition
    ) -> None:
        """Store a copy taken from the state topic, whole, in one step: `objects` as stored, under `k <index key>`;
        `outcomes` (id, lsn) oldest first."""
        self.store.fill(self._restored(objects, outcomes, position))

    def _restored(
        self, objects: Mapping[bytes, bytes], outcomes: Sequence[tuple[bytes, int]], position: StoredPosition
    ) -> Iterator[tuple[bytes, bytes]]:
        """All its items, ascending. A restore runs at this speed."""
        prefix = self.prefix
        for key in sorted(objects):
            yield prefix + key, objects[key]
        yield self._p, msgspec.msgpack.encode(position)
        for at in range(0, len(outcomes), _OUTCOMES_EACH):
            block = b"".join([_OUTCOME.pack(lsn, tx) for tx, lsn in outcomes[at : at + _OUTCOMES_EACH]])
            yield self._t + block[: _LSN.size], block

    def drop(self) -> None:
        """Delete everything of this partition from the store."""
        with self.lock:
            self.cache.clear()
            self._early.clear()
            self._forget_unsaved()
            self.store.drop(self.prefix)


def scan(source: Snapshot, prefix: bytes, key_prefix: bytes, after: bytes = b"") -> Iterator[Found]:
    """Objects of one partition whose index key starts with `key_prefix` and is greater than `after`, in key order."""
    n = len(prefix) + 1
    for k, data in source.scan(prefix + b"k" + key_prefix, prefix + b"k" + after if after else b""):
        yield unpack_object(k[n:], data)


def merged(stored: Iterator[Found], early: Mapping[bytes, Found | None]) -> Iterator[Found]:
    """Stored objects with newer ones over them, by index key."""
    newer = deque(sorted(early))
    for found in stored:
        while newer and newer[0] < found.key:
            if (between := early[newer.popleft()]) is not None:
                yield between
        if newer and newer[0] == found.key:
            if (instead := early[newer.popleft()]) is not None:
                yield instead
        else:
            yield found
    for key in newer:
        if (last := early[key]) is not None:
            yield last
