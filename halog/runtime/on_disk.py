"""What a copy has put on the disk, outside of all locks, and is told of then: it takes as long as the disk needs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halog.core import events as ev
from halog.runtime.failures import ours

if TYPE_CHECKING:
    from halog.runtime.copy import Copy


class OnDisk:
    """Of one copy. Begun under its lock, in the order of the core's effects. This module decides nothing."""

    def __init__(self, copy: Copy) -> None:
        self._copy = copy

    def flush(self, e: ev.Flush) -> None:
        """What was applied: handed to the operating system now."""
        self._copy.objects.save()
        self._then(ev.Flushed(e.lsn))

    def stow(self, e: ev.Stow) -> None:
        """What is held, likewise."""
        self._copy.objects.stowed.stow(e)
        if e.flush:
            self._then(ev.Stowed(e.epoch, e.upto))

    def _then(self, done: ev.Flushed | ev.Stowed) -> None:
        self._copy.node.run_on_disk(partial(self._flush, done))

    def _flush(self, done: ev.Flushed | ev.Stowed) -> None:
        try:
            self._copy.objects.store.write([], flush=True)
        except Exception as error:
            self._copy.fail(ours(error, "the store's flush"))
        else:
            self._copy.post(done)
