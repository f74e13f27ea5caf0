"""Reads what the log and the state topic of a partition tell by themselves, where the coordinator tells nothing.

The log names its history in each record; where it ends, in which epoch, and the version of the mapping that is served
come from the last snapshot, or from what a node's store has read and the log confirms, and from what is behind that.
Changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from halog.core.ids import digest
from halog.core.log import records
from halog.core.log.chain import Chain, ChainState, Verdict
from halog.errors import LogError
from halog.ports import Entry, Log, TopicPartition
from halog.runtime.replica.recovery import confirmed
from halog.runtime.store.encoding import StoredPosition
from halog.runtime.topics.state_topic import MARKER, NEAR, SnapshotMarker, check_format, read_marker

PIECE: Final = 2_000
"""Entries read in one go: some 50 ms."""
READ_S: Final = 60.0
"""For one piece, where the log is slow."""


class LogHistory(NamedTuple):
    """A `LogHistory` says how far the history of one partition goes."""

    state: ChainState
    """Where it ends."""
    mapping: int
    """The version that is served."""
    begins: int
    """The log before this offset is trimmed, or was never there."""
    end: int
    """What is behind this offset has not been read."""
    marker: SnapshotMarker | None
    """The last snapshot of it."""
    marked_end: int
    """Where the state topic ended."""

    @property
    def log_id(self) -> str:
        return self.state.log_id.hex()


def read(
    log: Log,
    partition: str,
    tp: TopicPartition,
    state_tp: TopicPartition,
    site: str,
    home: str,
    stored: Callable[[bytes], Iterable[StoredPosition]] = lambda log_id: (),
) -> LogHistory | None:
    """Return the history in a log; None if there never was one. `home`: the other site it begins at, or "". `stored`:
    how far stores of nodes got with that log id. LogError where the log cannot be read as one history;
    LaterRecordError where a later version of halog wrote what is needed for it."""
    begins, end = log.bounds(tp)
    has_state = state_tp.partition < log.partitions(state_tp.topic)  # who made the log may have died before this
    marked_end = log.bounds(state_tp)[1] if has_state else 0
    raw = _last_marker(log, state_tp, marked_end) if marked_end else None
    marker = None if raw is None else read_marker(raw)
    if not end and marker is None:
        return None
    log_id = _log_id(log, partition, tp, begins, end, marker)
    of_it = (p for p in stored(log_id) if p.state.log_id == log_id and p.state.site == site)
    known = [p for p in of_it if confirmed(log, tp, p)]
    if marker is not None:
        known.append(marker.position)
    start = max((p for p in known if begins <= p.next_offset <= end), key=lambda p: p.next_offset, default=None)
    if start is None and begins:
        if raw is not None:
            check_format(raw, state_tp)
        raise LogError(
            f"the log of {partition} begins at offset {begins}, and neither a snapshot nor a store has what is missing:"
            " restore its state topic from a backup, or bring the data directory of a node that has a copy",
            partition=partition,
        )
    state = ChainState(log_id, site, owner=home) if start is None else start.state
    mapping, offset = (0, 0) if start is None else (start.mapping, start.next_offset)
    state, mapping = _on(state, mapping, entries(log, tp, offset, end))
    return LogHistory(state, mapping, begins, end, marker, marked_end)


def _on(state: ChainState, mapping: int, behind: Iterable[Entry]) -> tuple[ChainState, int]:
    chain = Chain(state)
    for entry in behind:
        record = records.read_linked(entry)
        verdict = chain.read(record, digest(entry.value))
        counts = verdict in (Verdict.ACCEPTED, Verdict.OPENED)
        if isinstance(record, records.MapperChanged | records.EpochMerged) and counts:
            mapping = max(mapping, record.mapper_version)
    return chain.state, mapping


def entries(log: Log, tp: TopicPartition, start: int, end: int) -> Iterator[Entry]:
    """Yield the entries, piece by piece."""
    for at in range(start, end, PIECE):
        yield from log.read(tp, at, min(at + PIECE, end), READ_S)


def _log_id(
    log: Log, partition: str, tp: TopicPartition, begins: int, end: int, marker: SnapshotMarker | None
) -> bytes:
    first = next(entries(log, tp, begins, end), None)
    found: Sequence[bytes] = [
        *([] if first is None else [records.read_linked(first).header.log_id]),
        *([] if marker is None else [marker.position.state.log_id]),
    ]
    if not found:
        raise LogError(f"the log of {partition} is trimmed as a whole, and no snapshot has it", partition=partition)
    if len(set(found)) > 1:
        raise LogError(
            f"the log of {partition} is of history {found[0].hex()}, and its snapshot of {found[1].hex()}: one of the "
            "topics was put back or is another cluster's",
            partition=partition,
        )
    return found[0]


def _last_marker(log: Log, tp: TopicPartition, end: int) -> bytes | None:
    """The marker stands near the end; where it does not, the whole topic is read."""
    for start in dict.fromkeys((max(0, end - NEAR), 0)):
        found = [value for key, value in log.read_keyed(tp, start) if key == MARKER and value]
        if found:
            return found[-1]
    return None
