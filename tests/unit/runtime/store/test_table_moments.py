"""A partition's table shows each reader its moment, whatever changes objects: records, merges, what is shown before the
log has it and what is not to come after all; also between two changes of one record (R5)."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given, strategies as st

from halog.adapters.memory.store import MemoryStore
from halog.backend import CommittedObject
from halog.core.ids import EpochId
from halog.core.log.chain import ChainState
from halog.core.log.merge_parts import AppliedMerge
from halog.core.log.records import DELETE, UPDATE, Change, Commit, EpochOpened, Header, Merged
from halog.core.log.transactions import Applied, DecidedTransaction, Decision
from halog.core.replica.moments import MomentReader, OverError
from halog.runtime.store.object_table import ObjectTable

pytestmark = pytest.mark.feature("R5")
LOG_ID = bytes(range(16))
REF = bytes(24)
KEYS = [b"a", b"b", b"c", b"d"]

Values = dict[bytes, bytes | None]


def header(lsn: int) -> Header:
    return Header(LOG_ID, EpochId(1, "home", 0), lsn, tx=lsn.to_bytes(16, "big"))


def commit(lsn: int, values: Values) -> Commit:
    changes = (Change(DELETE if v is None else UPDATE, REF, k, v, 0) for k, v in values.items())
    return Commit(header(lsn), tuple(changes))


class Watched(dict[bytes, CommittedObject]):
    """The entries that readers look into without a lock: they look whenever one changes."""

    table: Table

    def __setitem__(self, key: bytes, found: CommittedObject) -> None:
        self.table.look()
        super().__setitem__(key, found)
        self.table.look()

    def pop(self, key: bytes, *default: Any) -> Any:
        self.table.look()
        gone = super().pop(key, *default)
        self.table.look()
        return gone


class Reader:
    def __init__(self, table: Table) -> None:
        self.past = MomentReader(table.objects.moment())
        self.shows = table.now()


class Table:
    def __init__(self) -> None:
        self.objects = ObjectTable(MemoryStore(), LOG_ID, threading.RLock(), 3)
        self.objects.cache = cache = Watched()
        self.readers: list[Reader] = []
        self.lsn = 0
        self.early: list[Commit] = []
        cache.table = self

    def look(self) -> None:
        """All that can be looked at without the lock."""
        for reader in self.readers:
            for key, found in list(self.objects.cache.items()):
                seen = reader.past.of(key, found)
                assert (None if seen is None else seen.value) == reader.shows.get(key), key

    def now(self) -> Values:
        return {key: found.value for key in KEYS if (found := self.objects.find(key)) is not None}

    def check(self) -> None:
        """All there is, one by one and listed; from some key on, too."""
        for reader in self.readers:
            seen = {key: reader.past.of(key, self.objects.find(key)) for key in KEYS}
            assert {key: found.value for key, found in seen.items() if found is not None} == reader.shows
            for after in (b"", b"b"):
                listed = {found.key: found.value for found in self.objects.scan(b"", after, reader.past)}
                assert listed == {key: value for key, value in reader.shows.items() if key > after}

    def do(self, what: str, values: Values) -> None:
        match what:
            case "take":
                self.take(self.next_one(values))
            case "take two":
                self.take(self.next_one(values), self.next_one(dict.fromkeys(values, b"next")))
            case "decide" if not self.early:
                made = commit(self.next_lsn(), values)
                self.take(DecidedTransaction(made.header, Decision(True, self.lsn, self.lsn), made))
            case "merge":
                self.early.clear()
                merged = tuple(Merged(key, REF, value) for key, value in values.items())
                self.take(AppliedMerge(header(self.next_lsn()), b"m", merged, (), (), 0, 0))
            case "open":
                self.early.clear()
                self.take(EpochOpened(header(self.next_lsn()), ()))
            case "show":
                lsn = (self.early[-1].header.lsn if self.early else self.lsn) + 1
                self.early.append(made := commit(lsn, values))
                self.objects.show_early([made], lost_with_active=False)
            case "discard":
                self.objects.moments.begin()
                for key in values:
                    self.objects.discard(header(self.lsn), Change(DELETE, REF, key, None, 0))
                self.take(self.next_one(dict.fromkeys(list(values)[:1], b"instead")))
                self.objects.moments.end()
            case _:
                self._rest(what)

    def _rest(self, what: str) -> None:
        match what:
            case "save":
                self.objects.save()
            case "read":
                self.readers.append(Reader(self))
            case "leave":
                del self.readers[:1]

    def next_one(self, values: Values) -> Commit:
        """What was shown comes first."""
        made = self.early.pop(0) if self.early else commit(self.lsn + 1, values)
        self.lsn = made.header.lsn
        return made

    def next_lsn(self) -> int:
        self.lsn += 1
        return self.lsn

    def take(self, *accepted: Applied) -> None:
        self.objects.take(accepted, ChainState(LOG_ID, "home", lsn=self.lsn), self.lsn + 1)


DOES = (
    "take",
    "take",
    "take two",
    "decide",
    "merge",
    "open",
    "show",
    "show",
    "discard",
    "save",
    "read",
    "read",
    "leave",
)
VALUES = st.dictionaries(st.sampled_from(KEYS), st.one_of(st.none(), st.binary(min_size=1, max_size=2)), min_size=1)


@given(st.lists(st.tuples(st.sampled_from(DOES), VALUES), max_size=25))
def test_readers_see_their_moments(steps: list[tuple[str, Values]]) -> None:
    table = Table()
    table.do("take", dict.fromkeys(KEYS[:3], b"first"))
    for what, values in [("read", {}), *steps]:
        table.do(what, values)
        table.check()


@pytest.mark.parametrize("what", sorted(set(DOES) - {"save", "read", "leave"}))
@pytest.mark.parametrize("cached", [True, False], ids=["cached", "stored"])
def test_each_way_to_change_objects_shows_who_reads_what_was(what: str, cached: bool) -> None:
    table = Table()
    table.do("take", dict.fromkeys(KEYS[:3], b"first"))
    if what == "open":
        table.do("show", {b"a": b"early", b"b": None})
    table.do("read", {})
    before = table.now()
    if not cached:
        table.do("save", {})
        table.objects.cache.clear()
    table.do(what, {b"a": b"second", b"b": None, b"d": b"new"})
    assert table.now() != before
    table.check()


def test_a_copy_that_is_dropped_shows_nothing_any_more() -> None:
    table = Table()
    table.do("take", {b"a": b"first"})
    table.do("read", {})
    (reader,) = table.readers
    table.readers.clear()
    table.objects.drop()
    with pytest.raises(OverError):
        reader.past.of(b"a", table.objects.find(b"a"))
    with pytest.raises(OverError):
        table.objects.scan(b"", past=reader.past)
