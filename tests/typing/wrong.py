"""What mypy --strict must find: every line marked `# wrong`, and no other."""

from __future__ import annotations

import halog
from halog.schema import Binding, managed


@managed(key="tail")
class Aircraft:
    tail: str
    landings: int = 0

    def land(self, miles: int) -> int:
        return miles


class NoBinding:
    def call(self, obj: object) -> None: ...


Aircraft()  # wrong
Aircraft(tail=3)  # wrong
Aircraft("N1", landing=1)  # wrong
Aircraft("N1").land("far")  # wrong
Aircraft("N1").land()  # wrong
Aircraft("N1").fly()  # wrong
distance: str = Aircraft("N1").land(3)  # wrong
managed(key=3)  # wrong
managed("tail")  # wrong
halog.Durability(local="FLUSHED")  # wrong
halog.Durability("NO_SYNC")  # wrong
binding: Binding = NoBinding()  # wrong
