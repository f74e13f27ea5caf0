"""What the table of a partition stores, and when it goes to the disk."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import pytest

from halog.adapters.memory.store import MemoryStore
from halog.core.ids import EpochId
from halog.core.log.chain import ChainState
from halog.core.log.records import CREATE, DELETE, Change, Commit, Header
from halog.runtime.store.object_table import ObjectTable, StoredPosition

pytestmark = pytest.mark.feature("R6", "R1")
LOG_ID = bytes(range(16))
STATE = ChainState(LOG_ID, "home")


class Watched(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.flushes: list[bool] = []

    def write(self, items: Iterable[tuple[bytes, bytes | None]], *, flush: bool = False) -> None:
        super().write(items, flush=flush)
        self.flushes.append(flush)


def table() -> tuple[ObjectTable, Watched]:
    store = Watched()
    return ObjectTable(store, LOG_ID, threading.RLock()), store


def tx(lsn: int) -> bytes:
    return lsn.to_bytes(16, "big")


def take(objects: ObjectTable, *lsns: int) -> None:
    for lsn in lsns:
        change = Change(CREATE, lsn.to_bytes(24, "big"), b"k%d" % lsn, b"value", -1)
        record = Commit(Header(LOG_ID, EpochId(1, "home", 0), lsn, tx=tx(lsn)), (change,))
        objects.take((record,), ChainState(LOG_ID, "home", lsn=lsn), lsn + 1)


def test_a_flush_also_brings_what_was_stored_before_to_the_disk() -> None:
    """The tick stores without a flush; the acknowledgement behind it promises one."""
    objects, store = table()
    take(objects, 1)
    objects.save()
    assert store.flushes == [False]
    objects.save(flush=True)
    assert store.flushes == [False, True]
    objects.save(flush=True)
    objects.save()
    assert store.flushes == [False, True], "nothing was written since"
    take(objects, 2)
    objects.save(flush=True)
    assert store.flushes == [False, True, True]


def test_what_a_process_left_behind_is_not_taken_for_flushed() -> None:
    objects, store = table()
    objects.save(flush=True)
    assert store.flushes == [True]


def test_outcomes_of_one_write_are_one_item_and_are_read_back_in_order() -> None:
    objects, store = table()
    for lsns in ((1, 2, 3), (5,), (8, 9)):
        take(objects, *lsns)
        objects.save()
    assert len([k for k, _ in store.scan(LOG_ID[:8] + b"t")]) == 3
    assert objects.load_outcomes().items() == [(tx(n), n) for n in (1, 2, 3, 5, 8, 9)]
    view = store.snapshot()
    assert objects.outcomes_between(view, 2) == [(n, tx(n)) for n in (3, 5, 8, 9)]
    assert objects.outcomes_between(view, 9) == []


@pytest.mark.parametrize(("keep_from", "left"), [(1, 6), (3, 6), (4, 3), (6, 2), (9, 2), (10, 0)])
def test_outcomes_are_forgotten_by_whole_writes(keep_from: int, left: int) -> None:
    """Never one too many."""
    objects, store = table()
    for lsns in ((1, 2, 3), (5,), (8, 9)):
        take(objects, *lsns)
        objects.save()
    store.write(objects.forget_outcomes(keep_from))
    assert len(objects.load_outcomes().items()) == left


def test_a_restore_brings_outcomes_back() -> None:
    objects, _ = table()
    outcomes = [(tx(n), n) for n in range(1, 2_502)]
    objects.restore({}, outcomes, StoredPosition(STATE, 7, 6, b""))
    assert objects.load_outcomes().items() == outcomes


def test_many_changes_of_few_objects_do_not_wait_for_the_tick() -> None:
    objects, _ = table()
    for _ in range(1_000):
        take(objects, 1)
    assert objects.overfull


def test_many_are_found_as_one_by_one() -> None:
    """In memory, only about to be stored, and nowhere; asking costs one look into the store for all."""
    objects, store = table()
    take(objects, 1, 2, 3)
    objects.cache.pop(b"k1")
    keys = [b"k1", b"k2", b"no", b"k1"]
    found = objects.find_all(keys)
    assert found == {key: objects.find(key) for key in keys}
    assert [found[b"k1"].version, found[b"k2"].version, found[b"no"]] == [1, 2, None]  # type: ignore[union-attr]
    assert b"k1" in objects.cache
    assert not store.flushes, "what was taken need not be stored first"


def test_what_is_not_stored_yet_is_found_without_storing_it() -> None:
    """A key that is nowhere, too: every creation asks for one."""
    objects, store = table()
    take(objects, 1)
    objects.cache.clear()
    found = objects.find(b"k1")
    assert found is not None
    assert found.version == 1
    assert objects.find(b"no") is None
    assert objects.find_all([b"no", b"k1"])[b"no"] is None
    assert not store.flushes, "nothing was written"


def test_a_deletion_that_is_not_stored_yet_is_seen() -> None:
    objects, store = table()
    take(objects, 1)
    objects.save()
    gone = Commit(Header(LOG_ID, EpochId(1, "home", 0), 2, tx=tx(2)), (Change(DELETE, bytes(24), b"k1", None, 1),))
    objects.take((gone,), ChainState(LOG_ID, "home", lsn=2), 3)
    assert objects.find(b"k1") is None
    assert objects.find_all([b"k1"]) == {b"k1": None}
    assert len(store.flushes) == 1
