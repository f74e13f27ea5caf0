"""This module asks a silent node through the coordinator whether it lives, unless it is known to be dead.

The line between two nodes may be cut while both reach all servers. So a node that falls silent is challenged before its
silence counts. By then it has answered, unless it was stopped or is gone. An answer says that it lived when it was
*asked*. So it counts from then on, for twice as long as silence may last. What it answered in an earlier silence counts
for nothing. While an answer counts nobody claims what that node is active for. No evidence is waited for. A process
that has ended, by its refused address or its host, is replaced at once; one that does not answer is replaced as soon as
its silence counts.
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

    def due(self, now: int, silent_ms: int) -> int | None:
        """Return the number of the question to ask now, if it is time: three questions within the time that it may be
        silent."""
        every = self._patience_ms // 3
        last = self._asked_at.get(self._number)
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
        """Say whether it has answered a fresh question of this very silence. The coordinator may take as long as the
        node may be silent to carry a question and its answer."""
        if self._proved_at is None or self._proved_at < silent_since:
            return False
        return now - self._proved_at <= 2 * self._patience_ms

    def over(self) -> None:
        """Forget its answers: it is heard again, or known to be dead."""
        self._proved_at = None
        self._asked_at = {n: at for n, at in self._asked_at.items() if n == self._number}
