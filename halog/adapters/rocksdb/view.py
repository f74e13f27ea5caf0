"""This module shows a RocksDB store as it was at one moment, through one iterator: RocksDB pins an iterator to the
moment of its making.

rocksdict's own snapshots are not used: iterating one shows later writes (0.3.29, seen), and an upper bound given in
ReadOptions is freed too early, so that keys go missing (seen).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from halog.errors import ClosedError

CHUNK = 512  # rows copied per hold of the lock: other scans of the same view interleave at this grain


class RocksView:
    """A `RocksView` implements the Snapshot port. It keeps overwritten data on disk for as long as it lives."""

    def __init__(self, iterator: Any, error: Callable[[Exception], Exception]) -> None:
        self._iterator = iterator
        self._error = error
        self._lock = threading.Lock()

    def get(self, key: bytes) -> bytes | None:
        rows = self._chunk(key, key, 1)
        return rows[0][1] if rows and rows[0][0] == key else None

    def scan(self, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        return self._rows(max(prefix, after + b"\0") if after else prefix, prefix)

    def _rows(self, begin: bytes, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        while rows := self._chunk(begin, prefix, CHUNK):
            yield from rows
            if len(rows) < CHUNK:
                return
            begin = rows[-1][0] + b"\0"

    def _chunk(self, begin: bytes, prefix: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return up to `limit` rows from `begin` on, as long as they have `prefix`."""
        rows: list[tuple[bytes, bytes]] = []
        with self._lock:
            it = self._iterator
            try:
                if it is None:
                    raise ClosedError("the store is closed")
                it.seek(begin)
                while len(rows) < limit and it.valid() and (key := it.key()).startswith(prefix):
                    rows.append((key, it.value()))
                    it.next()
                it.status()  # damage ends an iteration silently: ask
            except Exception as e:
                raise self._error(e) from None
            finally:
                it = None  # an error's frames live as long as the error, and RocksDB's files as long as an iterator
        return rows

    def let_go(self) -> None:
        """Let go of the iterator: the store closes, and whoever still scans is told."""
        with self._lock:
            self._iterator = None
