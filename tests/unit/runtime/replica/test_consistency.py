"""An async replica that contradicts the log: its object is discarded, the rest of the transaction applies (R2)."""

from __future__ import annotations

import logging
import threading

import pytest

from halog.adapters.memory.store import MemoryStore
from halog.core.ids import REF_BYTES, EpochId
from halog.core.keys.directory import entry_key, packed
from halog.core.log import records
from halog.core.log.chain import ChainState
from halog.core.log.merge_parts import AppliedMerge
from halog.core.log.outcomes import Outcomes
from halog.core.log.records import CREATE, DELETE, UPDATE, Change, Commit, Header, Merged
from halog.core.log.transactions import Applied, Ledger
from halog.runtime.replica.consistency import Consistency
from halog.runtime.store.object_table import ObjectTable
from halog.runtime.store.reference_index import EACH, References

pytestmark = pytest.mark.feature("R2", "R1")
LOG_ID = bytes(range(16))
OPENED = records.EpochOpened(Header(LOG_ID, EpochId(2, "home", 0), 2, b"h" * 32), ())


class Rig:
    def __init__(self, each: int = EACH) -> None:
        """`each`: so many objects that are stored are looked at with each question."""
        self.store = MemoryStore()
        self.each = each
        self.fresh()

    def fresh(self) -> None:
        """As after a restart: nothing in memory."""
        self.objects = ObjectTable(self.store, LOG_ID, threading.RLock())
        self.objects.references = References(self.store, self.objects.prefix, self.each)
        self.objects.begin(Outcomes(), -1, Ledger())
        self.consistency = Consistency("p", self.objects)

    def restart(self) -> None:
        self.objects.save()
        self.fresh()

    def take(self, lsn: int, *changes: Change, check: bool = True, replayed: bool = False) -> None:
        self.take_all(Commit(header(lsn), changes), check=check, replayed=replayed)

    def take_all(self, *accepted: Applied, check: bool = True, replayed: bool = False) -> None:
        """One batch."""
        if check:
            self.consistency.check(accepted, replayed=replayed)
        lsn = accepted[-1].header.lsn
        self.objects.take(accepted, ChainState(LOG_ID, "home", lsn=lsn), lsn + 1)

    def value(self, key: bytes) -> bytes | None:
        found = self.objects.find(key)
        return None if found is None else found.value

    @property
    def discarded(self) -> int:
        return self.consistency.discarded


def header(lsn: int) -> Header:
    return Header(LOG_ID, EpochId(1, "home", 0), lsn, tx=lsn.to_bytes(16, "big"))


def change(op: int, key: bytes, value: bytes | None, replaced: int = -1, ref: bytes = b"") -> Change:
    """An object's reference is its first key."""
    return Change(op, (ref or key).ljust(REF_BYTES, b"."), key, value, replaced)


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.take(1, change(CREATE, b"a", b"a1"), change(CREATE, b"b", b"b1"))
    return rig


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.message for r in caplog.records]


def test_a_sound_copy_contradicts_nothing(rig: Rig) -> None:
    rig.take(2, change(UPDATE, b"a", b"a2", 1))
    rig.restart()
    rig.take(3, change(UPDATE, b"a", b"a3", 2), change(DELETE, b"b", None, 1))
    rig.take(4, change(CREATE, b"b", b"b4"), change(DELETE, b"a", None, 3), change(CREATE, b"a", b"a4"))
    assert rig.discarded == 0
    assert (rig.value(b"a"), rig.value(b"b")) == (b"a4", b"b4")


@pytest.mark.parametrize("restarted", [False, True], ids=["in memory", "in the store"])
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (change(CREATE, b"a", b"a9"), "creates 61, of which this copy has version 1"),
        (change(UPDATE, b"a", b"a9", 7), "replaces version 7 of 61, of which this copy has version 1"),
        (change(DELETE, b"a", None, 7), "replaces version 7 of 61, of which this copy has version 1"),
    ],
    ids=["duplicate key", "another version", "another instance"],
)
def test_what_contradicts_the_log_is_discarded_alone(
    rig: Rig, caplog: pytest.LogCaptureFixture, wrong: Change, words: str, restarted: bool
) -> None:
    if restarted:
        rig.restart()
    with caplog.at_level(logging.WARNING, logger="halog"):
        rig.take(9, wrong, change(UPDATE, b"b", b"b9", 1))
    assert said(caplog) == [f"partition p: record 9 {words}: discarded for the log's"]
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


# --- deletes ---


