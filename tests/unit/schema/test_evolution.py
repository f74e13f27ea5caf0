"""A changed class reads what the old one wrote, or refuses before the first object, naming field and definitions."""

from __future__ import annotations

import dataclasses
import enum
from decimal import Decimal
from typing import Annotated, Any

import pytest
from hypothesis import given, settings, strategies as st

from halog.errors import RecordFormatError, SchemaChangedError
from halog.schema import Decimals, Ref, TypeInfo, managed
from tests.unit.schema.shapes_strategy import LONG, Target, declare

Dec = Annotated[Decimal, Decimals(6, 2)]
Wide = Annotated[Decimal, Decimals(9, 2)]
Finer = Annotated[Decimal, Decimals(9, 4)]


def colour(*names: str) -> Any:
    return enum.Enum("Colour", names, module=__name__, qualname="Colour")


def point(name: str = "Point", **fields: Any) -> Any:
    """A dataclass; a field given as (annotation, default) has a default."""
    items = [(n, *f) if isinstance(f, tuple) else (n, f) for n, f in fields.items()]
    made = dataclasses.make_dataclass(name, items)
    made.__module__ = __name__
    return made


RGB, RGBX, XRGB = colour("R", "G", "B"), colour("R", "G", "B", "X"), colour("X", "B", "G", "R")
P1, P2 = point(x=int), point(y=(int, 9), x=(float, 0.5))

READ: list[tuple[str, Any, Any, Any, Any]] = [
    ("the same", int, int, 5, 5),
    ("int to float", int, float, 5, 5.0),
    ("more digits", Dec, Wide, Decimal("1.25"), Decimal("1.25")),
    ("to optional", int, int | None, 5, 5),
    ("widened to optional", int, float | None, 5, 5.0),
    ("inside an optional", int | None, float | None, None, None),
    ("inside a list", list[int], list[float], [1, 2], [1.0, 2.0]),
    ("inside a map", dict[str, int], dict[str, int | None], {"a": 1}, {"a": 1}),
    ("more symbols", RGB, RGBX, RGB.G, RGBX.G),
    ("symbols in another order", RGB, XRGB, RGB.G, XRGB.G),
    ("a nested class", P1, P2, P1(4), P2(x=4.0, y=9)),
    ("a nested class without a field", P2, point(y=(int, 0)), P2(y=3), None),
    ("deep", list[P1 | None], list[P2 | None], [P1(4), None], [P2(x=4.0, y=9), None]),  # type: ignore[valid-type]
]


@pytest.mark.parametrize(("old", "new", "written", "read"), [r[1:] for r in READ], ids=[r[0] for r in READ])
@pytest.mark.feature("U3")
def test_what_is_read(old: Any, new: Any, written: Any, read: Any) -> None:
    """Each sound change gives the value the new class would hold."""
    before, after = declare({"k": int, "f": old}), declare({"k": int, "f": new})
    values = after.reader(before.definition)(before.encode(before.cls(1, written)))
    if read is None and written is not None:  # the new class is made per row
        assert dataclasses.asdict(values["f"]) == {"y": 3}
    else:
        assert values == {"k": 1, "f": read}
    assert after.decode(after.encode(after.instance(values))) == values


REFUSED: list[tuple[str, Any, Any]] = [
    ("float to int", float, int),
    ("int to str", int, str),
    ("bool to int", bool, int),
    ("str to bytes", str, bytes),
    ("fewer digits", Wide, Dec),
    ("another scale", Dec, Finer),
    ("int to decimal", int, Dec),
    ("optional to required", int | None, int),
    ("list to map", list[int], dict[str, int]),
    ("int to list", int, list[int]),
    ("narrowed in a list", list[float], list[int]),
    ("narrowed in a map", dict[str, int | None], dict[str, int]),
    ("a symbol removed", RGBX, RGB),
    ("another enum", RGB, enum.Enum("Paint", ["R", "G", "B"])),
    ("another nested class", P1, point("Spot", x=int)),
    ("a nested field added without a default", P1, point(x=int, z=int)),
    ("a nested field narrowed", P2, point(y=(int, 9), x=(int, 0))),
    ("another target", Ref[Target], Ref["Elsewhere"]),  # type: ignore[name-defined]
]


