"""This module has the protocol that every mapper keeps (P6); a custom mapper is any code that keeps it.

A mapper never sees an object. Code that looks at an object is asked once, when it is created (`mappers.at_create`).
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Mapper(Protocol):
    """A `Mapper` maps an object to one of `partitions` partitions, numbered from 0. It is called at create and at
    rebalance.

    `by_key`: True if the same routing key always gives the same partition, so that a look-up may ask the mapper; False
    if a look-up must ask a key directory (the mapper only places new objects).
    """

    @property
    def partitions(self) -> int:
        """Return how many partitions there are."""

    @property
    def by_key(self) -> bool:
        """Say whether the routing key alone decides."""

    def partition(self, routing_key: bytes) -> int:
        """Return the partition for a routing key: 0 <= result < partitions."""
