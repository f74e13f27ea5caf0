"""This module says whether a halog that knows levels up to some number could read what a cluster has written (U1).

A log states a level before it has anything of it. A log's records, a state topic's rows and the znodes that decide are
looked at one by one. What this halog does not know itself is above every level that it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from halog.core.log import records
from halog.errors import HalogError, LaterRecordError, RecordFormatError
from halog.metadata.cluster_level import read_level
from halog.metadata.mapped_policies import read_all
from halog.metadata.nodes import NodeInfo
from halog.metadata.partition_tables import table_of
from halog.ports import Coordinator, Entry, TopicPartition
from halog.runtime.topics.state_topic import MARKER, check_format, check_kinds, read_marker
from halog.schema import Definition

COUNTED: Final = 1_000
"""Progress is told each time that so many entries were read."""


class LevelFinding(NamedTuple):
    """A `LevelFinding` is what was found in one place."""

    where: str
    looked_at: int
    """So many records, rows, znodes or copies."""
    fault: str
    """The first thing there that is above the level, or cannot be read; "": there is none."""


def in_log(tp: TopicPartition, entries: Iterable[Entry], level: int, read: Callable[[int], object]) -> LevelFinding:
    """Look through a log, up to the first fault. `read` is told how many entries were read since it was told last."""
    where, count = f"log {tp.topic}/{tp.partition}", 0
    for entry in entries:
        if fault := _record_fault(entry, level):
            return LevelFinding(where, count, f"offset {entry.offset}: {fault}")
        count += 1
        if count % COUNTED == 0:
            read(COUNTED)
    read(count % COUNTED)
    return LevelFinding(where, count, "")


def _record_fault(entry: Entry, level: int) -> str:
    try:
        record = records.linked(entry.value)
    except LaterRecordError as e:
        return str(e)
    except RecordFormatError as e:
        return f"damaged: {e}"
    stated = record.level if isinstance(record, records.LevelStated) else 1
    return f"what follows may be of level {stated}" if stated > level else ""


def in_state_topic(tp: TopicPartition, rows: Iterable[tuple[bytes, bytes | None]], level: int) -> LevelFinding:
    """Look through a state topic, up to the first fault."""
    where, count = f"state topic {tp.topic}/{tp.partition}", 0
    for key, value in rows:
        try:
            check_kinds({key: value}, tp)
            if key == MARKER and value is not None:
                check_format(value, tp)
                stated = 1 if (marker := read_marker(value)) is None else marker.position.state.level
                if stated > level:
                    return LevelFinding(where, count, f"the snapshot is of level {stated}")
        except HalogError as e:
            return LevelFinding(where, count, str(e))
        count += 1
    return LevelFinding(where, count, "")


def in_definitions(tp: TopicPartition, rows: Iterable[tuple[bytes, bytes | None]]) -> LevelFinding:
    """Look through the definitions of types, as they stand at the end of their topic."""
    where, latest = f"schemas topic {tp.topic}", dict(rows)
    for key, value in latest.items():
        try:
            if value is not None:
                Definition.parse(value)
        except RecordFormatError as e:
            return LevelFinding(where, len(latest), f"key {key[:16].hex()}: {e}")
    return LevelFinding(where, len(latest), "")


def in_znodes(coordinator: Coordinator, level: int) -> LevelFinding:
    """Look at the znodes that stop whoever does not understand them: level, policies, tables."""
    count = 1
    try:
        now = read_level(coordinator)
        if now.level > level:
            raised = f", raised by {now.by}" if now.by else ""
            return LevelFinding("znodes", 0, f"level: the cluster is at level {now.level}{raised}")
        count += len(read_all(coordinator))
        for name in coordinator.children("partitions"):
            table_of(coordinator, name)
            count += 1
    except HalogError as e:
        return LevelFinding("znodes", count, str(e))
    return LevelFinding("znodes", count, "")


def in_stores(
    nodes: Iterable[NodeInfo], copies: Mapping[str, int], faults: Mapping[str, str], cluster: int
) -> Iterator[LevelFinding]:
    """Yield what nodes say of their stores. `copies`: by node, how many it has loaded; `faults`: why a node does not
    tell, or what it could not load; `cluster`: the level that nobody writes above.

    A store that a node has loaded has nothing that this node's halog does not know. One that knows more writes nothing
    above the cluster's level all the same."""
    for info in nodes:
        said = f"store of {info.name}, which runs halog {info.version}"
        more = f" and knows levels up to {info.level}: it writes at level {cluster}" if info.level > cluster else ""
        yield LevelFinding(said + more, copies.get(info.name, 0), faults.get(info.name, ""))
