"""Hypothesis strategies: annotations, and any value whatever, also such as look like one that fits."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import uuid
from decimal import Decimal
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from halog.schema import Decimals, Ref
from tests.unit.schema.shapes_strategy import Colour, Point, Slotted, Target


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Word(enum.StrEnum):
    A = "a"
    B = "b"


class Text(str):
    __slots__ = ()


class Loose(str):
    """Equal to whatever is written with the same letters."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.lower() == other.lower()

    def __hash__(self) -> int:
        return hash(self.lower())


class Whole(int):
    pass


class Real(float):
    pass


class Money(Decimal):
    pass


class Raw(bytes):
    pass


class Day(dt.date):
    pass


class Moment(dt.datetime):
    pass


class Hour(dt.time):
    pass


class Id(uuid.UUID):
    pass


class Row(list[Any]):
    pass


class Table(dict[str, Any]):
    pass


@dataclasses.dataclass
class Deep(Point):
    """A subclass of what is declared."""


class Wild(dt.tzinfo):
    """A zone that says nothing."""


class Erring(dt.tzinfo):
    """A zone that says what cannot be."""

    def utcoffset(self, when: dt.datetime | None, /) -> dt.timedelta:
        return dt.timedelta(days=2)


class Raising(dt.tzinfo):
    """A zone that fails, in a way of its own."""

    def utcoffset(self, when: dt.datetime | None, /) -> dt.timedelta:
        raise RuntimeError("its table was not found")


ZONES = st.sampled_from(
    [
        dt.UTC,
        ZoneInfo("UTC"),
        ZoneInfo("Europe/Berlin"),
        ZoneInfo("America/New_York"),
        ZoneInfo("Asia/Tokyo"),
        ZoneInfo("Asia/Shanghai"),
        ZoneInfo("Pacific/Apia"),
        ZoneInfo("Australia/Lord_Howe"),
        dt.timezone(dt.timedelta(hours=23, minutes=59, seconds=59, microseconds=999_999)),
        dt.timezone(dt.timedelta(hours=-23, minutes=-59, seconds=-59, microseconds=-999_999)),
        Wild(),  # type: ignore[abstract]
        Erring(),  # type: ignore[abstract]
        Raising(),  # type: ignore[abstract]
    ]
)
AUTUMN = dt.datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
"""There are two of them: summer time ends."""
MOMENTS = st.one_of(
    st.datetimes(timezones=st.none() | ZONES),
    st.sampled_from([dt.datetime.min, dt.datetime.max, AUTUMN]).flatmap(  # noqa: DTZ901 - gets its zone here
        lambda at: st.builds(lambda zone, fold: at.replace(tzinfo=zone, fold=fold), ZONES, st.integers(0, 1))
    ),
)
DECIMALS = st.one_of(
    st.decimals(),
    st.builds(
        lambda s, n, e: Decimal((s, tuple(map(int, str(n))), e)),
        st.integers(0, 1),
        st.integers(0, 10**12) | st.just(0),
        st.integers(-45, 45),
    ),
    st.builds(lambda n, e: Decimal(n).scaleb(e), st.integers(-200, 200), st.integers(-12, 40)),
)
INTS = st.integers() | st.sampled_from([2**63, 2**63 - 1, -(2**63), -(2**63) - 1, 2**53 + 1])
TEXTS = st.text(st.characters(), max_size=20)
U64 = st.integers(0, 2**64 - 1)

PLAIN: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    INTS,
    st.floats(),
    st.sampled_from([-0.0, 0.0, 1.0, 5e-324]),
    TEXTS,
    st.binary(max_size=9),
    DECIMALS,
    MOMENTS,
    st.dates(),
    st.times(timezones=st.none() | st.just(dt.UTC)),
    st.uuids(),
    st.sampled_from(Colour),
    st.sampled_from([*Level, *Word]),
    st.builds(Ref, U64 | st.booleans(), U64, U64, st.just("Target"), st.binary(max_size=4)),
    st.builds(Text, TEXTS),
    st.builds(Loose, TEXTS),
    st.builds(Whole, st.integers(0, 9)),
    st.builds(Real, st.floats()),
    st.builds(Money, st.integers(0, 9)),
    st.builds(Raw, st.binary(max_size=3)),
    st.just(Day(2024, 1, 1)),
    st.just(Moment(2024, 1, 1, tzinfo=dt.UTC)),
    st.just(Hour(1)),
    st.builds(Id, st.just("12345678" * 4)),
    st.just(bytearray(b"x")),
    st.just(complex(1)),
)
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(TEXTS | st.sampled_from([*Word]), inner, max_size=3),
        st.lists(inner, max_size=2).map(tuple),
        st.lists(inner, max_size=2).map(Row),
        st.dictionaries(TEXTS, inner, max_size=2).map(Table),
        st.builds(Point, inner, inner),
        st.builds(Deep, inner, inner),
        st.builds(Slotted, inner, inner),
    ),
    max_leaves=5,
)

