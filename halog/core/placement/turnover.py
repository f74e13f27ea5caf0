"""When nodes have come or gone for good, so that partitions are to be spread anew (P2, P13). Arithmetic only.

A node that restarts has done neither. Who comes is planned for once nobody else has come for a while, so that nodes
that are started one by one cause one plan; who goes, only after as long as no restart, reboot or upgrade takes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple


class Change(NamedTuple):
    """Who is to be planned for now; both sorted."""

    came: tuple[str, ...]
    gone: tuple[str, ...]


class Turnover:
    """What one observer has seen; times are of its own clock, in ms."""

    def __init__(self, settle_ms: int, replace_ms: int) -> None:
        self._settle_ms = settle_ms
        self._replace_ms = replace_ms
        self._since: dict[tuple[str, bool], int] = {}
        """(Node, did it come?) → since when it is so."""

    def forget(self) -> None:
        """Somebody else looks now, or nobody could: what was seen says nothing of the time since."""
        self._since.clear()

    def look(self, known: Collection[str], up: Collection[str], down: Collection[str], now: int) -> Change | None:
        """`known`: who the last plan counted on; `up`: who is there; `down`: who is known not to be. None: nothing to
        plan for yet."""
        differ = {(n, True) for n in up if n not in known} | {(n, False) for n in known if n in down}
        self._since = {key: self._since.get(key, now) for key in differ}
        came = [node for node, comes in differ if comes]
        if came and now - max(self._since[node, True] for node in came) < self._settle_ms:
            came = []
        gone = [n for n, comes in differ if not comes and now - self._since[n, False] >= self._replace_ms]
        return Change(tuple(sorted(came)), tuple(sorted(gone))) if came or gone else None
