"""This module checks what a policy tunes for itself (P4): how its objects and copies move, and the times it has of its
own.

Such a time is one of `[timing]` that says how long a partition, or a policy's plan, waits; the other times belong to a
node as a whole. Pure. It never fills in a value: an absent value is resolved where it is needed (`Config.timing_of`),
so that a file is written back as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from halog.config.model import PolicyConfig

MAX_MOVE_OBJECTS: Final = 10_000
MAX_MOVE_PAUSE_MS: Final = 100
"""A Spark job asks a node to move 500 objects and waits for a minute: enough for one object a transaction with such
pauses."""
MAX_THREADS: Final = 32
"""Most threads for each partition that moves objects, and for each policy that has copies made; more is a mistake."""

LONGEST: Final = {
    **dict.fromkeys(
        ("session_timeout_ms", "append_deadline_ms", "call_deadline_ms", "attempt_timeout_ms", "doubt_timeout_ms"),
        (2**31 - 1, "24 days"),  # what the clients of Kafka and ZooKeeper take
    ),
    **dict.fromkeys(
        ("keep_alive_ms", "non_response_timeout_ms", "store_flush_ms", "close_deadline_ms"),
        (2**41, "69 years"),  # what the system waits for
    ),
}
"""The most that these times may be, in ms and in words. Other times are only compared, so they may be as long as one
likes: a year means that a role never returns, or a node is never replaced."""

TURNOVER: Final = ("join_settle_ms", "replace_after_ms")
"""Times of plans that nodes make when others come or go."""
TIMES: Final = ("call_deadline_ms", "append_deadline_ms", "doubt_timeout_ms", "min_stay_ms", *TURNOVER)
"""Keys of `[timing]` that a policy may have, too."""

Problems = Iterator[tuple[str, str]]


def own_times(policy: PolicyConfig) -> dict[str, int]:
    """Return the times that a policy has of its own."""
    return {name: value for name in TIMES if (value := getattr(policy, name)) is not None}


def too_long(name: str, value: int) -> str:
    """Say why a time of this name cannot be this long; "": it can."""
    most, words = LONGEST.get(name, (value, ""))
    return f"must be at most {most} ({words}), is {value}" if value > most else ""


def tuning_problems(key: str, policy: PolicyConfig) -> Problems:
    """Yield (key, reason) of everything that is wrong with a policy's tuning."""
    if not 1 <= policy.move_objects <= MAX_MOVE_OBJECTS:
        yield f"{key}.move_objects", f"must be 1 to {MAX_MOVE_OBJECTS}: they are held until they have moved"
    if policy.move_pause_ms is not None and not 0 <= policy.move_pause_ms <= MAX_MOVE_PAUSE_MS:
        yield f"{key}.move_pause_ms", f"must be 0 (no pause) to {MAX_MOVE_PAUSE_MS}"
    for name in ("move_threads", "copy_threads"):
        if not 1 <= getattr(policy, name) <= MAX_THREADS:
            yield f"{key}.{name}", f"must be 1 to {MAX_THREADS}, is {getattr(policy, name)}"
    if policy.copy_bytes_per_s < 0:
        yield f"{key}.copy_bytes_per_s", f"must be 0 (no limit) or more, is {policy.copy_bytes_per_s}"
    for name, value in own_times(policy).items():
        if value < 1:
            yield f"{key}.{name}", f"must be at least 1, is {value}"
        elif why := too_long(name, value):
            yield f"{key}.{name}", why
        elif policy.static and name in TURNOVER:
            yield f"{key}.{name}", "excludes partitions named by hand: nodes that come or go move none of them"
