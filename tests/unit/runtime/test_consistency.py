"""An async replica that contradicts the log: its object is discarded, the rest of the transaction applies (R2)."""

from __future__ import annotations

import logging
import threading

import pytest

from halog.adapters.memory_store import MemoryStore
from halog.core import records
from halog.core.chain import ChainState
from halog.core.ids import EpochId
from halog.core.records import CREATE, DELETE, UPDATE, Change, Commit, Header
from halog.runtime.objects import ObjectTable

pytestmark = pytest.mark.feature("R2", "R1")
LOG_ID = bytes(range(16))


class Rig:
    def __init__(self) -> None:
        self.store = MemoryStore()
        self.fresh()

    def fresh(self) -> None:
        """As after a restart: nothing in memory."""
        self.objects = ObjectTable(self.store, LOG_ID, threading.RLock())

    def take(self, lsn: int, *changes: Change) -> None:
        record = Commit(Header(LOG_ID, EpochId(1, "home", 0), lsn, tx=lsn.to_bytes(16, "big")), changes)
        self.objects.take((record,), ChainState(LOG_ID, "home", lsn=lsn), lsn + 1, check=True)

    def value(self, key: bytes) -> bytes | None:
        found = self.objects.find(key)
        return None if found is None else found.value

    @property
    def discarded(self) -> int:
        return self.objects.consistency.discarded


def change(op: str, key: bytes, value: bytes | None, replaced: int = -1) -> Change:
    return Change(op, b"r" * 24, key, value, replaced)


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.take(1, change(CREATE, b"a", b"a1"), change(CREATE, b"b", b"b1"))
    return rig


def test_a_sound_copy_contradicts_nothing(rig: Rig) -> None:
    rig.take(2, change(UPDATE, b"a", b"a2", 1))
    rig.objects.save()
    rig.fresh()
    rig.take(3, change(UPDATE, b"a", b"a3", 2), change(DELETE, b"b", None, 1))
    rig.take(4, change(CREATE, b"b", b"b4"), change(DELETE, b"a", None, 3), change(CREATE, b"a", b"a4"))
    assert rig.discarded == 0
    assert (rig.value(b"a"), rig.value(b"b")) == (b"a4", b"b4")


@pytest.mark.parametrize("restarted", [False, True], ids=["in memory", "in the store"])
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (change(CREATE, b"a", b"a9"), "record 9 creates 61, of which this copy has version 1"),
        (change(UPDATE, b"a", b"a9", 7), "record 9 replaces version 7 of 61, of which this copy has version 1"),
        (change(DELETE, b"a", None, 7), "record 9 replaces version 7 of 61, of which this copy has version 1"),
    ],
    ids=["duplicate key", "another version", "another instance"],
)
def test_what_contradicts_the_log_is_discarded_alone(
    rig: Rig, caplog: pytest.LogCaptureFixture, wrong: Change, said: str, restarted: bool
) -> None:
    if restarted:
        rig.objects.save()
        rig.fresh()
    with caplog.at_level(logging.WARNING, logger="halog"):
        rig.take(9, wrong, change(UPDATE, b"b", b"b9", 1))
    assert [r.message for r in caplog.records] == [f"{said}: discarded for the log's"]
    assert rig.discarded == 1
    assert (rig.value(b"a"), rig.value(b"b")) == (wrong.value, b"b9")
    rig.take(10, change(CREATE if wrong.value is None else UPDATE, b"a", b"a10", -1 if wrong.value is None else 9))
    assert rig.discarded == 1, "it is as the log has it now"


def test_a_restore_that_begins_with_newer_objects_contradicts_nothing(rig: Rig) -> None:
    """The state topic may be ahead of its marker; records up to there are replayed."""
    rig.take(5, change(UPDATE, b"a", b"a5", 1), change(DELETE, b"b", None, 1))
    for lsn in (2, 3):
        rig.take(lsn, change(UPDATE, b"a", b"a%d" % lsn, lsn - 1), change(UPDATE, b"b", b"b%d" % lsn, lsn - 1))
    assert rig.discarded == 0


def test_an_object_this_copy_has_lost_comes_back(rig: Rig) -> None:
    rig.take(9, change(UPDATE, b"lost", b"found", 4))
    assert rig.value(b"lost") == b"found"
    assert rig.discarded == 0


def test_records_of_the_protocol_change_no_object(rig: Rig) -> None:
    opened = records.EpochOpened(Header(LOG_ID, EpochId(2, "home", 0), 2, b"h" * 32), ())
    rig.objects.take((opened,), ChainState(LOG_ID, "home", lsn=2), 3, check=True)
    assert rig.discarded == 0
