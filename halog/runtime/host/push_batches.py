"""The active pushes records to its sync replicas while the log takes them: they are collected per commit, and sent per
group.

Pushes leave when whoever polls for deliveries has handed the records to the log and begins to wait, so that the
network's work and the log's overlap, and commits that go to the log together travel in one frame, with the last of what
they say is shown. A push that cannot be sent at once is dropped: the log brings the record anyway. Decides nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from halog.core import effects as fx
from halog.core.ids import EpochId
from halog.runtime.rpc import frames

MAX_PUSH: Final = 1 << 20
"""Bytes of records in one frame, at most and but for the last record: more gains nothing."""

Group = tuple[str, EpochId, tuple[str, ...]]


class Pushes:
    """`offer(node, frame)` sends or drops. Any thread. A frame is at most half as
    large again as the largest record: the node channel takes twice that."""

    def __init__(self, offer: Callable[[str, bytes], None], max_record_bytes: int) -> None:
        self._offer = offer
        self._max = min(MAX_PUSH, max_record_bytes // 2)
        self._due: deque[tuple[Group, fx.Push]] = deque()
        self._lock = threading.Lock()

    def add(self, partition: str, e: fx.Push) -> None:
        """Add a push, in the order of the partition's log."""
        self._due.append(((partition, e.epoch, e.to), e))

    def flush(self) -> None:
        """Send everything collected so far."""
        while self._due:
            with self._lock:  # a node hears of them in their order
                self._send()

    def _send(self) -> None:
        while self._due:
            groups: dict[Group, list[fx.Push]] = {}
            size = 0
            while self._due and size < self._max:
                group, push = self._due.popleft()
                groups.setdefault(group, []).append(push)
                size += len(push.data)
            for (partition, epoch, to), pushes in groups.items():
                datas = [push.data for push in pushes if push.data]
                frame = frames.encode(frames.RecordPush(partition, epoch, datas, pushes[-1].shown))
                for node in to:
                    self._offer(node, frame)
