"""This module turns a copy's delivery reports into events of the core."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from halog.core import events as ev

Report = tuple[int, int | None, str | None]
"""(tag of the append, its offset, why there is none)."""


def events_of(reports: deque[Report]) -> Iterator[ev.Event]:
    """Yield the events of these reports, as few as possible: appends that landed one behind the other are one."""
    while reports:
        tag, offset, why = reports.popleft()
        if offset is None:
            yield ev.AppendFailed(tag, why or "unknown")
            continue
        count = 1
        while reports and reports[0][:2] == (tag + count, offset + count):
            reports.popleft()
            count += 1
        yield ev.Appended(tag, offset, count)
