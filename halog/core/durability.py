"""This module says what a transaction may ask of its own commit, in place of what its policy asks (R6, decision 14).

The policy fixes what the log and the replicas can give. A transaction may wait for less of the log, or for replicas
that flush their own stores. What the policy cannot give is refused by name. `commit/durability_requests.py` judges a
request by the policy, and `commit/demands.py` waits for it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from halog.core.settings import Sync
from halog.errors import ConfigError

Local = Literal["SYNC", "WRITE_NO_SYNC", "NO_SYNC"]


class Durability(msgspec.Struct, frozen=True, array_like=True, kw_only=True, gc=False):
    """A `Durability` is given to `node.transaction` (R6): `halog.Durability(local="NO_SYNC")`, or
    `halog.Durability(remote="SYNC", replicas=2)`.

    What is left out is the policy's. Anything else raises ConfigError.
    """

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
        """Say whether the commit is answered once the sync replicas hold it, whether or not the log has it. A replica
        flushes what it has read from the log, so a commit that waits for a flush also waits for the log."""
        return self.local == "NO_SYNC" and self.remote is None

    @property
    def flushed(self) -> int:
        """Return how many replicas must have the commit on their disks."""
        return 0 if self.remote is None else self.replicas


def checked(durability: object) -> Durability | None:
    """Check what an application gave as `durability`. None stands for the policy's own. ConfigError."""
    if durability is None or durability == Durability():
        return None
    if not isinstance(durability, Durability):
        raise ConfigError(f"durability={durability!r} must be a halog.Durability")
    return durability
