"""The key directory: its bytes, how objects are looked for, and what changes together."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given, strategies as st

from halog.core.ids import ABSENT
from halog.core.keys.directory import (
    DIRECTORY,
    DirectoryRow,
    Looking,
    StoredEntry,
    beside,
    entries_of,
    entry_key,
    is_entry,
    listing,
    look,
    moved,
    object_key,
    packed,
    standing,
    unlisting,
    unpacked,
    vouching,
)
from halog.core.keys.mapping import (
    BY_KEY,
    LISTED,
    LISTING,
    UNLISTING,
    Layout,
    Place,
    PolicyMapping,
    begun,
    opened,
    turned_back,
    why_not,
)
from halog.core.log.records import CREATE, DELETE, UPDATE
from halog.errors import RecordFormatError
from halog.schema.definition import short_id

pytestmark = pytest.mark.feature("P6")

TYPE = b"abcdefgh"
KEY = b"familyid" + b"\x04N1"
REF = b"r" * 24


class Stored(NamedTuple):
    ref: bytes
    version: int
    value: bytes


def entry(partition: str, version: int = 7) -> Stored:
    return Stored(REF, version, packed(TYPE, partition))


class World:
    """Who has what; every look at it is noted."""

    def __init__(self, rows: dict[tuple[str, bytes], Stored]) -> None:
        self.rows = rows
        self.asked = list[tuple[str, bytes]]()

    def find(self, place: Place) -> tuple[str, Stored | None]:
        asking: Looking[Stored] = look(KEY, place)
        asked = next(asking)
        while True:
            self.asked.append(asked)
            found = self.rows.get(asked)
            self.happens(len(self.asked))
            try:
                asked = asking.send(found)
            except StopIteration as end:
                result: tuple[str, Stored | None] = end.value
                return result

    def happens(self, looks: int) -> None:
        """Meanwhile."""


# --- bytes ---


@given(st.binary(min_size=8, max_size=8), st.text(min_size=1, max_size=300))
def test_an_entry_says_what_was_put_into_it(type_id: bytes, partition: str) -> None:
    assert unpacked(packed(type_id, partition)) == (type_id, partition)


def test_the_bytes_are_those_of_the_protocol() -> None:
    """A changed byte would hide every object of every cluster."""
    assert DIRECTORY == short_id("#directory") == bytes.fromhex("35c68d68ff1f9ed3")
    assert packed(TYPE, "p-1") == DIRECTORY + TYPE + b"\x06p-1"
    assert packed(TYPE, "x" * 64)[16:19] == b"\x80\x01x"
    assert entry_key(KEY) == DIRECTORY + KEY


def test_keys_of_objects_and_of_their_entries_are_told_apart() -> None:
    assert is_entry(entry_key(KEY))
    assert not is_entry(KEY)
    assert object_key(entry_key(KEY)) == object_key(KEY) == KEY


@pytest.mark.parametrize(
    "value",
    [
        b"",
        TYPE * 3,
        DIRECTORY,
        DIRECTORY + TYPE,
        packed(TYPE, "p-1") + b"x",
        packed(TYPE, "p-1")[:-1],
        DIRECTORY + TYPE + b"\x05p-1",
        DIRECTORY + TYPE + b"\xff\xff",
        DIRECTORY + TYPE + b"\x02\xff",
    ],
)
def test_what_is_no_entry_is_refused(value: bytes) -> None:
    with pytest.raises(RecordFormatError, match="directory entry"):
        unpacked(value)


# --- looking ---


def test_an_object_is_found_where_its_entry_says() -> None:
    there = Stored(REF, 9, b"value")
    world = World({("p1", entry_key(KEY)): entry("p3"), ("p3", KEY): there})
    assert world.find(Place("p1", listed=LISTED)) == ("p3", there)
    assert world.asked == [("p1", entry_key(KEY)), ("p3", KEY)]


def test_without_an_entry_there_is_no_object() -> None:
    world = World({})
    assert world.find(Place("p1", listed=LISTED)) == ("p1", None)
    assert world.asked == [("p1", entry_key(KEY))]


def test_the_old_owner_of_an_entry_is_asked_first() -> None:
    there = Stored(REF, 9, b"value")
    world = World({("p1", entry_key(KEY)): entry("p3"), ("p3", KEY): there})
    assert world.find(Place("p1", 4, "p0", LISTED)) == ("p3", there)
    assert [partition for partition, _ in world.asked] == ["p0", "p1", "p3"]


def test_an_object_that_moved_meanwhile_is_looked_for_again() -> None:
    there = Stored(REF, 9, b"value")

    class Moving(World):
        def happens(self, looks: int) -> None:
            if looks == 1:
                self.rows = {("p1", entry_key(KEY)): entry("p4", 8), ("p4", KEY): there}

    world = Moving({("p1", entry_key(KEY)): entry("p3"), ("p3", KEY): there})
    assert world.find(Place("p1", listed=LISTED)) == ("p4", there)
    assert world.asked == [("p1", entry_key(KEY)), ("p3", KEY), ("p1", entry_key(KEY)), ("p4", KEY)]


def test_an_object_that_was_deleted_meanwhile_does_not_exist() -> None:
    class Vanishing(World):
        def happens(self, looks: int) -> None:
            self.rows = {}

    assert Vanishing({("p1", entry_key(KEY)): entry("p3")}).find(Place("p1", listed=LISTED)) == ("p1", None)


def test_many_entries_are_asked_for_partition_by_partition() -> None:
    rows = {("old", b"a"): entry("p1"), ("new", b"b"): entry("p2"), ("new", b"c"): entry("p3")}
    asked: list[tuple[str, list[bytes], int]] = []

    def fetch(at: str, keys: list[bytes], version: int) -> list[Stored | None]:
        asked.append((at, keys, version))
        return [rows.get((at, object_key(key))) for key in keys]

    places = {b"a": Place("new", 5, "old"), b"b": Place("new", 5, "old"), b"c": Place("new", 5), b"d": Place("new", 5)}
    found = entries_of(places, fetch)
    assert {key: (s.at, s.said.partition) for key, s in found.items()} == {
        b"a": ("old", "p1"),
        b"b": ("new", "p2"),
        b"c": ("new", "p3"),
    }
    keys = {name: entry_key(name) for name in (b"a", b"b", b"c", b"d")}
    assert asked == [
        ("old", [keys[b"a"], keys[b"b"]], 5),
        ("new", [keys[b"c"], keys[b"d"]], 5),
        ("new", [keys[b"b"]], 5),
    ]


# --- changing ---


def changes(*rows: DirectoryRow) -> list[tuple[str, DirectoryRow]]:
    now = standing("old", entry("home"))
    return list(beside(rows, "home", lambda key: Place("new", 3, "old", LISTED), {KEY: now}.__getitem__))


CREATED = DirectoryRow(CREATE, REF, KEY, TYPE + b"x", ABSENT)
DELETED = DirectoryRow(DELETE, REF, KEY, None, 5)


def test_a_create_writes_the_entry_where_it_belongs() -> None:
    assert changes(CREATED) == [("new", DirectoryRow(CREATE, REF, entry_key(KEY), packed(TYPE, "home"), ABSENT))]


def test_a_delete_deletes_the_entry_where_it_is() -> None:
    assert changes(DELETED) == [("old", DirectoryRow(DELETE, REF, entry_key(KEY), None, 7))]


def test_an_update_leaves_the_entry_alone() -> None:
    assert changes(DirectoryRow(UPDATE, REF, KEY, TYPE + b"x", 5)) == []


def test_an_object_made_anew_keeps_its_entry_where_it_is() -> None:
    again = CREATED._replace(ref=b"s" * 24)
    assert changes(DELETED, again) == [
        ("old", DirectoryRow(DELETE, REF, entry_key(KEY), None, 7)),
        ("old", DirectoryRow(CREATE, b"s" * 24, entry_key(KEY), packed(TYPE, "home"), ABSENT)),
    ]


def test_an_object_moves_together_with_what_its_entry_says() -> None:
    found: Any = Stored(REF, 5, TYPE + b"x")
    now: StoredEntry = standing("p1", entry("home"))
    assert moved(KEY, found, now, "p9") == (
        ("home", DirectoryRow(DELETE, REF, KEY, None, 5)),
        ("p9", DirectoryRow(CREATE, REF, KEY, TYPE + b"x", ABSENT)),
        ("p1", DirectoryRow(UPDATE, REF, entry_key(KEY), packed(TYPE, "p9"), 7)),
    )


def test_mappers_with_and_without_a_directory_are_changed_one_into_the_other_alone() -> None:
    """A key and its entry have one owner then; what may come in between is named."""
    ring, rounds = Layout("consistent_hash", 4, 4096), Layout("round_robin", 4, 4096)
    assert why_not(PolicyMapping(ring), rounds) is None
    assert why_not(PolicyMapping(rounds), ring) is None
    assert why_not(PolicyMapping(rounds), Layout("round_robin", 6, 4096)) is None
    for wished in (Layout("round_robin", 6, 4096), Layout("round_robin", 4, 999)):
        why = why_not(PolicyMapping(ring), wished)
        assert why is not None
        assert "change the mapper alone, and partitions or ring_size when that is done" in why
    for now, wished in ((Layout("shop:by", 4, 4096, 1), rounds), (rounds, Layout("shop:by", 4, 4096, 1))):
        why = why_not(PolicyMapping(now), wished)
        assert why is not None
        assert "go by way of consistent_hash" in why


def test_how_objects_are_found_follows_the_change() -> None:
    ring, rounds = Layout("consistent_hash", 4, 4096), Layout("round_robin", 4, 4096)
    assert PolicyMapping(ring).kind == begun(PolicyMapping(ring), rounds).kind == BY_KEY
    coming = opened(begun(PolicyMapping(ring), rounds))
    assert (coming.kind, turned_back(coming).kind) == (LISTING, UNLISTING)
    going = opened(begun(PolicyMapping(rounds), ring))
    assert (going.kind, turned_back(going).kind) == (UNLISTING, LISTING)
    assert opened(begun(PolicyMapping(rounds), Layout("round_robin", 4, 999))).kind == LISTED


# --- while objects get entries, or lose them ---


@pytest.mark.parametrize("kind", [LISTING, UNLISTING])
def test_an_object_without_an_entry_is_where_its_key_hashes_to(kind: str) -> None:
    there = Stored(REF, 9, b"value")
    world = World({("p1", KEY): there})
    assert world.find(Place("p1", 2, listed=kind)) == ("p1", there)
    assert world.asked == [("p1", entry_key(KEY)), ("p1", KEY)]
    assert World({}).find(Place("p1", 2, listed=kind)) == ("p1", None)
    assert World({("p1", entry_key(KEY)): entry("p3"), ("p3", KEY): there}).find(Place("p1", 2, listed=kind)) == (
        "p3",
        there,
    )


def both(kind: str, home: str, now: StoredEntry | None, *rows: DirectoryRow) -> tuple[list[Any], list[Any]]:
    """What is written beside it, and what must be absent."""
    place = Place("ring", 3, listed=kind)
    known = {} if now is None else {KEY: now}
    return (
        list(beside(rows, home, lambda key: place, known.get)),
        list(vouching(rows, home, lambda key: place, known.get)),
    )


def test_what_is_created_meanwhile_has_neither_entry_nor_namesake() -> None:
    rows, absent = both(LISTING, "home", None, CREATED)
    assert rows == [("ring", DirectoryRow(CREATE, REF, entry_key(KEY), packed(TYPE, "home"), ABSENT))]
    assert absent == [("ring", KEY)], "that there is no entry is seen when it is created"
    assert both(LISTING, "ring", None, CREATED)[1] == []
    assert both(UNLISTING, "ring", None, CREATED) == ([], [("ring", entry_key(KEY))])


@pytest.mark.parametrize("kind", [LISTING, UNLISTING])
def test_what_is_deleted_meanwhile_takes_its_entry_or_has_none(kind: str) -> None:
    now = standing("ring", entry("home"))
    assert both(kind, "home", now, DELETED) == ([("ring", DirectoryRow(DELETE, REF, entry_key(KEY), None, 7))], [])
    assert both(kind, "ring", None, DELETED) == ([], [("ring", entry_key(KEY))])


@pytest.mark.parametrize("kind", [LISTING, UNLISTING])
def test_what_is_made_anew_meanwhile_keeps_its_kind(kind: str) -> None:
    now = standing("ring", entry("home"))
    rows, absent = both(kind, "home", now, DELETED, CREATED)
    assert [(at, row.op) for at, row in rows] == [("ring", DELETE), ("ring", CREATE)]
    assert absent == []
    assert both(kind, "ring", None, DELETED, CREATED) == ([], [("ring", entry_key(KEY))])


def test_an_entry_comes_and_goes_with_its_object() -> None:
    found = Stored(REF, 5, TYPE + b"x")
    assert listing(KEY, found, "ring") == DirectoryRow(CREATE, REF, entry_key(KEY), packed(TYPE, "ring"), ABSENT)
    now = standing("ring", entry("home"))
    gone = ("ring", DirectoryRow(DELETE, REF, entry_key(KEY), None, 7))
    assert unlisting(KEY, None, now) == (gone,)
    assert unlisting(KEY, found, now) == (
        gone,
        ("home", DirectoryRow(DELETE, REF, KEY, None, 5)),
        ("ring", DirectoryRow(CREATE, REF, KEY, TYPE + b"x", ABSENT)),
    )
