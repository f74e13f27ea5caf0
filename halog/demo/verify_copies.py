"""This module asks the second question: is every copy equal to every other, object by object?

Each copy is read from its own node's store, not through the active node. Equal means reference, version, key and value;
a copy that lacks an object, or has one too many, differs. A hash that a node computed about itself is not trusted. To
see whether each object is where it belongs, the mapper is asked again, here, for every key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from halog.backend import CommittedObject
from halog.config import Config
from halog.demo.result import CopyCheck
from halog.errors import HalogError
from halog.runtime.rpc import frames
from halog.schema.registry import DEFAULT, Registry
from mappers import ConsistentHash

PAGE = 1_000
"""Objects per frame: about 200 kB."""
READ_S = 20.0
"""Seconds for one page of a busy node."""

ReadCopy = Callable[[str, str], Iterable[CommittedObject]]
"""(node, partition) → its objects."""
Belongs = Callable[[bytes], str]
"""Index key → the partition it belongs to."""
Ask = Callable[[str, frames.Request, float], frames.Reply]


def read_store(ask: Ask, node: str, partition: str, page: int = PAGE) -> Iterator[CommittedObject]:
    """Yield everything in one node's own copy of a partition."""
    after = b""
    while True:
        reply = ask(node, frames.Scan(partition, b"", after, page, True), READ_S)
        if not isinstance(reply, frames.Objects):
            raise HalogError(f"node {node} answered a scan of {partition} with {type(reply).__name__}")
        for found in reply.items:
            if found is not None:
                after = found.key
                yield found
        if reply.end:
            return


def placed_by(config: Config, policy: str, registry: Registry = DEFAULT) -> Belongs:
    """Return what the mapper of this configuration says. The returned function raises HalogError for a key of no known
    type."""
    settings = config.policies[policy]
    ring = ConsistentHash(settings.partitions, settings.ring_size)

    def belongs(key: bytes) -> str:
        info = next((i for i in registry.by_name.values() if key.startswith(i.family_id)), None)
        if info is None:
            raise HalogError(f"object {key.hex()} is of no type of this application")
        return f"{policy}-{ring.partition(info.routing_key(info.decode_index_key(key)))}"

    return belongs


def compare(placed: Mapping[str, Sequence[str]], read: ReadCopy, belongs: Belongs | None = None) -> CopyCheck:
    """Compare the copies of each partition (name → nodes that must hold one), and its objects with where each of them
    `belongs`."""
    objects = mismatches = misplaced = 0
    for partition, nodes in placed.items():
        seen, differing = _gathered([read(node, partition) for node in nodes])
        objects += len(seen)
        mismatches += len(differing)
        misplaced += belongs is not None and sum(belongs(key) != partition for key in seen)
    return CopyCheck(len(placed), objects, mismatches, misplaced)


def compare_one(copies: Sequence[Iterable[CommittedObject]]) -> tuple[int, int]:
    """Return (distinct objects, those not the same everywhere). A key that one copy holds twice is a mismatch, too."""
    seen, differing = _gathered(copies)
    return len(seen), len(differing)


def _gathered(copies: Sequence[Iterable[CommittedObject]]) -> tuple[dict[bytes, CommittedObject], set[bytes]]:
    seen: dict[bytes, CommittedObject] = {}
    held: dict[bytes, int] = defaultdict(int)
    differing: set[bytes] = set()
    for copy in copies:
        for found in copy:
            held[found.key] += 1
            if seen.setdefault(found.key, found) != found:
                differing.add(found.key)
    differing.update(key for key, times in held.items() if times != len(copies))
    return seen, differing
