"""This module reads the mapper that a policy names (P6): a built-in one, or a callable of the application.
"module:name" is a function of the key; "at_create:module:name" is called once, with the new object.

It imports nothing: a custom mapper's module must be one of `[application] modules`, the only names ever imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from halog.config.model import Config, PolicyConfig

CONSISTENT_HASH: Final = "consistent_hash"
ROUND_ROBIN: Final = "round_robin"
LEAST_LOADED: Final = "least_loaded"
AT_CREATE: Final = "at_create:"
"""This stands before a callable that is called at create."""
MIN_SLOTS_PER_PARTITION: Final = 10
"""`mappers.consistent_hash` refuses fewer: shares would differ by more than 10 %."""
MAX_RING_SIZE: Final = 1 << 24

BUILT_IN: Final = (CONSISTENT_HASH, ROUND_ROBIN, LEAST_LOADED)


def is_listed(mapper: str) -> bool:
    """Have its objects entries in a key directory, since the mapper is no function of the key?"""
    return mapper == ROUND_ROBIN or is_at_create(mapper)


def is_at_create(mapper: str) -> bool:
    """Does the mapper decide at create, with the new object?"""
    return mapper == LEAST_LOADED or mapper.startswith(AT_CREATE)


def is_custom(mapper: str) -> bool:
    """Does it name a callable of the application that is a function of the key?"""
    return ":" in mapper and not is_listed(mapper)


def callable_of(mapper: str) -> str:
    """Return the application's callable that it names, as "module:name"; "" for a built-in one."""
    return mapper.removeprefix(AT_CREATE) if ":" in mapper else ""


def mapper_problems(config: Config, key: str, policy: PolicyConfig) -> Iterator[tuple[str, str]]:
    """Yield (key, reason) of everything that is wrong with a policy's mapper and ring."""
    if ":" in policy.mapper:
        yield from _custom(config, f"{key}.mapper", policy.mapper)
    elif policy.mapper not in BUILT_IN:
        wanted = f'{", ".join(BUILT_IN)}, "<module>:<callable>", "{AT_CREATE}<module>:<callable>"'
        yield f"{key}.mapper", f"{policy.mapper!r} must be one of {wanted}"
    if is_custom(policy.mapper):
        return
    if policy.ring_size < policy.partitions * MIN_SLOTS_PER_PARTITION or policy.ring_size > MAX_RING_SIZE:
        need = policy.partitions * MIN_SLOTS_PER_PARTITION
        yield (
            f"{key}.ring_size",
            f"must be {MIN_SLOTS_PER_PARTITION} x partitions ({need}) to {MAX_RING_SIZE}, for even shares, "
            f"is {policy.ring_size}",
        )


def _custom(config: Config, key: str, mapper: str) -> Iterator[tuple[str, str]]:
    module, _, name = callable_of(mapper).partition(":")
    if not name or not all(part.isidentifier() for part in name.split(".")):
        before = AT_CREATE if is_at_create(mapper) else ""
        yield key, f'{mapper!r} must be "{before}<module>:<callable>"'
    elif module not in config.application.modules:
        have = ", ".join(config.application.modules) or "none"
        yield key, f"module {module!r} is not in [application] modules ({have}); nothing else is ever imported"