@pytest.mark.parametrize(("old", "new"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
@pytest.mark.feature("U3")
def test_what_is_refused(old: Any, new: Any) -> None:
    """SchemaChangedError when the reader is asked for, with type, field and both definitions."""
    before, after = declare({"k": int, "f": old}), declare({"k": int, "f": new})
    with pytest.raises(SchemaChangedError, match=r"Probe\.f") as caught:
        after.reader(before.definition)
    assert before.definition in str(caught.value)
    assert after.definition in str(caught.value)
    assert caught.value.evidence["type"] == "Probe"
    assert caught.value.evidence["field"].startswith("f")


def test_fields_come_and_go() -> None:
    """A removed field is skipped, an added one has its default, each object its own list."""
    before = declare({"k": int, "gone": list[P1], "stays": int})  # type: ignore[valid-type]
    after = declare(
        {"new": list[int], "k": int, "stays": int, "more": str},
        body={"new": dataclasses.field(default_factory=list), "k": 0, "stays": 0, "more": "m"},
    )
    read = after.reader(before.definition)
    first, second = (read(before.encode(before.cls(n, [P1(1)], 7))) for n in (1, 2))
    assert list(first.items()) == [("new", []), ("k", 1), ("stays", 7), ("more", "m")]
    first["new"].append(1)
    assert second["new"] == []


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({}, r"Probe\.f: added without a default"),
        ({"f": dataclasses.field(default_factory=lambda: 4)}, "differ from node to node"),
    ],
)
def test_an_added_field_needs_a_constant_default(body: dict[str, Any], why: str) -> None:
    """Every node must read the same object, so code that computes a default cannot fill one."""
    with pytest.raises(SchemaChangedError, match=why):
        declare({"k": int, "f": int}, body=body).reader(declare({"k": int}).definition)


def base_pair() -> tuple[TypeInfo, TypeInfo]:
    root = declare({"k": int, "f": int}, cls_name="Root")
    sub: Any = managed()(type("Probe", (root.cls,), {"__module__": __name__}))
    return declare({"k": int, "f": int}), sub.__halog__


IDENTITY: list[tuple[str, Any, Any, str]] = [
    ("key", {"key": "k"}, {"key": ("k", "f")}, "key changed"),
    ("key order", {"key": ("k", "f")}, {"key": ("f", "k")}, "key changed"),
    ("partition_by", {"key": ("k", "f")}, {"key": ("k", "f"), "partition_by": "k"}, "partition_by changed"),
    ("name", {}, {"name": "Other"}, "name changed"),
]


@pytest.mark.parametrize(("old", "new", "why"), [i[1:] for i in IDENTITY], ids=[i[0] for i in IDENTITY])
def test_what_decides_where_an_object_lives_cannot_change(old: Any, new: Any, why: str) -> None:
    """Key, partition_by and name are how an object is found."""
    fields = {"k": int, "f": int}
    with pytest.raises(SchemaChangedError, match=why):
        declare(fields, **new).reader(declare(fields, **old).definition)


def test_bases_cannot_change() -> None:
    """Another family is another key space."""
    alone, derived = base_pair()
    with pytest.raises(SchemaChangedError, match="bases changed"):
        derived.reader(alone.definition)
    with pytest.raises(SchemaChangedError, match="bases changed"):
        alone.reader(derived.definition)


def test_a_key_fields_bytes_cannot_change() -> None:
    """Keys are looked up by their bytes: no other type, no other enum order; an enum may grow at its end."""
    with pytest.raises(SchemaChangedError, match=r"Probe\.k: key field changed"):
        declare({"k": str}).reader(declare({"k": int}).definition)
    with pytest.raises(SchemaChangedError, match="key field changed"):
        declare({"k": Wide}).reader(declare({"k": Dec}).definition)
    with pytest.raises(SchemaChangedError, match="key field changed"):
        declare({"k": XRGB}).reader(declare({"k": RGB}).definition)
    before, after = declare({"k": RGB}), declare({"k": RGBX})
    assert after.reader(before.definition)(before.encode(before.cls(RGB.B))) == {"k": RGBX.B}
    assert before.index_key((RGB.B,)) == after.index_key((RGBX.B,))


def test_a_renamed_field_is_refused() -> None:
    """A rename looks like a removal and an addition, so without a default it is noticed."""
    with pytest.raises(SchemaChangedError, match=r"Probe\.g: added without a default \(or renamed\)"):
        declare({"k": int, "g": int}).reader(declare({"k": int, "f": int}).definition)


def test_an_unchanged_definition_is_read_by_the_fast_path() -> None:
    """No detour where nothing changed; another version or default alone is read."""
    info = declare({"k": int, "f": int})
    assert info.reader(info.definition) is info.decode
    newer = declare({"k": int, "f": int}, version=2, body={"f": 1})
    assert newer.reader(info.definition)(info.encode(info.cls(1, 2))) == {"k": 1, "f": 2}


def test_the_reader_checks_bytes_like_the_decoder() -> None:
    """Old bytes are as suspect as new ones: another type id, cut, or with a tail."""
    before, after = declare({"k": int, "f": list[int]}), declare({"k": int, "f": list[float]})
    read, data = after.reader(before.definition), before.encode(before.cls(1, [1, 2]))
    for bad in (data[:-1], data + b"\0", after.type_id + data[8:], data[:9] + b"\x80\x84\xaf\x5f"):
        with pytest.raises(RecordFormatError):
            read(bad)


@given(st.lists(LONG, max_size=5), LONG)
@settings(max_examples=100, deadline=None)
def test_widening_keeps_every_value(xs: list[int], k: int) -> None:
    """int to float reads the nearest float of any 64-bit int, and never fails."""
    before, after = declare({"k": int, "f": list[int]}), declare({"k": int, "f": list[float]})
    assert after.reader(before.definition)(before.encode(before.cls(k, xs))) == {"k": k, "f": [float(x) for x in xs]}
