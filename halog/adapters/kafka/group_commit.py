"""This module says which appends travel together (group commit): while a request is under way the next ones gather.

Only one request is under way at a time. Fewer and larger requests cost broker and client half the CPU when many commit
at once, and cost a lone committer nothing: with nothing under way an append leaves at once. When a request is back, its
committers are about to append again. A short wait for half of those that were under way keeps two groups going: one is
on its way to the broker, one is being prepared. The module holds items, and never looks into them. It is not
thread-safe, except `back`.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

T = TypeVar("T")

PATIENT_MOST: Final = 256
"""So many leave without waiting any longer: more of them would save next to nothing."""

GATHER_S: Final = 0.001
"""Longest wait for company: committers answered together are back within it, and more waiting gained nothing."""


HELD_S: Final = 0.02
"""A request that is unanswered for so long holds up nobody else: its broker may be slow or gone, the others are not. It
is several times what a healthy broker takes."""


class GroupCommit(Generic[T]):
    """Gathers items into requests. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._items: list[T] = []
        self._sent = 0
        self._answered = 0
        """Counts of items. One thread at a time writes each count, and never the other's."""
        self._peak = 0
        """Most items under way and waiting at once since the last request left."""
        self._wanted = 1
        """So many items make the next request."""
        self._sent_at = self._back_at = 0.0
        self._leaves_at: float | None = None
        """When the gathered items may leave at the latest, if nobody waits for any of them."""

    def __bool__(self) -> bool:
        return bool(self._items)

    def add(self, item: T, leaves_at: float | None = None) -> None:
        """Add an item to the next request; `leaves_at` says until when it waits for company, if nobody waits for it."""
        if leaves_at is None:
            self._leaves_at = None
        elif not self._items:
            self._leaves_at = leaves_at
        elif self._leaves_at is not None:
            self._leaves_at = min(self._leaves_at, leaves_at)
        self._items.append(item)
        self._peak = max(self._peak, self._sent - self._answered + len(self._items))

    def back(self, count: int, now: float) -> None:
        """Note that so many of the items that were sent are answered."""
        self._answered += count
        if self._answered == self._sent:
            self._back_at = now

    def waits(self, now: float) -> float | None:
        """Return the seconds until what gathered may leave at the latest, 0 if now; None: there is nothing."""
        if not self._items:
            return None
        if self._answered < self._sent:
            return max(0.0, self._sent_at + HELD_S - now)
        if self._leaves_at is not None:
            return 0.0 if len(self._items) >= PATIENT_MOST else max(0.0, self._leaves_at - now)
        return 0.0 if len(self._items) >= self._wanted else max(0.0, self._back_at + GATHER_S - now)

    def take(self, now: float) -> list[T]:
        """Return the items of the next request."""
        items = self._items
        self._items = []
        self._wanted = max(1, self._peak // 2)
        self._sent += len(items)
        self._peak = self._sent - self._answered
        self._sent_at = now
        return items
