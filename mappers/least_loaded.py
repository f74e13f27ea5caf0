"""Least loaded: each new object goes to the partition that has the fewest objects (P6).

Never looks at the object but to tell apart partitions that are alike. The theory: unlike round robin it makes up for
what was deleted, and fills partitions that were added. Its figures are some time old, so it counts what its own process
has placed since; several processes do not see each other meanwhile, and even out over the next ones.
"""

from __future__ import annotations

from mappers.at_create import NewObject, PartitionState, States
from mappers.stable_hash import stable_hash


def least_loaded(made: NewObject, partitions: tuple[str, ...], states: States) -> str:
    """The partition with the fewest objects; those that nobody is active for, or has counted, are the last choice. Of
    several that are alike, the key decides."""

    def rank(name: str) -> tuple[bool, bool, int, int]:
        now = states.get(name, PartitionState(name))
        count = (now.objects or 0) + now.placed
        return now.node is None, now.objects is None, count, stable_hash(f"{name} {made.key!r}".encode())

    return min(partitions, key=rank)
