"""This module flushes the node's store to the disk now and then, whatever the policies ask (R6: by count and by time).

Writes are handed to the operating system as they come; a machine that loses power loses those it had not written. The
log has them all, so flushing only bounds how much of it is read again. The store is never flushed while nothing was
written, and never under a partition's lock: a flush takes as long as the disk needs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator

from halog.errors import StoreError
from halog.ports import Snapshot, Store

logger = logging.getLogger("halog.host")


class FlushedStore:
    """A `FlushedStore` implements the Store port on another store, and counts what is written."""

    def __init__(self, store: Store, every_s: float, changes: int) -> None:
        self._store = store
        self._every_s = every_s
        self._changes = changes
        self.get = store.get
        self.get_many = store.get_many  # as they are: reads that miss the cache go through here
        self._unflushed = 0
        """Changes written since the last flush began; approximate where several copies write at once."""
        self._due = threading.Event()

    def scan(self, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        return self._store.scan(prefix, after)

    def write(self, items: Iterable[tuple[bytes, bytes | None]], *, flush: bool = False) -> None:
        todo = items if isinstance(items, list) else list(items)
        self._store.write(todo, flush=flush)
        if not flush:  # what others wrote meanwhile may have missed that flush: it still counts
            self._unflushed += len(todo)
        if self._unflushed >= self._changes:
            self._due.set()

    def fill(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        self._store.fill(items)

    def drop(self, prefix: bytes) -> None:
        self._store.drop(prefix)
        self._unflushed += 1

    def snapshot(self) -> Snapshot:
        return self._store.snapshot()

    def close(self) -> None:
        self._store.close()

    def run(self) -> None:
        """Run one turn of the thread that flushes: wait until it is time, or enough was written. Raises StoreError."""
        self._due.wait(self._every_s)
        self._due.clear()
        self.flush()

    def end(self) -> None:
        """Make the last flush. An error is logged and changes nothing: the log has it all."""
        try:
            self.flush()
        except StoreError as e:
            logger.warning("the store could not be flushed at the end: %s", e)

    def wake(self) -> None:
        """End a waiting turn."""
        self._due.set()

    def flush(self) -> None:
        """Bring everything written so far to the disk. Raises StoreError."""
        if not self._unflushed:
            return
        self._unflushed = 0  # first: what is written meanwhile may miss this flush
        try:
            self._store.write([], flush=True)
        except Exception:
            self._unflushed += 1  # still to be done
            raise
