"""This module brings what a copy writes to the disk, outside of all locks, and tells the copy: it takes as long as the
disk needs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from halog.core import effects as fx, events as ev
from halog.ports import Store
from halog.runtime.rpc.errors import ours

if TYPE_CHECKING:
    from halog.runtime.replica.driver import Copy

logger = logging.getLogger("halog.host")

FlushListener = Callable[[Exception | None], None]
"""Called once what was written before is on the disk, or with why it is not."""


class Disk:
    """Flushes the store of a node: one flush at a time, of the whole store, shared by all copies that wait for one by
    then."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pool = ThreadPoolExecutor(
            1, thread_name_prefix="halog-disk"
        )  # its own thread: a slow flush keeps no claim waiting
        self._lock = threading.Lock()
        self._waiting: list[FlushListener] = []
        self._closed = False

    def flush(self, told: FlushListener) -> None:
        """Bring everything written so far to the disk, then call `told`; nobody is told any more after `close`."""
        with self._lock:
            self._waiting.append(told)
            if len(self._waiting) == 1 and not self._closed:  # else a turn is to come, which takes all
                self._pool.submit(self._turn)

    def _turn(self) -> None:
        with self._lock:
            waiting = self._waiting
            self._waiting = []
        failed = None
        try:
            self._store.write([], flush=True)
        except Exception as error:
            failed = error
        for told in waiting:
            try:
                told(failed)
            except Exception:
                logger.exception("a copy cannot go on after a flush")

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._pool.shutdown(wait=True, cancel_futures=True)


class DiskEffects:
    """Performs the disk effects of one copy. They begin under its lock, in the order of the core's effects. This module
    decides nothing."""

    def __init__(self, copy: Copy) -> None:
        self._copy = copy

    def flush(self, e: fx.Flush) -> None:
        """Hand what was applied to the operating system now, and flush it."""
        self._copy.objects.save()
        self._then(ev.Flushed(e.lsn))

    def store_pushed(self, e: fx.StorePushed) -> None:
        """Store what is held, likewise."""
        self._copy.objects.pushed.store(e)
        if e.flush:
            self._then(ev.PushedFlushed(e.epoch, e.upto))

    def _then(self, done: ev.Flushed | ev.PushedFlushed) -> None:
        self._copy.node.disk.flush(partial(self._told, done))

    def _told(self, done: ev.Flushed | ev.PushedFlushed, failed: Exception | None) -> None:
        if failed is None:
            self._copy.post(done)
        else:
            self._copy.fail(ours(failed, "the store's flush"))
