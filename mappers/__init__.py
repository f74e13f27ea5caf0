"""Mappers: which partition an object goes to (P6). Pure, and shipped to Spark executors.

Never uses built-in `hash` (it differs from process to process), chance or a clock: every node and every job must map
alike. The theory: a mapper sees only the routing key, the bytes of the `partition_by` values, so objects partitioned
by the same values share a partition whatever their type; a custom mapper is told the topmost base's name, too.
"""

from __future__ import annotations

from mappers.base import Mapper
from mappers.consistent_hash import ConsistentHash
from mappers.custom import CustomMapper, MisplacedError, earlier_of, version_of, versioned
from mappers.round_robin import RoundRobin
from mappers.stable_hash import stable_hash

__all__ = [
    "ConsistentHash",
    "CustomMapper",
    "Mapper",
    "MisplacedError",
    "RoundRobin",
    "earlier_of",
    "stable_hash",
    "version_of",
    "versioned",
]
