"""The hash that is kept beside a copy's objects is that of the objects, whatever happened to them (U1)."""

from __future__ import annotations

import threading
from hashlib import blake2b

import msgspec
import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from halog.adapters.memory.store import MemoryStore
from halog.core.ids import ABSENT, EpochId
from halog.core.log.chain import ChainState
from halog.core.log.merge_parts import AppliedMerge
from halog.core.log.outcomes import Outcomes
from halog.core.log.records import (
    CREATE,
    DELETE,
    UPDATE,
    Change,
    Commit,
    EpochOpened,
    Header,
    Merged,
    Outcome,
    Prepare,
)
from halog.core.log.transactions import Applied, Ledger
from halog.runtime.store.encoding import pack_object
from halog.runtime.store.object_table import ObjectTable, StoredPosition
from halog.runtime.store.state_hash import EVERY, KEPT, NO_OBJECTS, StateHash, term, to_bytes, total

pytestmark = pytest.mark.feature("U1")

LOG_ID = bytes(range(16))
EPOCH = EpochId(1, "here", 0)
KEYS = [b"k%d" % i for i in range(5)]
Objects = dict[bytes, tuple[bytes, bytes, int]]
"""Reference, value and version by key."""


def hash_of(objects: Objects) -> bytes:
    """The hash as docs/protocol.md specifies it, made without halog's own code."""
    terms = (
        blake2b(len(key).to_bytes(4, "big") + key + ref + value, digest_size=16).digest()
        for key, (ref, value, _) in objects.items()
    )
    return (sum(int.from_bytes(t, "big") for t in terms) % 2**128).to_bytes(16, "big")


def header(lsn: int, tx: int = 0) -> Header:
    return Header(LOG_ID, EPOCH, lsn, tx=(tx or lsn).to_bytes(16, "big"))


