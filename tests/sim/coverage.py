"""Counts of the interesting things a run has seen: who never met a zombie proves nothing about zombies."""

from __future__ import annotations

from collections import Counter

from halog.core.roles import Role


class Coverage:
    """Counters by name, and the edges of the role table that were taken."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def hit(self, what: str) -> None:
        self.counts[what] += 1

    def edge(self, role: Role, happening: str) -> None:
        self.counts[edge_name(role, happening)] += 1


def edge_name(role: Role, happening: str) -> str:
    """How an edge of the role table is called in the counts."""
    return f"{role.value}: {happening}"
