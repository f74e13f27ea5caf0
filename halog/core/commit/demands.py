"""This module keeps what transactions of one epoch wait for beyond what their policy asks (R6, decision 14)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from halog.core.durability import Durability
from halog.core.ids import Member

BACKED_MS = 10
"""For so long an append that nobody waits for may wait for others to travel with. A request costs broker and client 0.3
ms of CPU, much more than a commit does without one. What the log lacks meanwhile the replicas have, which read the log
every 10 ms anyway."""


class _FlushDemand(msgspec.Struct):
    """A `_FlushDemand` is what waits for a flush of one commit."""

    replicas: int
    tokens: list[int]


class Demands:
    """Keeps what transactions of one epoch asked for and did not get yet. `flushed` says how far each replica's store
    is on its disk, as the replica says."""

    def __init__(self) -> None:
        self.flushed: dict[Member, int] = {}
        self.leaving: frozenset[str] = frozenset()
        """Nodes whose copies are about to be dropped: what is on their disks does not count."""
        self.early = 0
        """The last lsn that need not wait for the log."""
        self.wanted: dict[int, _FlushDemand] = {}
        """The demands, by lsn."""
        self._had: dict[int, int] = {}
        """By number of replicas: the last lsn up to which so many had everything on their disks, at some time."""

    def want(self, lsn: int, replicas: int, *tokens: int) -> None:
        """Note that `tokens` wait until so many replicas have flushed `lsn`. Of several attempts the strongest demand
        counts."""
        wanted = self.wanted.setdefault(lsn, _FlushDemand(replicas, []))
        wanted.replicas = max(replicas, wanted.replicas)
        wanted.tokens += tokens

    def of(self, lsn: int, asked: Durability | None) -> int:
        """Return how many replicas a repeated attempt waits for: as many as it, or an earlier attempt, asks for."""
        own = 0 if asked is None else asked.flushed
        wanted = self.wanted.get(lsn)
        return own if wanted is None else max(own, wanted.replicas)

    @property
    def upto(self) -> int:
        """Return the last lsn that waits for a flush; 0: none."""
        return max(self.wanted, default=0)

    def had(self, lsn: int, replicas: int) -> bool:
        """Say whether so many replicas had it on their disks, at some time."""
        return self._had.get(replicas, 0) >= lsn

    def count(self, members: Iterable[Member]) -> None:
        """Note what `members`, which commits wait for, have flushed."""
        stay = (m for m in members if m.node not in self.leaving)
        for replicas, lsn in enumerate(sorted((self.flushed.get(m, 0) for m in stay), reverse=True), 1):
            self._had[replicas] = max(lsn, self._had.get(replicas, 0))

    def granted(self, upto: int) -> list[tuple[int, list[int]]]:
        """Return (lsn, tokens) of the demands that are met, up to `upto`: so far the policy's own demands are met."""
        done = [lsn for lsn, w in self.wanted.items() if lsn <= upto and self.had(lsn, w.replicas)]
        return [(lsn, self.wanted.pop(lsn).tokens) for lsn in done]

    def given_up(self) -> Mapping[int, list[int]]:
        """Return what still waits when the epoch is over."""
        left = {lsn: w.tokens for lsn, w in self.wanted.items()}
        self.wanted.clear()
        self.early = 0
        return left
