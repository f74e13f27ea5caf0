"""What transactions of one epoch wait for beside what their policy asks (R6, decision 14)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from halog.core.durability import Durability
from halog.core.ids import Member

BACKED_MS = 10
"""So long an append that nobody waits for waits for company. A request costs broker and client 0.3 ms of CPU, much more
than a commit does without; what the log lacks for so long the replicas have, who read it every 10 ms anyway."""


class _FlushDemand(msgspec.Struct):
    """Who waits for a flush of one commit."""

    replicas: int
    tokens: list[int]


class Demands:
    """What transactions of one epoch asked for, and did not get yet. `flushed`: how far each replica says that its
    store is on its disk."""

    def __init__(self) -> None:
        self.flushed: dict[Member, int] = {}
        self.leaving: frozenset[str] = frozenset()
        """Nodes whose copies are about to be dropped: what is on their disks counts for nobody."""
        self.early = 0
        """The last lsn that is not to wait for the log."""
        self.wanted: dict[int, _FlushDemand] = {}
        """By lsn."""
        self._had: dict[int, int] = {}
        """So many replicas had everything up to this lsn on their disks, at some time."""

    def want(self, lsn: int, replicas: int, *tokens: int) -> None:
        """Answer `tokens` once so many replicas have flushed `lsn`; of several attempts the strongest counts."""
        wanted = self.wanted.setdefault(lsn, _FlushDemand(replicas, []))
        wanted.replicas = max(replicas, wanted.replicas)
        wanted.tokens += tokens

    def of(self, lsn: int, asked: Durability | None) -> int:
        """How many replicas a repeated attempt waits for: what it asks, and what the others did."""
        own = 0 if asked is None else asked.flushed
        wanted = self.wanted.get(lsn)
        return own if wanted is None else max(own, wanted.replicas)

    @property
    def upto(self) -> int:
        """The last lsn that waits for a flush; 0: none."""
        return max(self.wanted, default=0)

    def had(self, lsn: int, replicas: int) -> bool:
        """Did so many replicas have it on their disks, at some time?"""
        return self._had.get(replicas, 0) >= lsn

    def count(self, members: Iterable[Member]) -> None:
        """Note what `members`, whom commits wait for, have flushed."""
        stay = (m for m in members if m.node not in self.leaving)
        for replicas, lsn in enumerate(sorted((self.flushed.get(m, 0) for m in stay), reverse=True), 1):
            self._had[replicas] = max(lsn, self._had.get(replicas, 0))

    def granted(self, upto: int) -> list[tuple[int, list[int]]]:
        """(lsn, tokens) of those that have what they asked for; `upto`: what the policy asks is done that far."""
        done = [lsn for lsn, w in self.wanted.items() if lsn <= upto and self.had(lsn, w.replicas)]
        return [(lsn, self.wanted.pop(lsn).tokens) for lsn in done]

    def given_up(self) -> Mapping[int, list[int]]:
        """Those that still wait, when the epoch is over."""
        left = {lsn: w.tokens for lsn, w in self.wanted.items()}
        self.wanted.clear()
        self.early = 0
        return left
