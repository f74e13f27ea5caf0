"""What the tests of sites keep."""

from __future__ import annotations

import halog
from halog.schema.registry import Registry

registry = Registry()


@halog.managed(key="number", registry=registry)
class Flight:
    number: int
    note: str = ""

    def renamed(self, note: str) -> str:
        was = self.note
        self.note = note
        return was
