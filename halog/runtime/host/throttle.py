"""Copies that a migration alone needs are read no faster than the table says (P12): they may take their time.

The theory: the rate stands in the table (`PartitionTable.copy_rate`) and is looked at again and again, so that it ends
with the reason for it. As soon as a node of the partition is missing from the node list, the copy is wanted for
redundancy, and what is left of it is read as fast as it comes. The snapshot is read on a thread of the copy's own; the
log, up to where it ended when the copy began to follow it, through a tail of its own, which all such copies of a node
share and which fetches little ahead. Never drops an entry, and never holds up another copy: it waits on threads that
serve nobody else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from halog.core.table.migration import copy_rate
from halog.core.table.table import PartitionTable
from halog.errors import HalogError
from halog.metadata import log_holds as retention
from halog.ports import UnknownResult
from halog.runtime.host.log_reader import LogReader

if TYPE_CHECKING:
    from halog.runtime.host.host import Host
    from halog.runtime.replica.driver import Copy

LOOK_S: Final = 0.1
"""How often whoever waits looks whether it still has to: redundancy that is lost is not to wait for longer."""

PIECE: Final = 16_384
"""Bytes of a snapshot between two waits: less than a tenth of a second at any rate that makes sense."""


RECORDS: Final = 50
"""Of the log between two waits: few enough that the rate is one, enough that small records do not take a wait each."""


class NotWantedError(Exception):
    """The partition is not to come here any more, or the node closes: the copy is given up half made."""


def wait_for_bytes(size: int, rate: Callable[[], int], pause: Callable[[float], bool]) -> bool:
    """Wait as long as `size` bytes take at `rate` bytes a second, as it is from moment to moment; 0: no time. `pause`
    waits so many seconds, and says whether to give up; False if it did."""
    owed = float(size)
    while owed > 0 and (now := rate()):
        seconds = min(LOOK_S, owed / now)
        if pause(seconds):
            return False
        owed -= seconds * now
    return True


class ReadPace:
    """A host's `ReadPace` has copies read no faster than their tables say."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._tail_made = False

    def rate(self, name: str) -> int:
        """Return how many bytes a second this node may read for its copy of a partition now; 0: as fast as it can."""
        known = self._host.router.tables.get(name)
        return 0 if known is None else copy_rate(known[1], self._host.me.node)

    def rows(self, name: str, rows: Iterator[tuple[bytes, bytes | None]]) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the same rows of a snapshot, in their time. NotWantedError."""
        size = 0
        for key, value in rows:
            yield key, value
            size += len(key) + len(value or b"")
            if size >= PIECE:
                self._take(name, size)
                size = 0
        self._take(name, size)

    def _take(self, name: str, size: int) -> None:
        if not wait_for_bytes(size, lambda: self.rate(name), self._host.pause) or not self._is_wanted(name):
            raise NotWantedError(f"the copy of {name} is not wanted any more")

    def _is_wanted(self, name: str) -> bool:
        known = self._host.router.tables.get(name)
        return known is None or self._host.me.node in known[1].hosts

    @contextmanager
    def held(self, table: PartitionTable, copy: Copy) -> Iterator[None]:
        """Meanwhile the log is not trimmed from where it begins now: a copy that takes its time would be overtaken."""
        host, name = self._host, f"copy-{self._host.me.node}"
        first = host.log.bounds(copy.tp)[0]
        retention.hold_the_rest(host.coordinator, table.name, name, first, "a copy is made for a migration")
        try:
            yield
        finally:
            with suppress(HalogError, UnknownResult):  # gone with our session, or it will be
                retention.release(host.coordinator, table.name, name)

    def follow_slowly(self, copy: Copy) -> None:
        """Have the copy follow the log through the tail that waits. Before it starts."""
        host = self._host
        with self._lock:
            if not self._tail_made:
                tail = host.log.tail(slow=True)
                host.followed.slow = tail
                reader = LogReader(tail, host.by_tp.get, host.flush_acks, self._has_taken, RECORDS)
                host.keep_on("slow-tail", reader.turn)
                self._tail_made = True
        host.followed.slow_down(copy.tp)

    def _has_taken(self, copy: Copy, size: int) -> None:
        wait_for_bytes(size, lambda: 0 if copy.ended else self.rate(copy.name), self._host.pause)

    def wait_until_fast(self, copy: Copy) -> None:
        """Until the copy follows the log like any other, or the node closes."""
        host = self._host
        while host.copies.get(copy.name) is copy and host.followed.is_slow(copy.tp) and not host.pause(LOOK_S):
            pass
