"""Objects that are visible before the log has them (R6: local NO_SYNC), in a partition's table."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, strategies as st

from halog.adapters.memory.store import MemoryStore
from halog.backend import CommittedObject
from halog.core.ids import ABSENT, EpochId
from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.core.log.records import Change, Commit, EpochOpened, Header
from halog.runtime.store.object_table import ObjectTable
from halog.runtime.store.scanning import merged

pytestmark = pytest.mark.feature("R6")
LOG_ID = bytes(range(16))
REF = bytes(24)


def commit(lsn: int, **values: bytes | None) -> Commit:
    """Objects by key; None: deleted."""
    changes = (
        Change(records.DELETE if v is None else records.UPDATE, REF, k.encode(), v, 0) for k, v in values.items()
    )
    return Commit(Header(LOG_ID, EpochId(1, "home", 0), lsn, tx=lsn.to_bytes(16, "big")), tuple(changes))


class Rig:
    def __init__(self, cache_objects: int = 100) -> None:
        self.store = MemoryStore()
        self.objects = ObjectTable(self.store, LOG_ID, threading.RLock(), cache_objects)

    def take(self, *accepted: records.Record) -> None:
        lsn = accepted[-1].header.lsn
        self.objects.take(accepted, ChainState(LOG_ID, "home", lsn=lsn), lsn + 1)

    def sees(self, key: str) -> bytes | None:
        found = self.objects.find(key.encode())
        return None if found is None else found.value

    def lists(self, after: str = "") -> dict[str, bytes]:
        return {f.key.decode(): f.value for f in self.objects.scan(b"", after.encode())}

    def stored(self) -> dict[str, bytes]:
        self.objects.save()
        fresh = ObjectTable(self.store, LOG_ID, threading.RLock())
        return {f.key.decode(): f.value for f in fresh.scan(b"")}


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.take(commit(1, a=b"a1", b=b"b1", c=b"c1"))
    return rig


class Watched(dict[bytes, CommittedObject]):
    """A cache that readers look into without a lock: what they may have seen."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def __setitem__(self, key: bytes, found: CommittedObject) -> None:
        self.seen.append(found.value)
        super().__setitem__(key, found)


@pytest.mark.feature("R6", "R5")
@pytest.mark.parametrize("last", [b"a3", None], ids=["changed", "deleted"])
def test_what_became_of_it_later_stays_visible_throughout(rig: Rig, last: bytes | None) -> None:
    """The log brings the first of two changes that are shown: nobody reads that one again, not for a moment."""
    cache = rig.objects.cache = Watched()
    rig.objects.show_early([commit(2, a=b"a2"), commit(3, a=last)], lost_with_active=False)
    cache.seen.clear()
    rig.take(commit(2, a=b"a2"))
    assert cache.seen == []
    assert rig.sees("a") == last
    rig.take(commit(3, a=last))
    assert rig.sees("a") == last
    assert rig.stored().get("a") == last


def test_what_is_shown_is_found_listed_and_validated_but_not_stored(rig: Rig) -> None:
    rig.objects.show_early([commit(2, a=b"a2", b=None, d=b"d2")], lost_with_active=False)
    assert [rig.sees(k) for k in "abcd"] == [b"a2", None, b"c1", b"d2"]
    assert rig.lists() == {"a": b"a2", "c": b"c1", "d": b"d2"}
    assert rig.lists(after="a") == {"c": b"c1", "d": b"d2"}
    assert rig.objects.first_changed([(b"a", 2), (b"b", ABSENT), (b"c", 1), (b"d", 2)]) is None
    assert rig.objects.first_changed([(b"a", 1)]) == (b"a", 1, 2)
    assert rig.objects.first_changed([(b"b", 1)]) == (b"b", 1, ABSENT)
    assert rig.stored() == {"a": b"a1", "b": b"b1", "c": b"c1"}


