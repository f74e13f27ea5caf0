"""The Avro schema of a type names each nested type once in each namespace, so that Avro libraries take it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from hypothesis import given, settings, strategies as st

from halog.schema.shapes import EnumShape, FieldShape, ListShape, RecordShape, RefShape, Scalar, Shape, to_avro

NUMBER = Scalar("int")


def record(name: str, *shapes: Shape) -> RecordShape:
    return RecordShape(name, tuple(FieldShape(f"f{i}", shape) for i, shape in enumerate(shapes)))


INNER = record("Inner", NUMBER)
COLOUR = EnumShape("Colour", ("RED", "BLUE"))
OUTER = record("Deep.Outer", INNER, COLOUR)


@pytest.mark.parametrize(
    "shapes",
    [
        pytest.param((OUTER, INNER, COLOUR), id="first within a dotted one"),
        pytest.param((INNER, COLOUR, OUTER), id="first outside of it"),
        pytest.param((OUTER, ListShape(OUTER), record("Other.Outer", INNER, OUTER)), id="within two dotted ones"),
        pytest.param(
            (record("Deep.Outer", INNER, record("Deep.Inner", COLOUR)), INNER), id="two that Avro takes for one"
        ),
        pytest.param((record("halog.Ref", NUMBER), RefShape("A"), RefShape("B")), id="named like halog's own"),
    ],
)
@pytest.mark.parametrize("root", ["Root", "Deep.Root", "halog.Root"])
def test_avro_takes_every_schema(root: str, shapes: Sequence[Shape]) -> None:
    parse_schema(to_avro(record(root, *shapes)))


NAMES = st.sampled_from(["A", "B", "A.A", "A.B", "A.A.A", "B.A", "halog.Ref"])


@st.composite
def trees(draw: st.DrawFn) -> tuple[Shape, Any]:
    """A root with nested records, of which each name has one shape, and a value of it."""
    known: dict[str, tuple[Shape, Any]] = {}

    def drawn(depth: int, above: tuple[str, ...]) -> tuple[Shape, Any]:
        name = draw(NAMES.filter(lambda n: n not in above)) if depth else ""
        if not name or len(above) > 4:
            return NUMBER, draw(st.integers(0, 9))
        if name not in known:
            inside = [drawn(depth - 1, (*above, name)) for _ in range(draw(st.integers(1, 3)))]
            shape = record(name, *(s for s, _ in inside))
            known.setdefault(name, (shape, {f"f{i}": value for i, (_, value) in enumerate(inside)}))
        return known[name]

    parts = [drawn(3, ()) for _ in range(draw(st.integers(1, 4)))]
    return record("A.Root", *(s for s, _ in parts)), {f"f{i}": value for i, (_, value) in enumerate(parts)}


@given(trees())
@settings(max_examples=200, deadline=None)
def test_a_value_is_read_as_it_was_written(case: tuple[Shape, Any]) -> None:
    shape, value = case
    schema = parse_schema(to_avro(shape))
    out = io.BytesIO()
    schemaless_writer(out, schema, value)
    assert schemaless_reader(io.BytesIO(out.getvalue()), schema, None) == value
