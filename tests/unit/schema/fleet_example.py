"""A module of managed classes whose type ids are fixed: they stand in logs, so they may never change."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from decimal import Decimal
from typing import Annotated

from halog.schema import Decimals, Ref, Registry, managed

FLEET = Registry()


class Status(enum.Enum):
    LANDED = 1
    CANCELLED = 2


@dataclasses.dataclass
class Leg:
    origin: str
    miles: int = 0


@managed(key="tail", registry=FLEET)
class Aircraft:
    tail: str
    landings: int = 0
    miles: float = 0.0

    def land(self, miles: int) -> None:
        self.landings += 1
        self.miles += miles


@managed(key=("time_hour", "carrier", "flight", "tail"), partition_by="tail", version=3, registry=FLEET)
class Flight:
    time_hour: dt.datetime
    carrier: str
    flight: int
    tail: str
    status: Status = Status.LANDED
    price: Annotated[Decimal, Decimals(12, 2)] = Decimal("1.50")
    legs: list[Leg] = dataclasses.field(default_factory=list)
    notes: dict[str, str] = dataclasses.field(default_factory=dict)
    aircraft: Ref[Aircraft] | None = None
    raw: bytes = b"\x00\xff"


@managed(registry=FLEET)
class Jet(Aircraft):
    engines: int = 2
