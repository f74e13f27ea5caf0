"""This module keeps the objects of one partition on one node: a part of the local store, with a cache of entries in
front.

`items_for` turns an accepted record into the store's objects. It is the only function that does, for active, replica,
restore and merge alike, so live and replay cannot drift. It reads nothing, so replay runs at the log's speed. Values
stay encoded. Objects, outcomes and position go to the store together, in one atomic write, later: a record that is
taken is visible at once, and stored with the next `save`, some ms later (decision 6). A read of one key looks first
among what waits, and a scan of the store saves first, so nobody sees it lag. A process that dies reads the rest again.

Keys, all behind the 8 first bytes of the log id, so that another history's leftovers are never taken for ours:
    k <index key>        lsn (8), reference (24), encoded value
    t <lsn>              outcomes from that lsn on, as many as were stored together: each lsn (8), transaction id (16)
    x <lsn> <index key>  deleted at lsn (until a snapshot has passed it)
    p                    position: chain state, next offset, horizons
    q, o                 transactions over several partitions: see `halog.runtime.store.prepared`
    r <reference>        index key, on a copy that was an async replica: see `halog.runtime.store.reference_index`
    u                    what the log never had: see `halog.runtime.store.unlogged_tail`
    h <lsn>, w           what was acknowledged before the log brought it: see `halog.runtime.store.pushed_records`
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

import msgspec

from halog.backend import CommittedObject
from halog.core.bounded import make_room
from halog.core.ids import ABSENT
from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.core.log.merge_parts import AppliedMerge, standing
from halog.core.log.outcomes import Outcomes
from halog.core.log.provisional import early_version
from halog.core.log.transactions import Applied, DecidedTransaction, Ledger, PreparedTransaction
from halog.core.replica.moments import Moment, MomentReader, Moments
from halog.ports import Snapshot, Store
from halog.runtime.store import bulk_load as restored, prepared as ledgers
from halog.runtime.store.encoding import (
    StoredPosition as StoredPosition,
    pack_object as pack_object,
    unpack_object as unpack_object,
    unpack_position,
)
from halog.runtime.store.pushed_records import PushedRecords
from halog.runtime.store.reference_index import References
from halog.runtime.store.scanning import merged, scan
from halog.runtime.store.state_hash import NO_OBJECTS, StateHash, stored_term, term

PREFIX_BYTES = 8
CACHE_OBJECTS = 200_000
"""Entries kept decoded-ready in memory per partition; about 100 MB at 200 bytes each over a dozen busy partitions."""

_LSN = struct.Struct(">Q")
_OUTCOME = restored.OUTCOME

MANY = 8
"""From so many objects on they are looked up in one go: for fewer, the list costs what it saves."""

SAVE_AT = 1_000
"""Changes not yet stored: about 0.3 MB of small objects. Beyond that they are stored at once."""

Item = tuple[bytes, bytes | None]


def position_key(log_id: bytes) -> bytes:
    """Return the key under which a store has how far its copy of that log got; nothing stands there if it has no
    copy."""
    return log_id[:PREFIX_BYTES] + b"p"


def _last_lsn(block: bytes) -> int:
    lsn: int = _OUTCOME.unpack_from(block, len(block) - _OUTCOME.size)[0]
    return lsn


def _term(found: CommittedObject | None) -> int:
    return 0 if found is None else term(found.key, found.ref, found.value)


class ObjectTable:
    """Holds one partition's objects. Changes run under the partition's lock. Reads of cached entries need no lock;
    other reads take it to fill the cache."""

    def __init__(self, store: Store, log_id: bytes, lock: threading.RLock, cache_objects: int = CACHE_OBJECTS) -> None:
        self.store = store
        self.lock = lock
        self.limit = cache_objects
        self.prefix = log_id[:PREFIX_BYTES]
        self._k = self.prefix + b"k"
        self._t = self.prefix + b"t"
        self._x = self.prefix + b"x"
        self._p = position_key(log_id)
        self.cache: dict[bytes, CommittedObject] = {}
        self._early: dict[bytes, tuple[int, CommittedObject | None]] = {}
        """Index key → (lsn, object) of commits that are visible before the log has them; None: deleted."""
        self._outcomes = Outcomes()
        self.ledger = Ledger()
        self.moments: Moments[CommittedObject] = Moments()
        """What objects were, for transactions that read at a moment. Whatever changes an object notes first what it
        was."""
        self._unsaved: dict[bytes, bytes | None] = {}
        self._happened: list[bytes] = []
        """Outcomes that wait, as they will be stored."""
        self._flushed = False
        """Is all that was stored on the disk, for certain?"""
        self._position: tuple[ChainState, int] | None = None
        """What the next `save` stores."""
        self._last_offset = -1
        self.state_hash = StateHash()
        """The hash of the objects that the log has: of those shown before that, nothing is in it."""
        self.references = References(store, self.prefix)
        self.pushed = PushedRecords(store, self.prefix)
        self.dirty: set[bytes] | None = None
        """Index keys changed since the last snapshot of this copy; None: unknown (nobody is counting)."""

    # --- applying ---

    def begin(self, outcomes: Outcomes, last_offset: int, ledger: Ledger) -> None:
        """Go on from what the store holds of the partition."""
        self._outcomes = outcomes
        self._last_offset = last_offset
        self.ledger = ledger
        self.references.load()
        position = self.load_position()
        self.state_hash.begin(*((NO_OBJECTS, 0) if position is None else (position.state_hash, position.state.lsn)))
        self.moments.restart()

    def take(self, accepted: Sequence[Applied], state: ChainState, next_offset: int) -> None:
        """Take accepted records: they are visible from here on, all at once for transactions that read at a moment."""
        self.moments.begin()
        try:
            self._take(accepted, state, next_offset)
        finally:
            self.moments.end()

    def _take(self, accepted: Sequence[Applied], state: ChainState, next_offset: int) -> None:
        passed = self.state_hash.passed
        terms: dict[bytes, int] | None = None
        for record in accepted:
            if type(record) is records.Commit:
                terms = self._hash(record, accepted, terms)
                self._take_commit(record)
            elif type(record) is records.EpochOpened:
                self._drop_early()
            elif type(record) is AppliedMerge:
                self._take_merge(record)
                terms = None
            else:
                self._take_vote(record)
                if type(record) is DecidedTransaction and record.commit is not None:
                    terms = self._hash(record.commit, accepted, terms)
                    self._take_commit(record.commit)
            passed(record.header.lsn)
        self._position = (state, next_offset)
        self._last_offset = next_offset - 1

    def _take_commit(self, record: records.Commit) -> None:
        if self.moments.noting is not None:
            self._note(c.key for c in record.changes)
        lsn = _LSN.pack(record.header.lsn)
        self._happened.append(lsn + record.header.tx)
        self._unsaved.update(self.items_for(record, lsn))
        if self._early:
            self._show_taken(record)
        else:
            self.show(record, record.header.lsn)

    def _hash(
        self, record: records.Commit, accepted: Sequence[Applied], terms: dict[bytes, int] | None
    ) -> dict[bytes, int] | None:
        """Take a commit into the hash, before it is taken. Once something has to be looked up, that is done for the
        whole batch, and `terms` has what stands there from then on."""
        if terms is None:
            if self.state_hash.follow(record.changes):
                return None
            terms = self._terms(accepted)
        self.state_hash.change(record.changes, terms)
        return terms

    def _take_vote(self, meant: Applied) -> None:
        """Take a record of a transaction over several partitions. Objects that it would change are looked up anew until
        it is decided."""
        self._unsaved.update(ledgers.items_for(self.prefix, meant))
        if type(meant) is PreparedTransaction:
            for c in meant.undecided.prepare.changes:
                self.cache.pop(c.key, None)

    def _take_merge(self, meant: AppliedMerge) -> None:
        """Take a merge: whatever stands here under its keys, what the merge says stands there now, in the merge's
        version (F5)."""
        self._drop_early()
        held = self.held([m.key for m in meant.merged])
        changes = [c for m in meant.merged for c in standing(m, held[m.key])]
        self.state_hash.change(changes, {key: _term(found) for key, found in held.items()})
        self._note(c.key for c in changes)
        lsn = _LSN.pack(meant.header.lsn)
        self._happened += [lsn + tx for tx in meant.happened]
        self._unsaved.update(ledgers.items_for(self.prefix, meant))
        made = records.Commit(meant.header, tuple(changes))
        self._unsaved.update(self.items_for(made, lsn))
        self.show(made, meant.header.lsn)

    def _terms(self, accepted: Sequence[Applied]) -> dict[bytes, int]:
        """Return what stands under the keys that these records change, as it is in the hash. What is not in memory is
        looked up in one go."""
        cached, early, missing = self.cache.get, self._early, []
        terms: dict[bytes, int] = {}
        for record in accepted:
            made = record.commit if type(record) is DecidedTransaction else record
            for c in made.changes if type(made) is records.Commit else ():
                key = c.key
                if key in terms:
                    continue
                now = None if key in early else cached(key)
                if now is None:
                    missing.append(key)
                else:
                    terms[key] = term(key, now.ref, now.value)
        if missing:
            terms.update((key, stored_term(key, data)) for key, data in self._stored(missing).items())
        return terms

    def held(self, keys: Iterable[bytes]) -> dict[bytes, CommittedObject | None]:
        """Return objects as the log has them, stored or about to be. The cache is read, but not filled."""
        cached, early = self.cache.get, self._early
        found = {key: None if key in early else cached(key) for key in keys}
        stored = self._stored([key for key, known in found.items() if known is None])
        found.update((key, unpack_object(key, data)) for key, data in stored.items() if data)
        return found

    def keys_of(self, refs: Collection[bytes]) -> Mapping[bytes, bytes]:
        """Return the key that each reference was last seen under."""
        if not self.references.kept:
            self.save()
            self.references.begin()
        self.references.look_on()
        return self.references.keys_of(refs, self._unsaved)

    def discard(self, header: records.Header, gone: records.Change) -> None:
        """Delete an object of this copy alone, before the record of this header is taken."""
        self.moments.begin()
        try:
            self._note((gone.key,))
            self.state_hash.change((gone,), {gone.key: _term(self.held((gone.key,))[gone.key])})
            made = records.Commit(header, (gone,))
            self._unsaved.update(self.items_for(made, _LSN.pack(header.lsn)))
            self.show(made, header.lsn)
        finally:
            self.moments.end()

    def _stored(self, keys: Iterable[bytes]) -> dict[bytes, bytes | None]:
        """Return objects as stored or about to be."""
        found = {key: self._unsaved.get(self._k + key, b"") for key in keys}
        missing = [key for key, data in found.items() if data == b""]
        if missing:
            found.update(zip(missing, self.store.get_many([self._k + key for key in missing]), strict=True))
        return found

    def keep(self, state: ChainState, next_offset: int) -> None:
        """Note a record that changed the position only."""
        self.state_hash.passed(state.lsn)
        self._position = (state, next_offset)

    @property
    def unsaved(self) -> bool:
        """Say whether there is anything the store does not have yet."""
        return self._position is not None

    @property
    def overfull(self) -> bool:
        """Say whether too much waits to be stored."""
        return len(self._unsaved) + len(self._happened) >= SAVE_AT

    def save(self, *, flush: bool = False) -> None:
        """Store everything taken so far and the position behind it, in one write. `flush` brings it to the disk, and
        what was stored before, too."""
        with self.lock:
            if self._position is not None:
                (state, at), ledger = self._position, self.ledger
                settled = self._outcomes.horizon, ledger.horizon, ledger.mapping
                position = StoredPosition(state, at, self._last_offset, *settled, self.state_hash.now)
                self._unsaved[self._p] = msgspec.msgpack.encode(position)
                self._unsaved.update(self.pushed.passed(state.lsn))
                if self._happened:
                    self._unsaved[self._t + self._happened[0][: _LSN.size]] = b"".join(self._happened)
            elif self._flushed or not flush:
                return
            self.store.write(self._unsaved.items(), flush=flush)
            self._forget_unsaved()
            self._flushed = flush

    def _forget_unsaved(self) -> None:
        self._unsaved = {}
        self._happened = []
        self._position = None

    def items_for(self, record: records.Commit, lsn: bytes) -> list[Item]:
        """Return the store's changes of objects for one accepted commit; `lsn` is its lsn, packed."""
        items: list[Item] = []
        for c in record.changes:
            if c.value is None:
                items.append((self._k + c.key, None))
                items.append((self._x + lsn + c.key, b""))
            else:
                items.append((self._k + c.key, pack_object(record.header.lsn, c.ref, c.value)))
        if self.references.kept:
            items += self.references.items_for(record.changes)
        return items

    def show(self, record: records.Commit, version: int) -> None:
        """Make an accepted commit visible."""
        cache, dirty = self.cache, self.dirty
        for c in record.changes:
            if dirty is not None:
                dirty.add(c.key)
            if c.value is None:
                cache.pop(c.key, None)
            else:
                cache[c.key] = CommittedObject(c.ref, version, c.value, c.key)
        make_room(cache, self.limit)

    # --- before the log ---

    def show_early(self, acknowledged: Iterable[records.Record], *, lost_with_active: bool) -> None:
        """Make commits visible that the log may not have yet; none of it is stored before `take` brings them.
        `lost_with_active`: nobody else brings them into the log, so another commit may get their lsn."""
        self.moments.begin()
        try:
            for record in acknowledged:
                assert type(record) is records.Commit
                lsn = record.header.lsn
                version = early_version(record.header.epoch.number, lsn) if lost_with_active else lsn
                self._note(c.key for c in record.changes)
                for c in record.changes:
                    self._early[c.key] = (
                        lsn,
                        None if c.value is None else CommittedObject(c.ref, version, c.value, c.key),
                    )
                self.show(record, version)
        finally:
            self.moments.end()

    def _show_taken(self, record: records.Commit) -> None:
        """Show a commit that the log has now. What its objects became later on stays visible throughout, since readers
        take no lock."""
        lsn, early = record.header.lsn, self._early
        hidden = [c.key for c in record.changes if c.key in early and early[c.key][0] > lsn]
        if not hidden:
            self.show(record, lsn)
        else:
            kept = tuple(c for c in record.changes if c.key not in hidden)
            self.show(records.Commit(record.header, kept), lsn)
            if self.dirty is not None:
                self.dirty.update(hidden)
        for c in record.changes:
            if c.key not in hidden:
                early.pop(c.key, None)

    def _drop_early(self) -> None:
        """Hide what was shown early: an epoch opened without it, so it will not come."""
        self._note(self._early)
        for key in self._early:
            self.cache.pop(key, None)
        self._early.clear()

    # --- moments ---

    def _note(self, keys: Iterable[bytes]) -> None:
        """Note what these objects are before they change, if some transaction reads at a moment."""
        noting, note, cached = self.moments.noting, self.moments.note, self.cache.get
        if noting is None:
            return
        missing = []
        for key in keys:
            if key not in noting:
                found = cached(key)
                if found is None:
                    missing.append(key)
                else:
                    note(key, found, len(found.value))
        if missing:
            stored = self._stored(missing)
            for key, data in stored.items():
                found = self._early[key][1] if key in self._early else unpack_object(key, data) if data else None
                note(key, found, 0 if found is None else len(found.value))

    def moment(self) -> Moment[CommittedObject]:
        """Return the moment of now: a `MomentReader` of it shows objects as they are now, whatever becomes of them."""
        now = self.moments.now
        if now is None:  # they are being changed
            with self.lock:
                now = self.moments.now
                assert now is not None
        return now

    # --- reading ---

    def find(self, key: bytes) -> CommittedObject | None:
        """Return the object under an index key, or None."""
        found = self.cache.get(key)
        return found if found is not None else self._fill(key)

    def _fill(self, key: bytes) -> CommittedObject | None:
        with self.lock:
            found = self._look(key)
            if found is not None and key not in self._early and self.ledger.locks.writer(key) is None:
                self.cache[found.key] = found
                make_room(self.cache, self.limit)
            return found

    def _look(self, key: bytes) -> CommittedObject | None:
        if key in self._early:
            return self._early[key][1]
        data = self._unsaved.get(self._k + key, b"")
        if data == b"":
            data = self.store.get(self._k + key)
        return None if data is None else unpack_object(key, data)

    def brief(self, keys: Iterable[bytes]) -> Iterator[CommittedObject | None]:
        """Yield what `find` returns for each key, without the value. Who asks for many wants to know whether they are
        there; that is no reason to keep them in memory."""
        for key in keys:
            found = self.cache.get(key)
            if found is None:
                with self.lock:
                    found = self._look(key)
            yield None if found is None else CommittedObject(found.ref, found.version, b"", key)

    def lookup(self, keys: Sequence[bytes]) -> Callable[[bytes], CommittedObject | None]:
        """Return a function that finds these objects; if they are many, they are looked up now."""
        return self.find if len(keys) < MANY else self.find_all(keys).get

    def find_all(self, keys: Iterable[bytes]) -> dict[bytes, CommittedObject | None]:
        """Return what `find` returns for each key. What is not in memory is looked up in one go, at half the cost of
        one by one."""
        found = {key: self.cache.get(key) for key in keys}
        missing = [key for key, known in found.items() if known is None]
        if missing:
            with self.lock:
                for key, data in self._stored(missing).items():
                    if key in self._early:
                        found[key] = self._early[key][1]
                    elif data is not None:
                        found[key] = unpacked = unpack_object(key, data)
                        if self.ledger.locks.writer(key) is None:
                            self.cache[key] = unpacked
                make_room(self.cache, self.limit)
        return found

    def version(self, key: bytes) -> int:
        """Return the version under an index key; -1 if there is none."""
        found = self.find(key)
        return ABSENT if found is None else found.version

    def first_changed(self, reads: Iterable[tuple[bytes, int]]) -> tuple[bytes, int, int] | None:
        """Return the first of (index key, version) that no longer holds, with the version now."""
        cached = self.cache.get
        for key, version in reads:
            found = cached(key)
            now = self.version(key) if found is None else found.version
            if now != version:
                return key, version, now
        return None

    def scan(
        self, key_prefix: bytes, after: bytes = b"", past: MomentReader[CommittedObject] | None = None
    ) -> Iterator[CommittedObject]:
        """Return the objects whose index key starts with `key_prefix` and is greater than `after`: as of the call, or
        as they were at the moment of `past`. Raises OverError."""
        with self.lock:
            self.save()
            newer = {k: found for k, (_, found) in self._early.items()}
            if past is not None:
                newer |= past.changed()
            newer = {k: found for k, found in newer.items() if k > after and k.startswith(key_prefix)}
            stored = scan(self.store.snapshot(), self.prefix, key_prefix, after)
        return merged(stored, newer) if newer else stored

    # --- life of the copy ---

    def load_position(self, source: Snapshot | None = None) -> StoredPosition | None:
        """Return what the store holds of this partition. Raises StoreError if it cannot be read."""
        data = (source or self.store).get(self._p)
        return None if data is None else unpack_position(data)

    def load_outcomes(self) -> Outcomes:
        """Return the outcome table, oldest first."""
        position = self.load_position()
        items = ((tx, lsn) for _, block in self.store.scan(self._t) for lsn, tx in _OUTCOME.iter_unpack(block))
        return Outcomes(items, position.horizon if position else b"")

    def load_ledger(self, source: Snapshot | None = None) -> Ledger:
        """Return the ledger: transactions over several partitions that are in doubt, and decisions."""
        position = self.load_position(source)
        return ledgers.load(source or self.store, self.prefix, position)

    def forget_outcomes(self, keep_from_lsn: int) -> list[Item]:
        """Return changes that drop remembered transaction ids below an lsn; a few of them stay with later ones."""
        blocks = takewhile(lambda item: _last_lsn(item[1]) < keep_from_lsn, self.store.scan(self._t))
        return [(k, None) for k, _ in blocks]

    def tombstones(self, source: Snapshot | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield (lsn, index key) of remembered deletions, oldest first."""
        for k, _ in (source or self.store).scan(self._x):
            yield _LSN.unpack_from(k, PREFIX_BYTES + 1)[0], k[PREFIX_BYTES + 9 :]

    def forget_tombstones(self, upto_lsn: int) -> list[Item]:
        """Return changes that drop remembered deletions up to an lsn that a snapshot has passed."""
        return [(self._x + _LSN.pack(lsn) + key, None) for lsn, key in self.tombstones() if lsn <= upto_lsn]

    def object_bytes(self, source: Snapshot, key: bytes) -> bytes | None:
        """Return one object as stored, or None."""
        return source.get(self._k + key)

    def outcomes_between(self, source: Snapshot, above_lsn: int) -> list[tuple[int, bytes]]:
        """Return (lsn, transaction id) of remembered outcomes above an lsn, oldest first."""
        blocks = (block for _, block in source.scan(self._t) if _last_lsn(block) > above_lsn)
        return [item for block in blocks for item in _OUTCOME.iter_unpack(block) if item[0] > above_lsn]

    def objects(self, source: Snapshot) -> Iterator[tuple[bytes, bytes]]:
        """Yield (index key, stored bytes) of every object in a snapshot of the store, by index key."""
        for k, v in source.scan(self._k):
            yield k[PREFIX_BYTES + 1 :], v

    def restore(
        self,
        objects: Mapping[bytes, bytes],
        outcomes: Sequence[tuple[bytes, int]],
        position: StoredPosition,
        ledger: Ledger | None = None,
    ) -> None:
        """Store a copy taken from the state topic, whole, in one step. `objects` are as stored, under `k <index key>`;
        `outcomes` are (id, lsn), oldest first."""
        self.store.fill(restored.items(self.prefix, objects, outcomes, position, ledger or Ledger()))

    def drop(self) -> None:
        """Delete everything of this partition from the store."""
        with self.lock:
            self.let_go()
            self.store.drop(self.prefix)

    def let_go(self) -> None:
        """Forget what is in memory, and leave the store to the copy that comes next."""
        with self.lock:
            self.moments.lose()
            self.state_hash.begin(NO_OBJECTS, 0)
            self.cache.clear()
            self._early.clear()
            self._forget_unsaved()
            self.pushed.dropped()
