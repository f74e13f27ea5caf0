"""Least loaded means that each new object goes to the partition that has the fewest objects (P6).

It looks at the object only to tell apart partitions that are alike. Unlike round robin it makes up for what was
deleted, and fills partitions that were added. Its figures are some time old, so it counts what its own process has
placed since. Several processes do not see each other's creates meanwhile; the next figures even that out.
"""

from __future__ import annotations

from mappers.at_create import NewObject, PartitionState, States
from mappers.stable_hash import stable_hash


def least_loaded(made: NewObject, partitions: tuple[str, ...], states: States) -> str:
    """Return the partition with the fewest objects. Partitions without an active node, or without a count, are the last
    choice. The key decides between equal ones."""

    def rank(name: str) -> tuple[bool, bool, int, int]:
        now = states.get(name, PartitionState(name))
        count = (now.objects or 0) + now.placed
        return now.node is None, now.objects is None, count, stable_hash(f"{name} {made.key!r}".encode())

    return min(partitions, key=rank)
