"""The event history is read here from the cluster's topic: each event once, oldest first. Tools also write their own
events to it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec

from halog.cli.shared.messages import say
from halog.errors import HalogError, RecordFormatError
from halog.events import DISCARDED, Event
from halog.ports import Entry, TopicPartition
from halog.runtime.topics.topic_names import events_topic

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection

FOLLOW_S = 0.25
"""One wait for new events takes this long; Ctrl-C is noticed between two waits."""


class EventLog:
    """Reads the event history. It tells repeated events apart by their id."""

    def __init__(self, connection: ClusterConnection) -> None:
        self._connection = connection
        self._tp = TopicPartition(events_topic(connection.config.cluster.name), 0)
        self._seen: set[str] = set()
        self._next = 0

    def so_far(self) -> Iterator[Event]:
        """Yield every event up to now."""
        start, end = self._connection.adapters.log.bounds(self._tp, self._connection.timeout_s)
        self._next = end
        yield from self._events(self._connection.read(self._tp, start, end))

    def new(self) -> Iterator[Event]:
        """Yield the events after `so_far`, without end."""
        reader = self._connection.adapters.log.tail()
        try:
            reader.follow(self._tp, self._next)
            while True:
                yield from self._events(item for item in reader.poll(FOLLOW_S) if isinstance(item, Entry))
        finally:
            reader.close()

    def _events(self, entries: Iterable[Entry]) -> Iterator[Event]:
        for entry in entries:
            try:
                event = Event.from_bytes(entry.value, entry.timestamp_ms)
            except RecordFormatError as error:
                say(f"offset {entry.offset} of {self._tp.topic} is passed over: {error.message}")
                continue
            if event.id not in self._seen:
                self._seen.add(event.id)
                yield event


def note(connection: ClusterConnection, *events: Event) -> bool:
    """Write events that no node can write. Return False if the history does not take all of them."""
    topic = TopicPartition(events_topic(connection.config.cluster.name), 0)
    try:
        with closing(connection.adapters.log.journal(topic)) as journal:
            noted = journal.note([event.to_bytes() for event in events])
    except HalogError:
        return False
    return not noted.left and not noted.refused


def note_or_say(connection: ClusterConnection, events: Sequence[Event]) -> None:
    """Write events of what was done. It is done, whether or not the history takes them; if it does not, say so."""
    if events and not note(connection, *events):
        say("the event history does not have it: its log does not answer")


def time_text(time_ms: int) -> str:
    """Return a time in ISO 8601, in UTC, to the millisecond; as the number where no calendar has it."""
    try:
        return dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"


def as_json(event: Event) -> dict[str, Any]:
    """Return the event as plain values, with its time as text. The records that HALOG-1014 carries are left out: `halog
    history --discarded` shows them decoded."""
    document: dict[str, Any] = {"time": time_text(event.time_ms), **msgspec.to_builtins(event)}
    if event.code == DISCARDED.code:
        document["more"] = _without_records(document["more"])
    return document


def _without_records(more: dict[str, Any]) -> dict[str, Any]:
    told = more.get("transactions")
    if not isinstance(told, list):
        return more
    return {**more, "transactions": [_without_record(item) for item in told]}


def _without_record(item: Any) -> Any:
    return {k: v for k, v in item.items() if k != "record"} if isinstance(item, dict) else item
