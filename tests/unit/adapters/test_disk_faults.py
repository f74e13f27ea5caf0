"""A disk in memory that fails, is full or is slow: what tests of an application or of the runtime lean on."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from halog.adapters.memory import Attempt, MemoryDisk, MemoryStore
from halog.errors import StoreError

pytestmark = pytest.mark.feature("X5")

WRITES: dict[str, Callable[[MemoryStore], None]] = {
    "write": lambda store: store.write([(b"k", b"2")]),
    "flush": lambda store: store.write([(b"k", b"2")], flush=True),
    "fill": lambda store: store.fill([(b"k", b"2")]),
    "drop": lambda store: store.drop(b"k"),
}
READS: dict[str, Callable[[MemoryStore], object]] = {
    "get": lambda store: store.get(b"k"),
    "get_many": lambda store: store.get_many([b"k"]),
    "scan": lambda store: store.scan(b""),
    "snapshot": lambda store: store.snapshot(),
}


def held_store() -> tuple[MemoryDisk, MemoryStore]:
    disk = MemoryDisk()
    store = MemoryStore(disk)
    store.write([(b"k", b"1")])
    return disk, store


@pytest.mark.parametrize("how", WRITES)
def test_a_full_disk_takes_nothing_and_goes_on_reading_until_it_is_healed(how: str) -> None:
    disk, store = held_store()
    disk.fill_up()
    with pytest.raises(StoreError, match="no space left on device"):
        WRITES[how](store)
    assert store.get(b"k") == b"1"
    disk.heal()
    WRITES[how](store)
    assert store.get(b"k") == (None if how == "drop" else b"2")


@pytest.mark.parametrize("how", READS)
def test_a_disk_that_fails_to_read_fails_so_often(how: str) -> None:
    disk, store = held_store()
    disk.faults.fail("read", StoreError("EIO"), times=2)
    for _ in range(2):
        with pytest.raises(StoreError, match="EIO"):
            READS[how](store)
    READS[how](store)
    WRITES["write"](store)


def test_a_disk_may_fail_at_its_flushes_alone() -> None:
    disk, store = held_store()
    disk.faults.fail("flush", StoreError("the disk is gone"))
    WRITES["write"](store)
    with pytest.raises(StoreError, match="gone"):
        WRITES["flush"](store)


def test_a_slow_disk_keeps_its_writers_waiting_and_nobody_else() -> None:
    disk, store = held_store()
    disk.hold("flush")
    writer = threading.Thread(target=WRITES["flush"], args=(store,), daemon=True)
    writer.start()
    store.write([(b"other", b"1")])
    assert store.get(b"k") == b"1"
    assert writer.is_alive()
    disk.heal()
    writer.join(10)
    assert store.get(b"k") == b"2"


def test_what_is_written_can_be_looked_at_when_it_is_there() -> None:
    disk, store = held_store()
    seen: list[tuple[object, bytes | None]] = []

    def written(attempt: Attempt[None]) -> None:
        attempt.land()
        seen.append((attempt.about, store.get(b"k")))

    disk.faults.add("flush", written)
    store.write([(b"other", b"2")])
    store.write([(b"k", None)], flush=True)
    assert seen == [([(b"k", None)], None)]
