"""The mapper a policy names (P6): a built-in one, or a callable of the application's, as "module:name".

Imports nothing: a custom mapper's module must be one of `[application] modules`, the only names ever imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from halog.config.model import Config, PolicyConfig

CONSISTENT_HASH: Final = "consistent_hash"
ROUND_ROBIN: Final = "round_robin"
MIN_SLOTS_PER_PARTITION: Final = 10
"""As `mappers.consistent_hash` refuses it: below, shares differ by more than 10 %."""
MAX_RING_SIZE: Final = 1 << 24

LISTED: Final = frozenset({ROUND_ROBIN})
"""Mappers that are no function of the key: where their objects are stands in a key directory."""


def is_listed(mapper: str) -> bool:
    """Do its objects have entries in a key directory?"""
    return mapper in LISTED


def is_custom(mapper: str) -> bool:
    """Does it name a callable of the application?"""
    return ":" in mapper


def mapper_problems(config: Config, key: str, policy: PolicyConfig) -> Iterator[tuple[str, str]]:
    """(key, reason) of whatever is wrong with a policy's mapper and ring."""
    if is_custom(policy.mapper):
        yield from _custom(config, f"{key}.mapper", policy.mapper)
        return
    if policy.mapper not in (CONSISTENT_HASH, ROUND_ROBIN):
        wanted = f'{CONSISTENT_HASH}, {ROUND_ROBIN}, "<module>:<callable>"'
        yield f"{key}.mapper", f"{policy.mapper!r} must be one of {wanted}"
    if policy.ring_size < policy.partitions * MIN_SLOTS_PER_PARTITION or policy.ring_size > MAX_RING_SIZE:
        need = policy.partitions * MIN_SLOTS_PER_PARTITION
        yield (
            f"{key}.ring_size",
            f"must be {MIN_SLOTS_PER_PARTITION} x partitions ({need}) to {MAX_RING_SIZE}, for even shares, "
            f"is {policy.ring_size}",
        )


def _custom(config: Config, key: str, mapper: str) -> Iterator[tuple[str, str]]:
    module, _, name = mapper.partition(":")
    if not name or not all(part.isidentifier() for part in name.split(".")):
        yield key, f'{mapper!r} must be "<module>:<callable>"'
    elif module not in config.application.modules:
        have = ", ".join(config.application.modules) or "none"
        yield key, f"module {module!r} is not in [application] modules ({have}); nothing else is ever imported"
