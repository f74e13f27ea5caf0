"""Which nodes were drained: those get no partition that is new, though they have the fewest copies (P2, P12).

drained/<node>    JSON: by, at_ms

Made by `halog drain` before anything moves. It ends once somebody wishes a copy there, by hand or by a plan, or says
that the drain is undone; not with the node's run: whoever is emptied to be repaired is started in between. Nothing that
the node has, or is to have, depends on it.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from halog.ports import Coordinator
from halog.runtime.who import who

PATH = "drained"


def drained_nodes(coordinator: Coordinator) -> list[str]:
    """Their names, sorted."""
    return coordinator.children(PATH)


def mark(coordinator: Coordinator, node: str, at_ms: int) -> None:
    """It is one from now on. Repeating it is harmless."""
    coordinator.create(f"{PATH}/{node}", msgspec.json.encode({"by": who(), "at_ms": at_ms}))


def unmark(coordinator: Coordinator, nodes: Collection[str]) -> list[str]:
    """None of these is one any more; those that were. Nothing is written for the others."""
    return [n for n in drained_nodes(coordinator) if n in nodes and coordinator.delete(f"{PATH}/{n}")]
