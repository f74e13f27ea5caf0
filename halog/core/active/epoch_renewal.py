"""This module says when the active node begins another epoch because its replicas hold nothing of this one any more
(R6).

A replica that told a candidate its position holds nothing that is pushed in that epoch from then on (E1), although the
active node was there all the time: the candidate had only not heard of it. From then on a commit that need not wait for
the log does wait for it: that replica has the commit when it has read it there. The next epoch is not sealed. So the
active node ends its own one in favour of itself, which callers notice as any hand-over. Where a candidate asks again
and again, it does so ever more rarely.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from halog.core import events as ev
from halog.core.ids import Member
from halog.core.state.copy_state import CopyState

MOST_PATIENCE: Final = 64
"""At most so many drains pass between two such epochs."""


class EpochRenewal:
    """An `EpochRenewal` decides for one copy, over all epochs that it leads."""

    def __init__(self, copy: CopyState) -> None:
        self._copy = copy
        self._sealed: set[Member] = set()
        self._since = 0
        self._patience = 1

    def begins(self) -> None:
        """Note that an epoch is led from now on: nobody has sealed it."""
        self._sealed.clear()
        self._since = self._copy.now

    def heard(self, e: ev.ReplicaAck) -> None:
        """Note whether a replica holds what is pushed in the epoch that is led."""
        if e.sealed:
            self._sealed.add(e.member)

    def due(self, waited_for: Set[Member]) -> str:
        """Return why another epoch is to begin now: commits wait for one of `waited_for` that holds nothing of this
        one. "": it is not."""
        lasted, stay = self._copy.now - self._since, self._copy.settings.drain_ms * self._patience
        sealed = self._sealed & waited_for
        if not sealed:
            if lasted >= 2 * stay:
                self._patience = 1
            return ""
        if not self._copy.unlogged or lasted < stay:
            return ""
        self._patience = min(2 * self._patience, MOST_PATIENCE)
        self._since = self._copy.now  # the next attempt, if this one is called off
        names, number = ", ".join(sorted(m.node for m in sealed)), self._copy.table.epoch.number
        return f"{names} took this node for down, and holds nothing that is pushed in epoch {number} any more"
