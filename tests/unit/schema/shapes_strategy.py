"""Hypothesis strategies: annotations halog allows, and values that fit them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import itertools
import uuid
from decimal import Decimal
from typing import Annotated, Any

from hypothesis import strategies as st

from halog.schema import Decimals, Ref, Registry, TypeInfo, managed

LONG = st.integers(-(1 << 63), (1 << 63) - 1)
U64 = st.integers(0, (1 << 64) - 1)
_count = itertools.count()


class Colour(enum.Enum):
    RED = 1
    GREEN = "g"


@dataclasses.dataclass
class Point:
    x: float
    label: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    n: int
    names: list[str]


@managed(key="k", registry=Registry())
class Target:
    k: int


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
REFS: st.SearchStrategy[Ref[Any]] = st.builds(Ref, U64, U64, U64, st.just("Target"), st.binary(max_size=9))
FLOATS = st.floats(allow_nan=False)
DECIMALS = st.decimals(-(10**8), 10**8, places=2, allow_nan=False).map(lambda d: d or abs(d))
"""With all digits of their scale: the bytes of others are longer than fastavro's (tests/unit/schema/test_values.py)."""

SCALARS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (bool, st.booleans()),
    (int, LONG | st.integers(-300, 300)),
    (float, FLOATS),
    (str, TEXT),
    (bytes, st.binary(max_size=200)),
    (Annotated[Decimal, Decimals(12, 2)], DECIMALS),
    (dt.datetime, st.datetimes(timezones=st.just(dt.UTC))),
    (dt.date, st.dates()),
    (dt.time, st.times().map(lambda t: t.replace(fold=0))),
    (uuid.UUID, st.uuids()),
    (Colour, st.sampled_from(Colour)),
    (Ref[Target], REFS),
    (Point, st.builds(Point, FLOATS, st.none() | TEXT)),
    (Slotted, st.builds(Slotted, LONG, st.lists(TEXT, max_size=3))),
]


def _nest(inner: st.SearchStrategy[tuple[Any, Any]]) -> st.SearchStrategy[tuple[Any, Any]]:
    def wrap(pair: tuple[Any, Any]) -> st.SearchStrategy[tuple[Any, Any]]:
        annotation, values = pair
        options = [
            (list[annotation], st.lists(values, max_size=4)),  # type: ignore[valid-type]
            (dict[str, annotation], st.dictionaries(TEXT, values, max_size=4)),  # type: ignore[valid-type]
        ]
        if type(None) not in getattr(annotation, "__args__", ()):
            options.append((annotation | None, st.none() | values))
        return st.sampled_from(options)

    return inner.flatmap(wrap)


ANNOTATED: st.SearchStrategy[tuple[Any, Any]] = st.recursive(st.sampled_from(SCALARS), _nest, max_leaves=4)


def declare(annotations: dict[str, Any], key: Any = "k", **options: Any) -> TypeInfo:
    """A class with these fields in a registry of its own."""
    body = {"__annotations__": annotations, "__module__": __name__, **options.pop("body", {})}
    name = options.pop("cls_name", "Probe")
    bases = options.pop("bases", ())
    cls: Any = managed(key=key, registry=Registry(), **options)(type(name, bases, body))
    info: TypeInfo = cls.__halog__
    return info


@st.composite
def objects(draw: st.DrawFn) -> tuple[TypeInfo, Any]:
    """A class of one to five fields besides its key, and an object of it."""
    fields = draw(st.lists(ANNOTATED, min_size=1, max_size=5))
    info = declare({"k": int, **{f"f{i}": a for i, (a, _) in enumerate(fields)}})
    return info, info.cls(draw(LONG), *[draw(values) for _, values in fields])