def test_the_delete_of_an_object_that_is_not_there_is_told(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """The manual's invalid reference on delete; the rest of the transaction applies."""
    with caplog.at_level(logging.WARNING, logger="halog"):
        rig.take(9, change(DELETE, b"lost", None, 4), change(UPDATE, b"b", b"b9", 1))
    words = "deletes 6c6f7374, which this copy does not have"
    assert said(caplog) == [f"partition p: record 9 {words}: discarded for the log's"]
    assert (rig.discarded, rig.value(b"b")) == (1, b"b9")


def test_what_one_batch_creates_and_deletes_was_there(rig: Rig) -> None:
    made, gone = change(CREATE, b"c", b"c2"), change(DELETE, b"c", None, 2)
    rig.take_all(Commit(header(2), (made,)), Commit(header(3), (gone,)))
    assert rig.discarded == 0


def test_a_delete_that_is_replayed_may_have_happened_already(rig: Rig) -> None:
    """A restore begins without what was deleted behind the marker."""
    rig.take(9, change(DELETE, b"lost", None, 4), replayed=True)
    assert rig.discarded == 0


# --- references ---


@pytest.mark.parametrize("restarted", [False, True], ids=["in memory", "in the store"])
@pytest.mark.parametrize(("op", "replaced"), [(CREATE, -1), (UPDATE, 4)], ids=["create", "update of a lost object"])
def test_an_object_under_another_key_than_the_log_has_its_reference_is_discarded(
    rig: Rig, caplog: pytest.LogCaptureFixture, op: int, replaced: int, restarted: bool
) -> None:
    """The manual's duplicate reference: an object has one for life, and no other has it."""
    if restarted:
        rig.restart()
    with caplog.at_level(logging.WARNING, logger="halog"):
        rig.take(9, change(op, b"c", b"c9", replaced, ref=b"a"), change(UPDATE, b"b", b"b9", 1))
    words = "brings 63 with the reference of 61, which this copy has"
    assert said(caplog) == [f"partition p: record 9 {words}: discarded for the log's"]
    assert rig.discarded == 1
    for _ in ("at once", "and after a restart"):
        assert [rig.value(key) for key in (b"a", b"b", b"c")] == [None, b"b9", b"c9"]
        assert [found.key for found in rig.objects.scan(b"")] == [b"b", b"c"]
        rig.restart()
    rig.take(10, change(UPDATE, b"c", b"c10", 9, ref=b"a"), change(CREATE, b"a", b"a10", ref=b"new"))
    assert rig.discarded == 0, "it is as the log has it now"


def test_references_are_known_of_what_came_while_nobody_looked() -> None:
    """Of a copy that was sync, or was restored: it begins to look when it becomes async, and goes on at a restart."""
    rig = Rig()
    rig.take(1, change(CREATE, b"a", b"a1"), change(CREATE, b"b", b"b1"), check=False)
    rig.restart()
    rig.take(2, change(UPDATE, b"b", b"b2", 1))
    rig.restart()
    rig.take(3, change(CREATE, b"c", b"c3"), check=False)
    rig.restart()
    rig.take(4, change(CREATE, b"d", b"d4", ref=b"a"), change(CREATE, b"e", b"e4", ref=b"c"))
    assert rig.discarded == 2
    assert [found.key for found in rig.objects.scan(b"")] == [b"b", b"d", b"e"]


def test_what_the_store_held_is_looked_through_a_little_at_a_time() -> None:
    """Nobody waits for all of it; what comes and goes meanwhile is known, and a restart on the way begins anew."""
    rig = Rig(each=2)
    keys = [b"%d" % n for n in range(6)]
    rig.take(1, *(change(CREATE, key, b"v1") for key in keys), check=False)
    rig.take(2, change(UPDATE, b"0", b"v2", 1))
    rig.take(3, change(CREATE, b"n", b"v3"))
    rig.restart()
    rig.take(4, change(DELETE, b"5", None, 1), change(CREATE, b"m", b"v4"))
    rig.take(5, change(UPDATE, b"0", b"v5", 2))
    rig.take(6, change(UPDATE, b"0", b"v6", 5))
    rig.take(7, change(UPDATE, b"0", b"v7", 6))
    rig.restart()
    gone = (b"0", b"3", b"4", b"m", b"n")
    rig.take(8, *(change(CREATE, b"new-" + key, b"v8", ref=key) for key in (*gone, b"5")))
    assert rig.discarded == len(gone)
    assert [found.key for found in rig.objects.scan(b"")] == [
        b"1",
        b"2",
        *(b"new-" + k for k in (b"0", b"3", b"4", b"5", b"m", b"n")),
    ]


def test_a_reference_that_was_given_up_may_come_under_another_key(rig: Rig) -> None:
    """In one transaction or a later one; what is hinted at and not there does no harm."""
    rig.take(2, change(DELETE, b"a", None, 1), change(CREATE, b"c", b"c2", ref=b"a"))
    rig.take(3, change(DELETE, b"b", None, 1))
    rig.restart()
    rig.take(4, change(CREATE, b"d", b"d4", ref=b"b"))
    assert rig.discarded == 0


def test_an_entry_of_a_key_directory_has_its_objects_reference(rig: Rig) -> None:
    entry = change(CREATE, entry_key(b"a"), packed(b"t" * 8, "p"), ref=b"a")
    rig.take(2, entry)
    rig.take(3, change(DELETE, b"a", None, 1))
    rig.take(4, change(CREATE, b"a", b"a4"))
    assert rig.discarded == 0


def test_an_object_newer_than_the_record_keeps_its_reference(rig: Rig) -> None:
    rig.take(5, change(UPDATE, b"a", b"a5", 1))
    rig.take(3, change(CREATE, b"c", b"c3", ref=b"a"))
    assert rig.discarded == 0
    assert rig.value(b"a") == b"a5"


# --- what the log does not have yet (R6) ---


LOST = pytest.mark.parametrize("lost_with_active", [False, True], ids=["for the successor", "lost with the active"])


@LOST
def test_what_was_shown_early_and_never_came_is_no_damage(rig: Rig, lost_with_active: bool) -> None:
    """Of a copy that was active: the next epoch, and its records, come in one batch."""
    early = change(UPDATE, b"a", b"a2", 1), change(DELETE, b"b", None, 1), change(CREATE, b"d", b"d2", ref=b"x")
    rig.objects.show_early([Commit(header(2), early)], lost_with_active=lost_with_active)
    now = change(UPDATE, b"a", b"a3", 1), change(DELETE, b"b", None, 1), change(CREATE, b"d", b"d3", ref=b"y")
    rig.take_all(OPENED, Commit(header(3), now), Commit(header(4), (change(CREATE, b"e", b"e4", ref=b"x"),)))
    assert rig.discarded == 0
    assert [rig.value(key) for key in (b"a", b"b", b"d", b"e")] == [b"a3", None, b"d3", b"e4"]


@LOST
def test_what_was_shown_early_hides_no_damage(rig: Rig, lost_with_active: bool) -> None:
    """Neither that of its key nor that of the reference that was there."""
    early = Commit(header(2), (change(UPDATE, b"a", b"a2", 1), change(CREATE, b"b", b"b2", ref=b"x")))
    rig.objects.show_early([early], lost_with_active=lost_with_active)
    now = Commit(header(3), (change(UPDATE, b"a", b"a3", 7), change(CREATE, b"c", b"c3", ref=b"b")))
    rig.take_all(OPENED, now)
    assert rig.discarded == 2
    assert [rig.value(key) for key in (b"a", b"b", b"c")] == [b"a3", None, b"c3"]


@LOST
def test_what_was_shown_early_and_came_is_no_damage(rig: Rig, lost_with_active: bool) -> None:
    """It is followed by what was shown behind it, in the same batch and the next."""
    changes = change(CREATE, b"d", b"d2"), change(UPDATE, b"d", b"d3", 2), change(DELETE, b"d", None, 3)
    shown = [Commit(header(lsn), (c,)) for lsn, c in enumerate(changes, 2)]
    rig.objects.show_early(shown, lost_with_active=lost_with_active)
    rig.take_all(*shown[:2])
    rig.take_all(shown[2], Commit(header(5), (change(CREATE, b"d", b"d5", ref=b"y"),)))
    assert rig.discarded == 0
    assert rig.value(b"d") == b"d5"


# --- the protocol's records ---


def test_what_a_merge_has_put_there_is_no_damage(rig: Rig) -> None:
    """In one batch with records that go on from it."""
    merged = (Merged(b"a", change(CREATE, b"a", None).ref, None), Merged(b"m", b"m" * REF_BYTES, b"m2"))
    merge = AppliedMerge(header(2), b"name", merged, (), (), 0, 0)
    gone, again = change(DELETE, b"m", None, 2), change(CREATE, b"a", b"a3", ref=b"z")
    moved = Change(CREATE, change(CREATE, b"a", None).ref, b"c", b"c3", -1)
    rig.take_all(merge, Commit(header(3), (gone, moved)), Commit(header(4), (again,)))
    assert rig.discarded == 0
    assert [rig.value(key) for key in (b"a", b"b", b"c", b"m")] == [b"a3", b"b1", b"c3", None]


def test_records_of_the_protocol_change_no_object(rig: Rig) -> None:
    rig.take_all(OPENED)
    assert rig.discarded == 0
