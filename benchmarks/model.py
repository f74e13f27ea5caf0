"""The managed objects of the benchmarks: about 200 bytes, one class per policy."""

from __future__ import annotations

from typing import Any

import halog
import mappers


@halog.managed(key="number")
class Item:
    """Its partition has one sync replica."""

    number: int
    count: int = 0
    text: str = ""

    def touch(self) -> int:
        """A change of one field."""
        self.count += 1
        return self.count


@halog.managed(key="number")
class Loose:
    """Its partition has async replicas only."""

    number: int
    count: int = 0
    text: str = ""


@halog.managed(key="number")
class Kept:
    """What is restored: its own partition, so that nothing else is read with it."""

    number: int
    count: int = 0
    text: str = ""


@halog.managed(key="number")
class Spare:
    """What bulk load creates."""

    number: int
    count: int = 0
    text: str = ""


CLASSES: dict[str, type[Item] | type[Loose] | type[Kept] | type[Spare]] = {
    c.__name__: c for c in (Item, Loose, Kept, Spare)
}


@mappers.versioned(1)
def by_last_digit(type_name: str, key: tuple[Any, ...]) -> str:
    """A mapper of an application's, for the partitions of `Kept`."""
    return f"kept-{key[0] % 10 % 4}"
