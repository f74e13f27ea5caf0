"""This module is the decorated form: a function runs in a transaction, and again when that conflicts.

It retries only ConflictError, a bounded number of times, with a growing, jittered pause. A conflict with a commit in
flight hands that commit's position to the next attempt, whose reads wait for it instead of conflicting again.
"""

from __future__ import annotations

import functools
import inspect
import random
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast, overload

from halog.core.durability import Durability
from halog.errors import ConflictError, DeclarationError, LockedError, NodeError
from halog.transactions.kind import USUAL, Read, TransactionKind
from halog.transactions.token import Token

if TYPE_CHECKING:
    from halog.transactions.node import Node

P = ParamSpec("P")
R = TypeVar("R")

RETRIES: Final = 20
"""Runs after the first. Twenty writers of one object get through; if more are needed, one object is too hot and the
design should change."""
FIRST_PAUSE_S: Final = 0.001
"""About one commit."""
LONGEST_PAUSE_S: Final = 0.1
"""Twenty of these are still within a caller's patience."""

HELD_S: Final = 5.0
"""Longer than the objects of a dead initiator are held (`timing.doubt_timeout_ms`), and than freeing them takes."""


def run(node: Node, func: Callable[[], R], retries: int, kind: TransactionKind = USUAL) -> R:
    """Call `func` in a transaction of `node`, again after a conflict; raises the last ConflictError."""
    settled: dict[str, int] = {}
    attempts = RetryCounter(retries)
    while True:
        try:
            with node.begin(settled, kind):
                return func()
        except ConflictError as error:
            seconds = attempts.failed(error)
            remember(settled, error)
        time.sleep(seconds)


class RetryCounter:
    """A `RetryCounter` counts how often a transaction is run again. A run that met a lock does not count for the first
    `HELD_S`: the lock may be a dead initiator's."""

    def __init__(self, retries: int) -> None:
        self._retries = retries
        self._made = self._counted = 0
        self._held_until = 0.0

    def failed(self, error: ConflictError) -> float:
        """Return the seconds before the next run; raise `error` if there is none."""
        self._made += 1
        if isinstance(error, LockedError) and self._retries:
            now = time.monotonic()
            self._held_until = self._held_until or now + HELD_S
            if now < self._held_until:
                return pause(self._made)
        if self._counted >= self._retries:
            error.evidence["attempts"] = self._made
            raise error
        self._counted += 1
        return pause(self._made - 1)


def pause(attempt: int) -> float:
    """Return the seconds before the next attempt: exponential, capped, and jittered so that rivals part."""
    longest: float = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0**attempt)
    return longest * random.uniform(0.1, 1.0)  # not a secret


def remember(settled: dict[str, int], error: ConflictError) -> None:
    """Note the position that the next attempt's reads wait for."""
    partition, lsn = error.evidence.get("partition"), error.evidence.get("settled_lsn")
    if isinstance(partition, str) and isinstance(lsn, int):
        settled[partition] = max(lsn, settled.get(partition, 0))


def decorate(
    node_of: Callable[[], Node], retries: int, kind: TransactionKind = USUAL
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return the decorator; it calls `node_of` at each call."""
    if type(retries) is not int or retries < 0:
        raise DeclarationError(f"retries must be an int of at least 0, not {retries!r}")

    def wrap(func: Callable[P, R]) -> Callable[P, R]:
        if inspect.iscoroutinefunction(func) or inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
            raise DeclarationError(f"{func.__qualname__}: only plain functions can be run again; see halog.aio")

        @functools.wraps(func)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return run(node_of(), lambda: func(*args, **kwargs), retries, kind)

        return call

    return wrap


OPEN_NODES: list[Node] = []
"""Nodes open in this process, oldest first."""


def only_node() -> Node:
    """Return the process's node; NodeError if there is none or more than one."""
    if len(OPEN_NODES) == 1:
        return OPEN_NODES[0]
    if not OPEN_NODES:
        raise NodeError("no node is open in this process; open one with halog.node(...)")
    raise NodeError(f"{len(OPEN_NODES)} nodes are open in this process; use node.transactional")


@overload
def transaction(func: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def transaction(
    *,
    retries: int = RETRIES,
    read: Read = "active",
    after: Token | Iterable[Token] = (),
    durability: Durability | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def transaction(
    func: Callable[..., Any] | None = None,
    /,
    *,
    retries: int = RETRIES,
    read: Read = "active",
    after: Token | Iterable[Token] = (),
    durability: Durability | None = None,
) -> Any:
    """Decorate a function: each call runs it in a transaction of the process's node, and again after a ConflictError,
    at most `retries` times (D1). Write `@halog.transaction` or `@halog.transaction(retries=5)`. `read`, `after` and
    `durability` are as in `Node.transaction` (R5, R6). NodeError unless exactly one node is open in this process."""
    kind = TransactionKind.of(read, after, durability)
    made = cast("Callable[[Callable[..., Any]], Callable[..., Any]]", decorate(only_node, retries, kind))
    return made if func is None else made(func)
