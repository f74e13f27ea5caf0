"""Mutants of the key directory (P6). Only the histories of a market can notice."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from halog.core.keys import directory
from halog.core.keys.directory import DirectoryRow
from halog.core.keys.mapping import LISTED, Place
from halog.core.log.records import CREATE, DELETE, UPDATE
from tests.mutants.registry import mutant, patch
from tests.sim import market

SEEDS = market.SEEDS[:2_000]

Looking = Generator[tuple[str, bytes], Any, tuple[str, Any]]


@mutant("P6", SEEDS)
def the_entry_of_a_deleted_object_is_not_deleted() -> None:
    """Nobody can create the key again."""

    def beside(*args: Any) -> Iterator[tuple[str, DirectoryRow]]:
        return (row for row in real(*args) if row[1].op != DELETE)

    real = patch(directory, "beside", beside)


@mutant("P6", SEEDS)
def an_object_is_created_without_its_entry() -> None:
    """Nothing makes its key unique, and nobody finds it."""

    def beside(*args: Any) -> Iterator[tuple[str, DirectoryRow]]:
        return (row for row in real(*args) if row[1].op != CREATE)

    real = patch(directory, "beside", beside)


@mutant("P6", SEEDS)
def a_create_does_not_ask_whether_there_is_an_entry() -> None:
    """It takes a key that was listed once for listed, and puts another object under it."""

    def beside(*args: Any) -> Iterator[tuple[str, DirectoryRow]]:
        for at, row in real(*args):
            if row.op != CREATE or row.key not in written:
                yield at, row
            written.add(row.key)

    written: set[bytes] = set()
    real = patch(directory, "beside", beside)


@mutant("P6", SEEDS)
def a_look_up_does_not_ask_the_directory() -> None:
    """It asks where the key hashes to."""

    def look(key: bytes, place: Place) -> Looking:
        for partition in place.owners:
            found = yield partition, key
            if found is not None:
                return partition, found
        return place.partition, None

    patch(directory, "look", look)


@mutant("P6", SEEDS)
def an_object_that_is_not_where_its_entry_says_does_not_exist() -> None:
    """It may just have been carried elsewhere."""

    def look(key: bytes, place: Place) -> Looking:
        asked: list[bytes] = []
        looking, found = real(key, place), None
        while True:
            try:
                question = looking.send(found)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if question[1] != key and key in asked:
                return place.partition, None
            asked.append(question[1])
            found = yield question

    real = patch(directory, "look", look)


@mutant("P6", SEEDS)
def an_object_is_carried_without_its_entry() -> None:
    """Its entry says where it was."""

    def moved(*args: Any) -> tuple[tuple[str, DirectoryRow], ...]:
        return tuple(row for row in real(*args) if row[1].op != UPDATE)

    real = patch(directory, "moved", moved)


@mutant("T8", SEEDS)
def a_create_asks_one_owner_of_its_entry() -> None:
    """Its key may have an entry at the old one still."""

    def place(key: bytes, mapping: Any) -> Place:
        return placed(key, mapping)._replace(before="")

    def created(self: market.Trader, errand: Any) -> None:
        keep, market.place = market.place, place
        try:
            real(self, errand)
        finally:
            market.place = keep

    placed = market.place
    real = patch(market.Trader, "create", created)


@mutant("P6", SEEDS)
def a_create_asks_for_an_entry_only_while_objects_get_theirs() -> None:
    """There may be an object of its key that has none yet."""
    patch(directory, "vouching", lambda *args: iter(()))


@mutant("P6", SEEDS)
def a_look_up_finds_only_what_has_an_entry_while_objects_get_theirs() -> None:
    """What has none yet is where its key hashes to."""

    def look(key: bytes, place: Place) -> Looking:
        return (yield from real(key, place._replace(listed=LISTED)))

    real = patch(directory, "look", look)


@mutant("P6", SEEDS)
def an_entry_goes_and_its_object_stays() -> None:
    """Nobody looks for it there."""

    def unlisting(*args: Any) -> tuple[tuple[str, DirectoryRow], ...]:
        return real(*args)[:1]

    real = patch(directory, "unlisting", unlisting)
