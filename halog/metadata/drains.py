"""This module keeps which nodes were drained: they get no partition that is new, though they have the fewest copies
(P2, P12).

drained/<node>    JSON: by, at_ms

`halog drain` writes the mark before anything moves, and writes it anew when the node is drained again: a plan knows by
`at_ms` whether it was made before. The mark ends once somebody wishes a copy there, by hand or by a plan, or says that
the drain is undone. It does not end with the node's run: a node that is emptied for a repair is started in between.
Nothing that the node has, or is to have, depends on it.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from halog.errors import CoordinatorError
from halog.metadata.cas import ATTEMPTS, put
from halog.metadata.identity import who
from halog.metadata.znode_format import ZnodeFormat
from halog.ports import Coordinator, UnknownResult

PATH = "drained"


class DrainMarkError(CoordinatorError):
    """Says that a mark does not go away, or perhaps it has: no answer came. The node still gets its copy."""


class DrainMark(msgspec.Struct, frozen=True):
    """Holds what the znode has. `at_ms` is since 1970, by the clock of who drained the node."""

    by: str = ""
    at_ms: int = 0


_MARK = ZnodeFormat(msgspec.json.Decoder(DrainMark).decode, "holds no mark of a drained node")


def drained_nodes(coordinator: Coordinator) -> list[str]:
    """Return the names of the drained nodes, sorted."""
    return coordinator.children(PATH)


def drained_at(coordinator: Coordinator) -> dict[str, int]:
    """Return when each of them was drained, by the clock of who did it. Raises CoordinatorError for a mark that is
    none."""
    marks = {node: _MARK.read(coordinator, f"{PATH}/{node}") for node in drained_nodes(coordinator)}
    return {node: found.at_ms for node, found in marks.items() if found is not None}


def mark(coordinator: Coordinator, node: str, at_ms: int) -> None:
    """Mark a node as drained. Repeating it is harmless."""
    said = msgspec.json.encode(DrainMark(who(), at_ms))
    if not put(coordinator, f"{PATH}/{node}", lambda before: said if before != said else None):
        raise CoordinatorError(f"znode {PATH}/{node} cannot be made, and nothing has moved: try again", node=node)


def unmark(coordinator: Coordinator, nodes: Collection[str]) -> list[str]:
    """Remove the marks of these nodes; return those that had one. Nothing is written for the others."""
    found = [n for n in drained_nodes(coordinator) if n in nodes] if nodes else []
    for node in found:
        _delete(coordinator, node)
    return found


def unmark_behind(coordinator: Coordinator, partition: str, nodes: Collection[str]) -> None:
    """Remove the marks of nodes that get a copy of `partition` by what was set just now. DrainMarkError says that this
    stands."""
    try:
        unmark(coordinator, nodes)
    except CoordinatorError as e:
        raise DrainMarkError(f"{partition} goes there as asked for, but {e.message}", partition=partition) from e


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
