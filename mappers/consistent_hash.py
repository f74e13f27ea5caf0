"""This module hashes consistently over a ring buffer of slots.

A key hashes to a slot; a table says which partition owns the slot. Nodes play no part: partitions move between nodes,
but keys do not move between partitions unless the number of partitions changes. The table for n + 1 partitions is the
table for n, where every owner gave just enough of its slots to the new one. So by construction the shares differ by at
most one slot, growing moves only what the new partition gets, and shrinking undoes it exactly. The table is a function
of (partitions, ring size): the same on every node, in every job, without anything being stored.

The ring must be far larger than the number of partitions, or one slot more or less is a visible difference in load. A
changed ring size maps nearly all keys anew, so it is chosen once.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from typing import Final

from mappers.stable_hash import stable_hash

DEFAULT_RING_SIZE: Final = 65_536
"""Up to 655 partitions differ by less than 1 % of their share; the table takes 128 kB and some milliseconds."""
MIN_SLOTS_PER_PARTITION: Final = 10
"""With fewer than ten slots each, shares differ by more than 10 %, and this is refused."""
MAX_PARTITIONS: Final = 4_096
"""Far more than one topic should have; building the table takes time with the square (1,000: 0.15 s)."""
MAX_RING_SIZE: Final = 1 << 24
"""Sixteen million slots take 32 MB; a larger number is a typing error."""


class ConsistentHash:
    """A `ConsistentHash` gives the same partition for the same routing key, everywhere and always, while `partitions`
    and `ring_size` stay."""

    __slots__ = ("_table", "partitions", "ring_size")

    by_key: Final = True

    def __init__(self, partitions: int, ring_size: int = DEFAULT_RING_SIZE) -> None:
        check_ring(partitions, ring_size)
        self.partitions = partitions
        self.ring_size = ring_size
        self._table = _table(partitions, ring_size)

    def partition(self, routing_key: bytes) -> int:
        """Return the partition that owns the key's slot."""
        return self._table[stable_hash(routing_key) % self.ring_size]

    def slot(self, routing_key: bytes) -> int:
        """Return where on the ring a key is."""
        return stable_hash(routing_key) % self.ring_size

    def slots(self) -> tuple[int, ...]:
        """Return the ring: the owner of every slot."""
        return tuple(self._table)

    def __repr__(self) -> str:
        return f"ConsistentHash(partitions={self.partitions}, ring_size={self.ring_size})"


def check_ring(partitions: int, ring_size: int) -> None:
    """Refuse numbers that make no balanced ring; ValueError says why."""
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise ValueError(f"partitions must be 1 to {MAX_PARTITIONS}, got {partitions}")
    if ring_size < partitions * MIN_SLOTS_PER_PARTITION:
        need = partitions * MIN_SLOTS_PER_PARTITION
        raise ValueError(
            f"ring_size {ring_size} is too small for {partitions} partitions; at least {need} keep the "
            "partitions' shares within 10 % of each other"
        )
    if ring_size > MAX_RING_SIZE:
        raise ValueError(f"ring_size must be at most {MAX_RING_SIZE}, got {ring_size}")


@lru_cache(maxsize=64)
def _table(partitions: int, ring_size: int) -> array[int]:
    """Return the owner of every slot. Callers share the table and must not change it."""
    owned = [list(range(ring_size))]
    for count in range(2, partitions + 1):
        given: list[int] = []
        for owner, slots in enumerate(owned):
            keep = share(owner, count, ring_size)
            given += slots[keep:]
            del slots[keep:]
        owned.append(given)
    table = array("H", bytes(2 * ring_size))
    for owner, slots in enumerate(owned):
        for slot in slots:
            table[slot] = owner
    return table


def share(owner: int, partitions: int, ring_size: int) -> int:
    """Return how many slots a partition owns: the ring divided evenly, the remainder going to the first ones."""
    return (ring_size - owner - 1) // partitions + 1
