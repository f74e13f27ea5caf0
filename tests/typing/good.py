"""What an application writes: mypy --strict must find nothing here."""

from __future__ import annotations

from dataclasses import field
from decimal import Decimal
from typing import Annotated, assert_type

import halog
from halog.schema import Decimals, Ref, Registry, managed


@managed(key="tail")
class Aircraft:
    tail: str
    landings: int = 0
    price: Annotated[Decimal, Decimals(12, 2)] = Decimal(0)
    notes: list[str] = field(default_factory=list)
    mother: Ref[Aircraft] | None = None

    def land(self, miles: int) -> int:
        self.landings += 1
        return miles


@managed(registry=Registry())
class Jet(Aircraft):
    engines: int = 2


plane = Aircraft(tail="N1")
assert_type(plane, Aircraft)
assert_type(plane.land(3), int)
assert_type(plane.mother, Ref[Aircraft] | None)
assert_type(Jet("N2", 1, engines=4).land(1), int)
assert_type(Aircraft, type[Aircraft])
assert_type(halog.Durability(local="NO_SYNC"), halog.Durability)
assert_type(halog.Durability(remote="SYNC", replicas=2).replicas, int)
