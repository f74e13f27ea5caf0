"""What a mapper owes (P6). A protocol only; custom mappers are any code that keeps it.

Never sees an object: what looks at one is asked once, when it is created (`mappers.at_create`).
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Mapper(Protocol):
    """Maps an object to one of `partitions` partitions, numbered from 0. Called at create and at rebalance.

    `by_key`: True if the same routing key always gives the same partition, so that a look-up may ask the mapper; False
    if a look-up must ask a key directory (the mapper only places new objects).
    """

    @property
    def partitions(self) -> int:
        """How many partitions there are."""

    @property
    def by_key(self) -> bool:
        """Whether the routing key alone decides."""

    def partition(self, routing_key: bytes) -> int:
        """The partition for a routing key: 0 <= result < partitions."""
