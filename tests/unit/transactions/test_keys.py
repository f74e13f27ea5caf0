"""Keys: each finds its own object, however alike two of them are; what is no key of the class is refused each time."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings, strategies as st

from halog.errors import DuplicateKeyError, FieldTypeError
from halog.testing.memory import MemoryCluster
from halog.testing.nodes import MemoryNode
from tests.unit.schema.anything import ANYTHING, AUTUMN, KEYS, Level, Loose, Text, Word, same
from tests.unit.schema.shapes_strategy import declare


def opened(info: Any, partitions: int = 3) -> MemoryNode:
    return MemoryNode(MemoryCluster(partitions=partitions), info.cls.__halog_registry__)


@pytest.mark.feature("D1")
def test_the_hour_that_comes_twice() -> None:
    """Equal to Python, since the clock's face is the same: two objects, and each is the one that is deleted."""
    info = declare({"k": dt.datetime, "text": str}, body={"text": ""})
    first, second = AUTUMN, AUTUMN.replace(fold=1)
    with opened(info) as node:
        with node.transaction():
            node.create(info.cls(first, "first"))
            node.create(info.cls(second, "second"))
        for _ in range(2):
            with node.transaction():
                assert [node.get(info.cls, at).text for at in (first, second)] == ["first", "second"]
                assert node.get(info.cls, second.astimezone(dt.UTC)).text == "second"
        with node.transaction():
            node.delete(node.get(info.cls, second))
        with node.transaction():
            assert [o.text for o in node.extent(info.cls)] == ["first"]
            assert node.find(info.cls, second) is None


def test_equal_instants_and_equal_numbers_are_one_key() -> None:
    """Whatever zone they are told in, and with however many digits; the object keeps what it was created with."""
    info = declare({"at": dt.datetime, "price": Decimal}, key=("at", "price"))
    at, price = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC), Decimal("1.50")
    same_at = at.astimezone(ZoneInfo("Asia/Tokyo"))
    with opened(info) as node:
        with node.transaction():
            node.create(info.cls(at, price))
        with pytest.raises(DuplicateKeyError), node.transaction():
            node.create(info.cls(same_at, Decimal("1.5")))
        with node.transaction():
            for key in ((same_at, Decimal("1.5")), (at, Decimal("1.500000000"))):
                assert repr(node.get(info.cls, *key).price) == "Decimal('1.50')"
            assert node.resolve(node.ref(node.get(info.cls, at, price))).at == at


@pytest.mark.parametrize(
    ("annotation", "key", "alike"),
    [
        (str, "a", [Word.A, Text("a"), Loose("A"), b"a"]),
        (int, 1, [True, 1.0, Level.LOW, Decimal(1)]),
        (bool, True, [1, 1.0, Level.LOW]),
        (bytes, b"a", [bytearray(b"a"), "a"]),
        (Level, Level.LOW, [1, True]),
        (Word, Word.A, ["a", "A"]),
        (Decimal, Decimal(1), [1, 1.0, True]),
        (dt.date, dt.date(2024, 1, 1), [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)]),
    ],
)
def test_what_only_equals_a_key_is_refused(annotation: Any, key: Any, alike: list[Any]) -> None:
    """Before the key was used and after that, alone and as a part of a key."""
    one, two = declare({"k": annotation}), declare({"k": annotation, "n": int}, key=("k", "n"))
    last = declare({"n": int, "k": annotation}, key=("n", "k"))
    three = declare({"m": int, "n": int, "k": annotation}, key=("m", "n", "k"))
    with opened(one) as node, opened(two) as other, opened(last) as second, opened(three) as third:
        for used in (False, True):
            for given_key in alike:
                with node.transaction(), pytest.raises(FieldTypeError, match=r"Probe\.k: expected"):
                    node.find(one.cls, given_key)
                for whole in ((given_key, 1), ((given_key, 1),)):
                    with other.transaction(), pytest.raises(FieldTypeError, match=r"Probe\.k: expected"):
                        other.find(two.cls, *whole)
                with second.transaction(), pytest.raises(FieldTypeError, match=r"Probe\.k: expected"):
                    second.find(last.cls, 1, given_key)
                with third.transaction(), pytest.raises(FieldTypeError, match=r"Probe\.k: expected"):
                    third.find(three.cls, 1, 2, given_key)
            if not used:
                with node.transaction():
                    node.create(one.cls(key))
                with other.transaction():
                    other.create(two.cls(key, 1))
                with second.transaction():
                    second.create(last.cls(1, key))
                with third.transaction():
                    third.create(three.cls(1, 2, key))
            with node.transaction():
                assert same(key, node.get(one.cls, key).k)
            with other.transaction():
                assert other.get(two.cls, key, 1) is other.get(two.cls, (key, 1))
            with second.transaction():
                assert same(key, second.get(last.cls, 1, key).k)
            with third.transaction():
                assert same(key, third.get(three.cls, 1, 2, key).k)


@given(
    st.sampled_from(KEYS).flatmap(lambda pair: st.tuples(st.just(pair[0]), st.lists(pair[1] | ANYTHING, max_size=6)))
)
@settings(max_examples=150, deadline=None)
def test_every_key_that_is_taken_finds_its_object(case: tuple[Any, list[Any]]) -> None:
    """Whatever is given: it is refused at create and at get alike, or the object of its bytes is found."""
    annotation, keys = case
    info = declare({"k": annotation, "n": int})
    owner: dict[bytes, int] = {}
    with opened(info) as node:
        for n, key in enumerate(keys):
            try:
                index_key = info.index_key((key,))
                info.encode(info.cls(key, n))
            except FieldTypeError:
                with pytest.raises(FieldTypeError), node.transaction():
                    node.create(info.cls(key, n))
                continue
            if owner.setdefault(index_key, n) == n:
                with node.transaction():
                    node.create(info.cls(key, n))
        for _ in range(2):
            for key in keys:
                with node.transaction():
                    try:
                        index_key = info.index_key((key,))
                    except FieldTypeError:
                        with pytest.raises(FieldTypeError):
                            node.find(info.cls, key)
                        continue
                    found = node.find(info.cls, key)
                    assert (None if found is None else found.n) == owner.get(index_key)
