"""A mapper says which partition an object goes to (P6). Mappers are pure, and shipped to Spark executors.

No mapper uses built-in `hash` (it differs from process to process), chance or a clock: every node and every job must
map alike. A mapper sees only the routing key, the bytes of the `partition_by` values, so objects partitioned by the
same values share a partition whatever their type. A custom mapper is told the topmost base's name, too. Where objects
have entries in a key directory (`round_robin`, and mappers asked at create), a mapper says only where a new object
goes.
"""

from __future__ import annotations

from mappers.at_create import AtCreateMapper, NewObject, PartitionState, States
from mappers.base import Mapper
from mappers.consistent_hash import ConsistentHash
from mappers.custom import CustomMapper, MisplacedError, earlier_of, version_of, versioned
from mappers.least_loaded import least_loaded
from mappers.round_robin import RoundRobin
from mappers.stable_hash import stable_hash, stable_hashes

__all__ = [
    "AtCreateMapper",
    "ConsistentHash",
    "CustomMapper",
    "Mapper",
    "MisplacedError",
    "NewObject",
    "PartitionState",
    "RoundRobin",
    "States",
    "earlier_of",
    "least_loaded",
    "stable_hash",
    "stable_hashes",
    "version_of",
    "versioned",
]