class Histories(RuleBasedStateMachine):
    """A history of records, and copies that take it in their own ways. The model is what the log makes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: Objects = {}
        self.at: dict[int, bytes] = {0: NO_OBJECTS}
        self.lsn = 0
        self.ledger = Ledger()
        self.undecided: dict[bytes, tuple[Change, ...]] = {}
        self.batch: list[Applied] = []
        self.made = 0

    @initialize(cached=st.sampled_from([0, 2, 100]))
    def open(self, cached: int) -> None:
        self.cached = cached
        self.store = MemoryStore()
        self.opened()
        self.table.state_hash.settle()

    def opened(self) -> None:
        self.table = ObjectTable(self.store, LOG_ID, threading.RLock(), self.cached)
        self.ledger = self.table.load_ledger()
        position = self.table.load_position()
        self.table.begin(self.table.load_outcomes(), -1 if position is None else position.last_offset, self.ledger)

    # --- records ---

    def accept(self, record: Commit | Prepare | Outcome | EpochOpened | AppliedMerge) -> None:
        self.lsn = record.header.lsn
        if isinstance(record, Commit | AppliedMerge):
            self.batch.append(record)
        else:
            self.batch.append(self.ledger.accepted(record, self.lsn - 1))
        self.at[self.lsn] = hash_of(self.objects)

    def change(self, key: bytes, kind: str, *, kept: bool, lsn: int) -> tuple[Change, ...]:
        """Changes of an object, as a transaction writes them; the model has them already."""
        self.made += 1
        now, value = self.objects.get(key), b"value%d" % self.made
        ref = self.made.to_bytes(24, "big")
        changes: list[Change] = []
        if now is not None and kind in ("delete", "anew"):
            changes.append(Change(DELETE, now[0], key, None, now[2], now[1] if kept else None))
            del self.objects[key]
        if now is None or kind == "anew":
            changes.append(Change(CREATE, ref, key, value, ABSENT))
            self.objects[key] = ref, value, lsn
        elif kind == "update":
            changes.append(Change(UPDATE, now[0], key, value, now[2], now[1] if kept else None))
            self.objects[key] = now[0], value, lsn
        return tuple(changes)

    def free(self, keys: list[bytes]) -> list[bytes]:
        """Keys that no transaction in doubt holds."""
        held = {c.key for changes in self.undecided.values() for c in changes}
        return [key for key in keys if key not in held]

    @rule(
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True),
        kind=st.sampled_from(["update", "delete", "anew"]),
        kept=st.booleans(),
    )
    def commit(self, keys: list[bytes], kind: str, kept: bool) -> None:
        lsn = self.lsn + 1
        changes = tuple(c for key in self.free(keys) for c in self.change(key, kind, kept=kept, lsn=lsn))
        self.accept(Commit(header(lsn), changes))

    @rule(key=st.sampled_from(KEYS), kind=st.sampled_from(["update", "delete", "anew"]), kept=st.booleans())
    def vote(self, key: bytes, kind: str, kept: bool) -> None:
        if self.free([key]):
            before = dict(self.objects)
            changes = self.change(key, kind, kept=kept, lsn=0)
            self.objects = before
            tx = (10_000 + self.lsn).to_bytes(16, "big")
            self.undecided[tx] = changes
            self.accept(Prepare(header(self.lsn + 1, 10_000 + self.lsn), "p", ("p", "q"), 0, b"", changes, ()))

    @precondition(lambda self: self.undecided)
    @rule(commit=st.booleans())
    def decide(self, commit: bool) -> None:
        tx, changes = self.undecided.popitem()
        for c in changes if commit else ():
            if c.value is None:
                del self.objects[c.key]
            else:
                self.objects[c.key] = c.ref, c.value, self.lsn + 1
        self.accept(Outcome(header(self.lsn + 1, int.from_bytes(tx, "big")), commit=commit))

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, unique=True), what=st.sampled_from(["same", "new", "gone"]))
    def merge(self, keys: list[bytes], what: str) -> None:
        """Each key gets what the merge says, whatever stood there on this branch. It leaves lsns out."""
        lsn, merged = self.lsn + 3, []
        for key in keys:
            now = self.objects.pop(key, None)
            self.made += 1
            ref = now[0] if now is not None and what == "same" else self.made.to_bytes(24, "big")
            value = None if what == "gone" else b"merged%d" % self.made
            merged.append(Merged(key, ref, value, b""))
            if value is not None:
                self.objects[key] = ref, value, lsn
        self.undecided.clear()
        known = AppliedMerge(header(lsn), b"m", tuple(merged), (), (), 0, 0)
        self.accept(self.ledger.merged(known, lsn - 1))

    @rule()
    def epoch(self) -> None:
        self.accept(EpochOpened(header(self.lsn + 1), ()))

    # --- the copy ---

    @precondition(lambda self: self.batch)
    @rule()
    def take(self) -> None:
        self.table.take(self.batch, ChainState(LOG_ID, "here", lsn=self.lsn), self.lsn)
        self.batch = []
        kept = self.table.state_hash
        assert kept.lsn == self.lsn
        if kept.known:
            assert kept.now == self.at[self.lsn]
            assert set(kept.marks) <= self.at.items()

    @rule(key=st.sampled_from(KEYS))
    def show_early(self, key: bytes) -> None:
        """What is shown before the log has it is in no hash; here it never comes."""
        if not self.batch and not self.undecided:
            change = Change(UPDATE, bytes(24), key, b"early", 0)
            self.table.show_early((Commit(header(self.lsn + 1), (change,)),), lost_with_active=True)

    @rule(key=st.sampled_from(KEYS))
    def read(self, key: bytes) -> None:
        self.table.find(key)

    @rule()
    def save(self) -> None:
        self.table.save()

    @rule(known=st.booleans())
    def restart(self, known: bool) -> None:
        """The copy is opened anew from its store, perhaps one of a halog that stored no hash."""
        self.take_all()
        self.table.save()
        if not known and (position := self.table.load_position()) is not None:
            plain = msgspec.structs.replace(position, state_hash=b"")
            self.store.write([(self.table.prefix + b"p", msgspec.msgpack.encode(plain))])
        self.opened()
        self.count()

    @rule(ahead=st.integers(0, 4))
    def restore(self, ahead: int) -> None:
        """The copy is made from a state topic that has newer objects than its marker's position, then reads the
        rest."""
        if self.undecided or self.lsn == 0:
            return
        self.take_all()
        self.table.save()
        stored = dict(self.table.objects(self.store.snapshot()))
        position = self.table.load_position()
        assert position is not None
        self.table.drop()
        rest: list[Applied] = []
        for i in range(ahead):
            self.commit([KEYS[i]], "update" if i % 2 else "anew", True)
        rest, self.batch = self.batch, []
        newer = {b"k" + key: pack_object(v, ref, value) for key, (ref, value, v) in self.objects.items()}
        mixed = {b"k" + key: data for key, data in stored.items()}
        for key in KEYS[: ahead // 2]:
            mixed.pop(b"k" + key, None)
            if b"k" + key in newer:
                mixed[b"k" + key] = newer[b"k" + key]
        self.table.restore(mixed, [], position)
        self.opened()
        if rest:
            self.table.take(rest, ChainState(LOG_ID, "here", lsn=self.lsn), self.lsn)
        self.count()

    def take_all(self) -> None:
        if self.batch:
            self.take()

    def count(self) -> None:
        kept = self.table.state_hash
        self.table.save()
        kept.counted(total(self.table.objects(self.store.snapshot())), kept.since)
        kept.settle()

    @invariant()
    def the_hash_is_that_of_the_objects(self) -> None:
        if self.lsn == 0 or self.batch:
            return
        kept = self.table.state_hash
        assert kept.now == hash_of(self.objects)
        self.table.save()
        position = self.table.load_position()
        stored = {key: (data[8:32], data[32:], 0) for key, data in self.table.objects(self.store.snapshot())}
        assert hash_of(stored) == kept.now
        assert position is None or position.state_hash in (kept.now, b"")


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_the_term_is_over_the_length_of_the_key_the_key_the_reference_and_the_value() -> None:
    """A key and a value never stand for another key and value."""
    ref = bytes(range(24))
    assert to_bytes(term(b"key", ref, b"value")) == hash_of({b"key": (ref, b"value", 7)})
    assert to_bytes(term(b"key", ref, b"value")).hex() == "681ec17ca276341e1bf13f8c627e1a96"
    assert term(b"ab", ref, b"") != term(b"a", b"b" + ref[:23], ref[23:])


def test_marks_are_kept_at_the_same_lsns_by_all_and_only_the_last_ones() -> None:
    kept = StateHash()
    kept.settle()
    for lsn in range(1, EVERY * (KEPT + 3)):
        kept.passed(lsn)
        kept.passed(lsn)
    assert [lsn for lsn, _ in kept.marks] == [EVERY * n for n in range(3, KEPT + 3)]


def test_a_copy_that_has_not_read_its_log_yet_keeps_no_marks() -> None:
    kept = StateHash()
    kept.begin(NO_OBJECTS, 0)
    for lsn in range(1, 2 * EVERY + 1):
        kept.passed(lsn)
    assert kept.marks == ()


def test_a_discarded_object_leaves_the_hash() -> None:
    store = MemoryStore()
    table = ObjectTable(store, LOG_ID, threading.RLock())
    table.begin(Outcomes(), -1, Ledger())
    ref = bytes(24)
    made = Commit(header(1), (Change(CREATE, ref, b"a", b"one", ABSENT), Change(CREATE, ref, b"b", b"two", ABSENT)))
    table.take((made,), ChainState(LOG_ID, "here", lsn=1), 1)
    table.discard(header(2), Change(DELETE, ref, b"a", None, 1))
    assert table.state_hash.now == hash_of({b"b": (ref, b"two", 1)})


def test_what_is_shown_before_the_log_has_it_is_no_object_that_a_change_replaces() -> None:
    """Also where the record does not say what it replaces, so that it is looked up."""
    table = ObjectTable(MemoryStore(), LOG_ID, threading.RLock())
    table.begin(Outcomes(), -1, Ledger())
    ref = bytes(24)

    def commit(lsn: int, op: int, value: bytes) -> Commit:
        return Commit(header(lsn), (Change(op, ref, b"a", value, lsn - 1 or ABSENT),))

    table.take((commit(1, CREATE, b"one"),), ChainState(LOG_ID, "here", lsn=1), 1)
    table.show_early((commit(2, UPDATE, b"two"), commit(3, UPDATE, b"three")), lost_with_active=False)
    assert table.state_hash.now == hash_of({b"a": (ref, b"one", 1)})
    table.take((commit(2, UPDATE, b"two"),), ChainState(LOG_ID, "here", lsn=2), 2)
    assert table.state_hash.now == hash_of({b"a": (ref, b"two", 2)})


def test_a_restored_copy_that_is_killed_before_it_has_read_the_rest_counts_again() -> None:
    store = MemoryStore()
    table = ObjectTable(store, LOG_ID, threading.RLock())
    position = StoredPosition(ChainState(LOG_ID, "here", lsn=3), 3, 2, b"", state_hash=bytes(range(16)))
    table.restore({b"ka": pack_object(5, bytes(24), b"newer")}, [], position)
    table.begin(Outcomes(), 2, Ledger())
    assert not table.state_hash.known
    table.take((Commit(header(4), ()),), ChainState(LOG_ID, "here", lsn=4), 4)
    table.save()
    again = ObjectTable(store, LOG_ID, threading.RLock())
    again.begin(Outcomes(), 3, Ledger())
    assert not again.state_hash.known