def test_once_the_log_has_it_it_is_stored(rig: Rig) -> None:
    early = commit(2, a=b"a2", b=None)
    rig.objects.show_early([early], lost_with_active=False)
    rig.take(early)
    assert rig.lists() == rig.stored() == {"a": b"a2", "c": b"c1"}


def test_what_became_of_it_later_stays_visible_when_the_log_brings_the_earlier_one(rig: Rig) -> None:
    first, second, third = commit(2, a=b"a2", b=b"b2", c=None), commit(3, a=b"a3", b=None), commit(4, c=b"c4")
    rig.objects.show_early([first, second, third], lost_with_active=False)
    rig.take(first)
    assert rig.lists() == {"a": b"a3", "c": b"c4"}
    assert [rig.sees(k) for k in "abc"] == [b"a3", None, b"c4"]
    assert rig.stored() == {"a": b"a2", "b": b"b2"}
    rig.take(second)
    rig.take(third)
    assert rig.lists() == rig.stored() == {"a": b"a3", "c": b"c4"}


def test_an_epoch_that_opens_without_it_takes_it_back(rig: Rig) -> None:
    rig.objects.show_early([commit(2, a=b"a2", b=None, d=b"d2")], lost_with_active=False)
    rig.take(EpochOpened(Header(LOG_ID, EpochId(2, "home", 0), 2), ()))
    assert [rig.sees(k) for k in "abcd"] == [b"a1", b"b1", b"c1", None]
    assert rig.lists() == {"a": b"a1", "b": b"b1", "c": b"c1"}


def test_what_was_appended_again_before_the_epoch_opened_stays(rig: Rig) -> None:
    early = commit(2, a=b"a2")
    rig.objects.show_early([early], lost_with_active=False)
    rig.take(early, EpochOpened(Header(LOG_ID, EpochId(2, "home", 0), 3), ()))
    assert rig.sees("a") == b"a2"


def test_what_left_the_cache_is_found_all_the_same() -> None:
    rig = Rig(cache_objects=1)
    rig.take(commit(1, a=b"a1", b=b"b1"))
    rig.objects.show_early([commit(2, a=b"a2", b=None, c=b"c2")], lost_with_active=False)
    assert b"a" not in rig.objects.cache
    assert [rig.sees(k) for k in "abc"] == [b"a2", None, b"c2"]
    assert rig.objects.version(b"a") == 2


def test_a_dropped_copy_shows_nothing(rig: Rig) -> None:
    rig.objects.show_early([commit(2, d=b"d2")], lost_with_active=False)
    rig.objects.drop()
    assert rig.sees("d") is None


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.binary(max_size=2)),
    st.dictionaries(st.sampled_from("abcdef"), st.none() | st.binary(max_size=2)),
)
def test_a_scan_is_what_is_stored_with_what_is_newer_over_it(
    stored: dict[str, bytes], newer: dict[str, bytes | None]
) -> None:
    def found(key: str, data: bytes) -> CommittedObject:
        return CommittedObject(REF, 1, data, key.encode())

    early = {k.encode(): None if v is None else found(k, v) for k, v in newer.items()}
    together: dict[str, bytes | None] = {**stored, **newer}
    seen = list(merged((found(k, v) for k, v in sorted(stored.items())), early))
    assert [(f.key.decode(), f.value) for f in seen] == [(k, v) for k, v in sorted(together.items()) if v is not None]


def test_many_that_are_not_stored_yet_are_found_without_the_cache() -> None:
    """Shown early and pushed out of memory: the store knows less than this table."""
    rig = Rig(cache_objects=1)
    rig.take(commit(1, a=b"a1", b=b"b1"))
    rig.objects.show_early([commit(2, a=b"a2", b=None)], lost_with_active=False)
    rig.objects.cache.clear()
    found = rig.objects.find_all([b"a", b"b", b"c"])
    assert {k: None if f is None else f.value for k, f in found.items()} == {b"a": b"a2", b"b": None, b"c": None}
