"""Which nodes were drained: those get no partition that is new, though they have the fewest copies (P2, P12).

drained/<node>    JSON: by, at_ms

Made by `halog drain` before anything moves, and made anew when it is drained again: a plan knows by `at_ms` whether it
was made before. It ends once somebody wishes a copy there, by hand or by a plan, or says
that the drain is undone; not with the node's run: whoever is emptied to be repaired is started in between. Nothing that
the node has, or is to have, depends on it.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from halog.errors import CoordinatorError
from halog.metadata.cas import ATTEMPTS, put
from halog.metadata.identity import who
from halog.ports import Coordinator, UnknownResult

PATH = "drained"


class MarkError(CoordinatorError):
    """A mark does not go away, or perhaps it has: no answer came. What brought the node a copy stands."""


class Mark(msgspec.Struct, frozen=True):
    """What the znode holds. `at_ms`: since 1970, by the clock of who drained it."""

    by: str = ""
    at_ms: int = 0


def drained_nodes(coordinator: Coordinator) -> list[str]:
    """Their names, sorted."""
    return coordinator.children(PATH)


def drained_at(coordinator: Coordinator) -> dict[str, int]:
    """When each of them was drained, by the clock of who did it. CoordinatorError for a mark that is none."""
    found = {node: coordinator.get(f"{PATH}/{node}") for node in drained_nodes(coordinator)}
    try:
        return {n: msgspec.json.decode(f.data, type=Mark).at_ms for n, f in found.items() if f is not None}
    except msgspec.MsgspecError as e:
        raise CoordinatorError(f"a znode in {PATH} holds no mark of a drained node: {e}") from e


def mark(coordinator: Coordinator, node: str, at_ms: int) -> None:
    """It is one from now on. Repeating it is harmless."""
    said = msgspec.json.encode(Mark(who(), at_ms))
    if not put(coordinator, f"{PATH}/{node}", lambda before: said if before != said else None):
        raise CoordinatorError(f"znode {PATH}/{node} cannot be made, and nothing has moved: try again", node=node)


def unmark(coordinator: Coordinator, nodes: Collection[str]) -> list[str]:
    """None of these is one any more; those that were. Nothing is written for the others."""
    found = [n for n in drained_nodes(coordinator) if n in nodes] if nodes else []
    for node in found:
        _delete(coordinator, node)
    return found


def unmark_behind(coordinator: Coordinator, partition: str, nodes: Collection[str]) -> None:
    """The same of nodes that get a copy of `partition` by what was set just now. MarkError says that this stands."""
    try:
        unmark(coordinator, nodes)
    except CoordinatorError as e:
        raise MarkError(f"{partition} goes there as asked for, but {e.message}", partition=partition) from e


def _delete(coordinator: Coordinator, node: str) -> None:
    for _ in range(ATTEMPTS):
        try:
            coordinator.delete(f"{PATH}/{node}")
            return
        except UnknownResult:  # perhaps it is gone; then that is found out
            continue
    raise CoordinatorError(
        f"znode {PATH}/{node} does not go away: until `halog drain {node} --undo` it gets no new partitions", node=node
    )
