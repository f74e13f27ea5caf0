"""Where a copy on this node's disk stands against its log: level with it, of another history, or ahead of it.

A store that the log does not confirm is dropped and rebuilt, since the log is the truth. A store *ahead* of the log is
not: then the log has lost what was acknowledged (its tail was cut, the topic was created again), and the copies may be
all that is left. Never deletes anything.
"""

from __future__ import annotations

from halog.core.ids import digest
from halog.errors import LogError
from halog.ports import Log
from halog.runtime.copy import Copy
from halog.runtime.objects import StoredPosition


def confirmed(log: Log, copy: Copy, stored: StoredPosition) -> bool:
    """Does the log hold the record this history ends with, where we read it (or nothing, for an empty history)?"""
    start, end = log.bounds(copy.tp)
    if not start <= stored.next_offset <= end:
        return False
    last = stored.last_offset
    if last < start:  # nothing was read yet, or it was trimmed since
        return True
    return any(digest(e.value) == stored.state.hash for e in log.read(copy.tp, last, last + 1))


def ahead(log: Log, copy: Copy, stored: StoredPosition | None) -> LogError | None:
    """Why this copy must stay as it is, if it holds more than the log."""
    end = log.bounds(copy.tp)[1]
    if stored is None or stored.next_offset <= end:
        return None
    return LogError(
        f"the log of {copy.name} ends at offset {end}, but was read here up to {stored.next_offset}: it was cut, or "
        "its topic created again; nothing was deleted here. Restore the topic, or delete the data directories of all "
        "its nodes to go on with what is left",
        partition=copy.name,
        end=end,
        read=stored.next_offset,
    )
