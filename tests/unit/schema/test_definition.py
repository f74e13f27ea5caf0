"""Definitions from outside are checked before anything is built from them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from halog.errors import RecordFormatError
from halog.schema import Definition, ForeignType, decode_foreign
from tests.unit.schema.fleet_example import FLEET
from tests.unit.schema.shapes_strategy import objects

OK: dict[str, Any] = {
    "name": "T",
    "bases": [],
    "version": None,
    "key": ["k"],
    "partition_by": ["k"],
    "fields": [{"name": "k", "type": "int"}],
}


def with_type(shape: Any) -> dict[str, Any]:
    return {**OK, "fields": [*OK["fields"], {"name": "f", "type": shape}]}


def nested(shape: Any, levels: int) -> Any:
    for _ in range(levels):
        shape = {"list": shape}
    return shape


RECURSIVE: dict[str, Any] = {"record": {"name": "R", "fields": []}}
RECURSIVE["record"]["fields"].append({"name": "r", "type": RECURSIVE})

HOSTILE: list[tuple[str, Any]] = [
    ("no JSON", "{"),
    ("not an object", "[]"),
    ("empty", {}),
    ("an unknown entry", {**OK, "extra": 1}),
    ("a missing entry", {k: v for k, v in OK.items() if k != "key"}),
    ("a name with a slash", {**OK, "name": "../x"}),
    ("a long name", {**OK, "name": "x" * 101}),
    ("a name with a line end", {**OK, "name": "T\n"}),
    ("a name that is a number", {**OK, "name": 1}),
    ("a version that is text", {**OK, "version": "1"}),
    ("a version that is true", {**OK, "version": True}),
    ("no fields", {**OK, "fields": []}),
    ("a field twice", {**OK, "fields": OK["fields"] * 2}),
    ("1,001 fields", {**OK, "fields": [{"name": f"f{i}", "type": "int"} for i in range(1001)]}),
    ("a key that is no field", {**OK, "key": ["x"]}),
    ("no key", {**OK, "key": []}),
    ("a key twice", {**OK, "key": ["k", "k"]}),
    ("partition_by outside the key", {**OK, "partition_by": ["x"]}),
    ("an optional key", {**OK, "fields": [{"name": "k", "type": {"optional": "int"}}]}),
    ("an unknown type", with_type("complex")),
    ("items that take no bytes", with_type({"list": "none"})),
    ("an empty record", with_type({"record": {"name": "R", "fields": []}})),
    ("an optional of an optional", with_type({"optional": {"optional": "int"}})),
    ("two kinds at once", with_type({"list": "int", "map": "int"})),
    ("an unknown compound", with_type({"set": "int"})),
    ("no symbols", with_type({"enum": {"name": "E", "symbols": []}})),
    ("a symbol twice", with_type({"enum": {"name": "E", "symbols": ["A", "A"]}})),
    ("a decimal of 39 digits", with_type({"decimal": {"precision": 39, "scale": 0}})),
    ("a scale beyond the precision", with_type({"decimal": {"precision": 3, "scale": 4}})),
    ("33 levels", with_type(nested("int", 32))),
    ("a thousand levels", with_type(nested("int", 1000))),
    ("a hundred thousand levels of text", "[" * 100_000),
    ("recursion", with_type(RECURSIVE)),
    ("half a megabyte", json.dumps({**OK, "name": "x" * 600_000})),
    ("a dotted field", {**OK, "fields": [*OK["fields"], {"name": "a.b", "type": "int"}]}),
    ("a default without a value", {**OK, "fields": [*OK["fields"], {"name": "f", "type": "int", "default": 1}]}),
    (
        "a default that is not a number",
        '{"name":"T","bases":[],"version":null,"key":["k"],"partition_by":["k"],'
        '"fields":[{"name":"k","type":"int"},{"name":"f","type":"float","default":{"value":NaN}}]}',
    ),
    (
        "one name for two records",
        {
            **OK,
            "fields": [
                *OK["fields"],
                *({"name": n, "type": {"record": {"name": "R", "fields": [{"name": n, "type": "int"}]}}} for n in "ab"),
            ],
        },
    ),
]


@pytest.mark.parametrize("raw", [h[1] for h in HOSTILE], ids=[h[0] for h in HOSTILE])
def test_hostile_definitions(raw: Any) -> None:
    """RecordFormatError in one line; no recursion, no stack overflow, no long work."""
    with pytest.raises(RecordFormatError, match="not a type definition") as caught:
        Definition.parse(raw)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_the_honest_one_passes() -> None:
    """The base of all the hostile ones is accepted, so each is refused for its own fault."""
    assert Definition.parse(OK).name == "T"
    assert Definition.parse(with_type(nested("int", 29))).name == "T"


def test_a_definition_under_another_id_is_refused() -> None:
    """The id is recomputed, never believed."""
    info = FLEET.info("Aircraft")
    with pytest.raises(RecordFormatError, match="type id"):
        Definition.parse(info.definition, b"\0" * 8)


@given(objects())
@settings(max_examples=150, deadline=None)
def test_foreign_reading_and_writing(case: Any) -> None:
    """With the definition alone an object becomes JSON and back the very same bytes."""
    info, obj = case
    foreign = ForeignType(Definition.parse(info.definition))
    data = info.encode(obj)
    plain = json.loads(json.dumps(foreign.decode(data), allow_nan=False))
    assert foreign.encode(plain) == data


@given(objects(), st.binary(max_size=30))
@settings(max_examples=150, deadline=None)
def test_foreign_reading_refuses_what_the_class_refuses(case: Any, junk: bytes) -> None:
    """Tools and nodes agree on what is a well-formed object."""
    info, _obj = case

    def outcome(read: Any) -> bool:
        try:
            read(info.type_id + junk)
        except RecordFormatError:
            return False
        return True

    assert outcome(info.decode) == outcome(lambda data: decode_foreign(info.definition, data))
