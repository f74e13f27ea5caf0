"""What one transaction asks of its commit, where that is not what its policy asks (R6, decision 14).

The policy fixes what the log and the replicas can give. A transaction may wait for less of the log, or for replicas
that flush their own stores; what the policy cannot give is refused by name. Says what is asked for, and judges it; the
writer waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from halog.core.ids import Member
from halog.core.settings import Sync
from halog.core.table.table import PartitionTable
from halog.errors import ConfigError

Local = Literal["SYNC", "WRITE_NO_SYNC", "NO_SYNC"]

BACKED_MS = 10
"""So long an append that nobody waits for waits for company. A request costs broker and client 0.3 ms of CPU, much more
than a commit does without; what the log lacks for so long the replicas have, who read it every 10 ms anyway."""


class Durability(msgspec.Struct, frozen=True, array_like=True, kw_only=True, gc=False):
    """`halog.Durability(local="NO_SYNC")`, `halog.Durability(remote="SYNC", replicas=2)`: for `node.transaction` (R6).
    What is left out is the policy's. ConfigError for anything else."""

    local: Local | None = None
    """Wait for no more of the log than this; not more than the policy's `local_sync`."""
    remote: Literal["SYNC"] | None = None
    """Wait until `replicas` sync replicas have it flushed in their own stores, besides what the policy asks."""
    replicas: int = 1

    def __post_init__(self) -> None:
        if self.local is not None and self.local not in Sync.__members__:
            raise ConfigError(f"durability: local={self.local!r} must be one of {', '.join(Sync.__members__)}")
        if self.remote not in (None, "SYNC"):
            raise ConfigError(
                f'durability: remote={self.remote!r} must be "SYNC" or left out: of the replicas a transaction may ask '
                "for more than its policy does, not for less"
            )
        if type(self.replicas) is not int or self.replicas < 1:
            raise ConfigError(f"durability: replicas={self.replicas!r} must be an int of at least 1")
        if self.remote is None and self.replicas != 1:
            raise ConfigError(f'durability: replicas={self.replicas} says how many flush; add remote="SYNC"')

    @property
    def early(self) -> bool:
        """Is the commit answered once the sync replicas hold it, in the log or not? A replica flushes what it has read
        from the log, so who waits for that waits for the log."""
        return self.local == "NO_SYNC" and self.remote is None

    @property
    def flushed(self) -> int:
        """So many replicas are to have it on their disks."""
        return 0 if self.remote is None else self.replicas


def checked(durability: object) -> Durability | None:
    """What an application gave as `durability`; None: what the policy says. ConfigError."""
    if durability is None or durability == Durability():
        return None
    if not isinstance(durability, Durability):
        raise ConfigError(f"durability={durability!r} must be a halog.Durability")
    return durability


def why_not(asked: Durability, table: PartitionTable, local_sync: Sync) -> str | None:
    """What speaks against it in a partition of this policy, whoever is up; or None."""
    policy = f"{table.name} is of policy {table.policy}"
    if asked.local is not None and Sync[asked.local] > local_sync:
        return (
            f'local="{asked.local}" was asked for, {policy} with local_sync = "{local_sync.name}", which is how its '
            "log was made; ask for that or less, or bind the type to a policy that gives more; nothing was done"
        )
    if asked.flushed > table.sync_replicas:
        return (
            f'remote="SYNC" of {asked.flushed} replicas was asked for, {policy} with sync_replicas = '
            f"{table.sync_replicas}; ask for that or fewer, or bind the type to a policy that has more; nothing was "
            "done"
        )
    return None


class _Wanted(msgspec.Struct):
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
        self.wanted: dict[int, _Wanted] = {}
        """By lsn."""
        self._had: dict[int, int] = {}
        """So many replicas had everything up to this lsn on their disks, at some time."""

    def want(self, lsn: int, replicas: int, *tokens: int) -> None:
        """Answer `tokens` once so many replicas have flushed `lsn`; of several attempts the strongest counts."""
        wanted = self.wanted.setdefault(lsn, _Wanted(replicas, []))
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
