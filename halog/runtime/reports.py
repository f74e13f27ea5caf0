"""Delivery reports of one copy's appends, on their way from the log's client to the core. Decides nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from halog.core import events as ev


class Reports:
    """Collected by whoever polls, taken under the copy's lock. True if there are any."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due: deque[tuple[int, int | None, str | None]] = deque()
        """(tag, offset, why there is none)."""

    def __bool__(self) -> bool:
        return bool(self._due)

    def add(self, tag: int, offset: int | None, why: str | None) -> None:
        """The log said what became of append `tag`."""
        self._due.append((tag, offset, why))

    def events(self) -> Iterator[ev.Event]:
        """What was reported, as few events: appends that landed one behind the other are one."""
        due = self._due
        while due:
            tag, offset, why = due.popleft()
            if offset is None:
                yield ev.AppendFailed(tag, why or "unknown")
                continue
            count = 1
            while due and due[0][:2] == (tag + count, offset + count):
                due.popleft()
                count += 1
            yield ev.Appended(tag, offset, count)
