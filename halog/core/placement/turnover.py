"""This module says when nodes have come or gone for good, so that partitions are to be spread anew (P2, P13). It is
arithmetic only.

A node that restarts has done neither. A node that came is planned for once no other node has come for a while, so that
nodes that are started one by one cause one plan. A node that went is planned for only after a time longer than any
restart, reboot or upgrade.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple


class NodeTurnover(NamedTuple):
    """A `NodeTurnover` names the nodes to be planned for now; both lists are sorted."""

    came: tuple[str, ...]
    gone: tuple[str, ...]


class Turnover:
    """A `Turnover` keeps what one observer has seen; times are of its own clock, in ms."""

    def __init__(self, settle_ms: int, replace_ms: int) -> None:
        self._settle_ms = settle_ms
        self._replace_ms = replace_ms
        self._since: dict[tuple[str, bool], int] = {}
        """(Node, did it come?) → since when it is so."""

    def forget(self) -> None:
        """Forget what was seen: it says nothing of a time when somebody else, or nobody, looked."""
        self._since.clear()

    def look(self, known: Collection[str], up: Collection[str], down: Collection[str], now: int) -> NodeTurnover | None:
        """Return what is to be planned for, or None: nothing yet.

        `known`: the nodes that the last plan counted on; `up`: those that are there; `down`: those that are known not
        to be.
        """
        differ = {(n, True) for n in up if n not in known} | {(n, False) for n in known if n in down}
        self._since = {key: self._since.get(key, now) for key in differ}
        came = [node for node, comes in differ if comes]
        if came and now - max(self._since[node, True] for node in came) < self._settle_ms:
            came = []
        gone = [n for n, comes in differ if not comes and now - self._since[n, False] >= self._replace_ms]
        return NodeTurnover(tuple(sorted(came)), tuple(sorted(gone))) if came or gone else None
