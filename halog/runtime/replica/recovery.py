"""This module compares a copy on this node's disk with its log. The copy is level with it, of another history, or has
more than the log.

A store that the log does not confirm is dropped and rebuilt, since the log is the truth. A store that holds what the
log has *lost* is not: the log's tail was cut or its topic created again, and whether others have appended since or not,
the copies may be all that is left of what was acknowledged. This module never deletes anything.
"""

from __future__ import annotations

from collections.abc import Iterator

from halog.core.ids import digest
from halog.errors import LogError
from halog.ports import Log, TopicPartition
from halog.runtime.replica.driver import Copy
from halog.runtime.store.object_table import StoredPosition

PIECE = 10_000
"""Entries read at a time: a fraction of a second."""

FAR = 100_000
"""Entries on either side of where the last record of a history should be, among which it is looked for. If the log has
it further away, the copy is kept as if the record were lost."""


def confirmed(log: Log, tp: TopicPartition, stored: StoredPosition) -> bool:
    """Say whether the log holds the record this history ends with, where we read it (or nothing, for an empty
    history)."""
    start, end = log.bounds(tp)
    if not start <= stored.next_offset <= end:
        return False
    last = stored.last_offset
    if last < start:  # nothing was read yet, or it was trimmed since
        return True
    return any(digest(e.value) == stored.state.hash for e in log.read(tp, last, last + 1))


def lost(log: Log, copy: Copy, stored: StoredPosition | None, log_id: str) -> LogError | None:
    """Return why this copy must stay as it is, if it holds what the log `log_id` had, and has no more."""
    if stored is None:
        return None
    start, end = log.bounds(copy.tp)
    if stored.next_offset > end:
        what = f"the log of {copy.name} ends at offset {end}, but was read here up to {stored.next_offset}"
        return _error(copy, what, end, stored)
    if stored.state.log_id.hex() != log_id or not start <= stored.last_offset < end:
        return None
    if stored.state.hash in _hashes(log, copy, start, stored.last_offset, end):
        return None
    if log.bounds(copy.tp)[0] > stored.last_offset:  # trimmed meanwhile
        return None
    what = f"what was read here of the log of {copy.name} at offset {stored.last_offset} is not in it any more"
    return _error(copy, what, end, stored)


def _hashes(log: Log, copy: Copy, start: int, last: int, end: int) -> Iterator[bytes]:
    """Yield the hashes of what the log has: first where the record should be, then everywhere near. A site that
    mirrors, and lost the end of its log, brings the same records anew, at other places."""
    yield from (digest(e.value) for e in log.read(copy.tp, last, last + 1))
    for first in (*range(last + 1, min(end, last + FAR), PIECE), *range(max(start, last - FAR), last, PIECE)):
        yield from (digest(e.value) for e in log.read(copy.tp, first, min(first + PIECE, end)))


def _error(copy: Copy, what: str, end: int, stored: StoredPosition) -> LogError:
    return LogError(
        f"{what}: it was cut, or its topic created again; nothing was deleted here. Restore the topic, or delete the "
        "data directories of all nodes that say so to go on with what is left",
        partition=copy.name,
        end=end,
        read=stored.next_offset,
    )
