"""The application of these tests: every type a field may have, a family, and references across partitions."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import uuid
from decimal import Decimal
from typing import Annotated, Any

import mappers
from halog.schema import Decimals, Ref, managed


class Kind(enum.Enum):
    JET = "jet"
    PROP = "prop"


@dataclasses.dataclass
class Point:
    x: float
    label: str | None = None


@managed(key="tail")
class Plane:
    tail: str
    miles: int = 0
    kind: Kind = Kind.JET
    price: Annotated[Decimal, Decimals(12, 2)] = Decimal("0.00")
    photo: bytes = b""
    load: float = 0.0
    ready: bool = True
    built: dt.date = dt.date(1970, 1, 1)
    wakes: dt.time = dt.time(0, 0)
    seen: dt.datetime | None = None
    serial: uuid.UUID = uuid.UUID(int=0)
    base: Point | None = None
    notes: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    stops: list[Point] = dataclasses.field(default_factory=list)
    times: list[dt.time] = dataclasses.field(default_factory=list)


@managed()
class Floatplane(Plane):
    floats: int = 2


@managed(key=("tail", "number"), partition_by="tail")
class Leg:
    tail: str
    number: int
    by: Ref[Plane] | None = None
    miles: int = 0


@mappers.versioned(2)
def by_number(type_name: str, key: tuple[Any, ...]) -> str:
    """Another place for most keys: by the digits of the tail."""
    return f"p-{sum(map(ord, key[0])) % 3}"


def nowhere(type_name: str, key: tuple[Any, ...]) -> str:
    """No partition of any policy."""
    return "q"
