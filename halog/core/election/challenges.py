"""This module asks a silent node through the coordinator whether it lives, unless it is known to be dead.

The line between two nodes may be cut while both reach all servers. So a node that falls silent is challenged before its
silence counts. By then it has answered, unless it was stopped or is gone. An answer says that it lived when it was
*asked*. So it counts from then on, for twice as long as silence may last. What it answered in an earlier silence counts
for nothing. While an answer counts nobody claims what that node is active for. No evidence is waited for. A process
that has ended, by its refused address or its host, is replaced at once; one that does not answer is replaced as soon as
its silence counts.

A firewall may refuse connections, too, in place of a process that lives. So one whose address refuses is asked at once,
though nobody waits for its answer. If it answers what it was asked since, it is taken for one that is not heard.
"""

from __future__ import annotations

from typing import Final

KEPT: Final = 8
"""The answers to so many questions may still come."""


class Challenges:
    """Keeps the challenges of one incarnation. Times are ms of this node's clock. `patience_ms`: how long it may be
    silent."""

    def __init__(self, patience_ms: int) -> None:
        self._patience_ms = patience_ms
        self._asked_at: dict[int, int] = {}
        self._number = 0
        self._proved_at: int | None = None
        """When the question was asked that was answered last."""
        self._refused_at: int | None = None
        """Since when its address refuses connections: what it was asked before that counts for nothing."""

    def due(self, now: int, silent_ms: int) -> int | None:
        """Return the number of the question to ask now, if it is time: three questions within the time that it may be
        silent."""
        every = self._patience_ms // 3
        last = self._asked_at.get(self._number)
        if self._refused_at is not None:
            silent_ms = self._patience_ms
            last = None if last is not None and last <= self._refused_at else last
        if silent_ms < every or (last is not None and now - last < every):
            return None
        self._number += 1
        self._asked_at[self._number] = now
        self._asked_at.pop(self._number - KEPT, None)
        return self._number

    def answered(self, number: int) -> None:
        """Note that it has answered this question."""
        asked = self._asked_at.get(number)
        if asked is not None:
            self._proved_at = asked if self._proved_at is None else max(self._proved_at, asked)

    def lives(self, now: int, silent_since: int) -> bool:
        """Say whether it has answered a fresh question of this very silence, or since its address refuses connections.
        The coordinator may take as long as the node may be silent to carry a question and its answer."""
        if self._proved_at is None or now - self._proved_at > 2 * self._patience_ms:
            return False
        return self._proved_at >= silent_since if self._refused_at is None else self._proved_at > self._refused_at

    @property
    def is_refused(self) -> bool:
        """Say whether its address refuses connections."""
        return self._refused_at is not None

    def refused(self, now: int) -> None:
        """Note that its address refuses connections. Only the first time says something new, until it is heard."""
        if self._refused_at is None:
            self._refused_at = now

    def heard(self) -> None:
        """Forget what was asked and answered: it is heard again."""
        self.over()
        self._refused_at = None

    def over(self) -> None:
        """Forget its answers: it is heard again, or serves nothing."""
        self._proved_at = None
        self._asked_at = {n: at for n, at in self._asked_at.items() if n == self._number}
