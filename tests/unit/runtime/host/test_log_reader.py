"""The thread that reads the log for a node's copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from halog.core import events as ev
from halog.errors import HalogError, LogError, UnreachableError
from halog.ports import Entry, OutOfRange, TopicPartition
from halog.runtime.host.log_reader import LogReader

pytestmark = pytest.mark.feature("R1")

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Tail:
    def __init__(self, *batches: list[Any] | HalogError) -> None:
        self.batches = list(batches)

    def poll(self, timeout_s: float, limit: int = 2000) -> Sequence[Entry | OutOfRange]:
        batch = self.batches.pop(0)
        if isinstance(batch, HalogError):
            raise batch
        return batch


class Copy:
    def __init__(self, story: list[Any]) -> None:
        self.story = story

    def read(self, entries: Sequence[Entry]) -> None:
        self.story.append([e.offset for e in entries])

    def post(self, event: ev.Event) -> None:
        self.story.append(event)

    def fail(self, error: LogError) -> None:
        self.story.append(error)


class Rig:
    def __init__(self, *batches: list[Any] | HalogError) -> None:
        self.stories: dict[TopicPartition, list[Any]] = {P0: [], P1: []}
        self.flushed = 0
        copies: Any = {tp: Copy(story) for tp, story in self.stories.items()}
        self.reader = LogReader(Tail(*batches), copies.get, self._flush, retry_s=0.0)  # type: ignore[arg-type]

    def _flush(self) -> None:
        self.flushed += 1


def entry(tp: TopicPartition, offset: int) -> Entry:
    return Entry(tp, offset, b"v", 0)


def test_each_copy_gets_its_entries_in_order_and_acknowledgements_leave_behind_them() -> None:
    rig = Rig([entry(P0, 1), entry(P0, 2), entry(P1, 7), entry(P0, 3)])
    rig.reader.turn()
    assert rig.stories == {P0: [[1, 2], [3]], P1: [[7]]}
    assert rig.flushed == 1


def test_entries_of_a_partition_no_longer_hosted_are_dropped() -> None:
    rig = Rig([entry(TopicPartition("t", 9), 1), entry(P0, 1)])
    rig.reader.turn()
    assert rig.stories[P0] == [[1]]


def test_a_copy_whose_place_the_log_no_longer_has_is_told_why() -> None:
    rig = Rig([OutOfRange(P0, 5, 10, 20), entry(P1, 1)])
    rig.reader.turn()
    (lost,) = rig.stories[P0]
    assert lost == ev.LogLost("the log begins at 10 and ends at 20, this copy needs 5")
    assert rig.stories[P1] == [[1]]


def test_a_damaged_entry_stops_its_copy_only() -> None:
    error = LogError("cannot be read", topic="t", partition=0, offset=4)
    rig = Rig(error, [entry(P1, 1)])
    rig.reader.turn()
    rig.reader.turn()
    assert rig.stories == {P0: [error], P1: [[1]]}


def test_an_error_of_nobody_in_particular_is_tried_again() -> None:
    rig = Rig(UnreachableError("no broker"), [entry(P0, 1)])
    rig.reader.turn()
    rig.reader.turn()
    assert rig.stories == {P0: [[1]], P1: []}
