"""Partition tables that are to be read again are read on a thread of their own: while the coordinator is away nothing
else may wait for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from halog.core.table.table import PartitionTable
from halog.errors import HalogError
from halog.ports import Coordinator

logger = logging.getLogger("halog.refreshing")

WAIT_S = 0.1
"""One wait for something to read."""

PAUSE_S = 0.1
"""Between attempts at what is not to be had just now: a server that is back is found within this."""


class TableRefresh:
    """`seen(name, version, table)` is called with what was read. `pause_s`: between attempts."""

    def __init__(
        self, coordinator: Coordinator, seen: Callable[[str, int, PartitionTable], None], pause_s: float = PAUSE_S
    ) -> None:
        self._coordinator = coordinator
        self._pause_s = pause_s
        self._seen = seen
        self._stale: set[str] = set()
        self._known = threading.Event()
        self._failed = ""
        """What was logged last: an attempt that fails as the one before it is not news."""

    def ask(self, name: str) -> None:
        """This partition's table is to be read again."""
        self._stale.add(name)
        self._known.set()

    def turn(self, closing: threading.Event) -> None:
        """Read what is stale."""
        self._known.wait(WAIT_S)
        self._known.clear()
        while self._stale and not closing.is_set():
            names = sorted(self._stale)
            self._stale.difference_update(names)
            try:
                self._read(names)
                self._failed = ""
            except Exception as error:
                self._tried(names, error)
                closing.wait(self._pause_s)

    def _tried(self, names: list[str], error: Exception) -> None:
        self._stale.update(names)
        said = f"{type(error).__name__}: {error}"
        if said != self._failed:
            self._failed = said
            which = f"of partition {names[0]}" if len(names) == 1 else f"of {len(names)} partitions"
            logger.warning("the table %s cannot be read, going on trying: %s", which, said)

    def _read(self, names: list[str]) -> None:
        """Read all at once: after a session was lost a node reads those of all its partitions."""
        self._coordinator.sync(f"partitions/{names[0]}")
        found = self._coordinator.get_many([f"partitions/{name}" for name in names])
        wrong: HalogError | None = None
        for name, value in zip(names, found, strict=True):
            if value is not None:
                try:
                    self._seen(name, value.version, PartitionTable.from_bytes(value.data))
                except HalogError as e:  # of this one; those behind it are as they are
                    wrong = e
        if wrong is not None:
            raise wrong
