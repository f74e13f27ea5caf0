"""What clients saw: operations on one key and transactions on several, each with what its caller was told.

Times are CLOCK_MONOTONIC, one clock for all processes of a machine. An outcome is three-valued: OK (happened, and its
result counts), FAILED (nobody may ever see it), UNKNOWN (it may take effect at any moment after its invocation, or
never). Plain data; the checkers beside this module judge it.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import NamedTuple

FOREVER = math.inf
"""When an operation nobody knows the outcome of returned."""


class Outcome(Enum):
    """What a caller was told."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Operation(NamedTuple):
    """One operation on one key: `read` → value, `write` value, `swap` value → the value before, `add` n → the sum."""

    process: str
    key: str
    kind: str
    argument: int
    result: int | None
    invoked: float
    returned: float
    outcome: Outcome


class Append(NamedTuple):
    """Adds a value nobody else ever adds to the list under a key."""

    key: str
    value: int


class ReadList(NamedTuple):
    """What the list under a key was."""

    key: str
    values: tuple[int, ...]


class Transaction(NamedTuple):
    """Appends and reads in the order they were made. `strict`: it takes its place in real time; a transaction that only
    read, at a node that may not know it was replaced, promises to be somewhere in the order, not where (protocol R5).
    """

    process: str
    steps: tuple[Append | ReadList, ...]
    invoked: float
    returned: float
    outcome: Outcome
    strict: bool = True