LIKELY: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (bool, st.booleans() | st.integers(0, 1)),
    (int, INTS | st.booleans() | st.sampled_from(Level) | st.builds(Whole, st.integers())),
    (float, st.floats() | st.integers() | st.booleans() | st.builds(Real, st.floats())),
    (str, TEXTS | st.builds(Text, TEXTS) | st.sampled_from(Word)),
    (bytes, st.binary(max_size=20)),
    (Decimal, DECIMALS),
    (Annotated[Decimal, Decimals(10, 2)], DECIMALS),
    (Annotated[Decimal, Decimals(38, 38)], DECIMALS),
    (Annotated[Decimal, Decimals(5, 0)], DECIMALS),
    (dt.datetime, MOMENTS),
    (dt.date, st.dates() | MOMENTS),
    (dt.time, st.times(timezones=st.none() | st.just(dt.UTC))),
    (uuid.UUID, st.uuids()),
    (Colour, st.sampled_from(Colour)),
    (Level, st.sampled_from(Level) | st.integers(1, 2)),
    (Word, st.sampled_from(Word) | st.sampled_from(["A", "a"])),
    (Ref[Target], st.builds(Ref, U64 | st.booleans(), U64, U64, st.just("Target"), st.binary(max_size=9))),
    (Point, st.builds(Point, st.floats() | st.integers(), st.none() | TEXTS)),
    (Slotted, st.builds(Slotted, INTS, st.lists(TEXTS, max_size=2))),
]
"""Annotations, each with values of which most fit."""


def _nest(inner: st.SearchStrategy[tuple[Any, Any]]) -> st.SearchStrategy[tuple[Any, Any]]:
    def wrap(pair: tuple[Any, Any]) -> st.SearchStrategy[tuple[Any, Any]]:
        annotation, values = pair
        options = [
            (list[annotation], st.lists(values, max_size=3) | st.lists(values, max_size=3).map(Row)),  # type: ignore[valid-type]
            (dict[str, annotation], st.dictionaries(TEXTS, values, max_size=3)),  # type: ignore[valid-type]
        ]
        if type(None) not in getattr(annotation, "__args__", ()):
            options.append((annotation | None, st.none() | values))
        return st.sampled_from(options)

    return inner.flatmap(wrap)


CASES: st.SearchStrategy[tuple[Any, Any]] = st.recursive(st.sampled_from(LIKELY), _nest, max_leaves=3).flatmap(
    lambda pair: st.tuples(st.just(pair[0]), pair[1] | ANYTHING)
)
"""An annotation and a value that was given for it."""

MAY_BE_KEYS = (bool, int, str, bytes, Decimal, dt.datetime, dt.date, uuid.UUID, Colour, Level, Word)
KEYS: list[tuple[Any, st.SearchStrategy[Any]]] = [pair for pair in LIKELY if pair[0] in MAY_BE_KEYS]


def same(given: Any, back: Any) -> bool:
    """Is it the same, type and `repr`, all through? Of an aware datetime the instant."""
    if type(given) is not type(back):
        return False
    match given:
        case list():
            return len(given) == len(back) and all(map(same, given, back))
        case dict():
            return [*given] == [*back] and all(same(v, back[k]) for k, v in given.items())
        case dt.datetime():
            return bool(given.astimezone(dt.UTC).replace(fold=0) == back.astimezone(dt.UTC))
        case _ if dataclasses.is_dataclass(given) and not isinstance(given, Ref):
            return all(same(getattr(given, f.name), getattr(back, f.name)) for f in dataclasses.fields(given))
        case _:
            return repr(given) == repr(back)
