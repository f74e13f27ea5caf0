"""Tells whoever asks how full the partitions are that this node is active for, and how busy its host is (P6)."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from halog.runtime.rpc import frames

if TYPE_CHECKING:
    from halog.runtime.host.host import Host
    from halog.runtime.replica.driver import Copy

WAIT_S: Final = 0.1
"""How long who asks first waits for the count: 50,000 objects take less. Then it is told the next time."""

MEMORY: Final = Path("/proc/meminfo")


class LoadCounter:
    """Tells the load of one node; `host` is None for a client, which has nothing to tell."""

    def __init__(self, host: Host | None) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._done.set()

    def told(self) -> frames.LoadsReply:
        """Return what is known now; what is not counted yet is, for the next time."""
        copies: Mapping[str, Copy] = {} if self._host is None else dict(self._host.copies)
        serving = {name: copy for name, copy in copies.items() if copy.serving}
        missing = [copy for copy in serving.values() if copy.tally.objects is None]
        if missing:
            self._begin(missing)
            self._done.wait(WAIT_S)
        counts = {name: copy.tally.objects for name, copy in serving.items()}
        return frames.LoadsReply({name: n for name, n in counts.items() if n is not None}, cpu(), memory())

    def _begin(self, missing: list[Copy]) -> None:
        assert self._host is not None
        with self._lock:
            if not self._done.is_set():
                return
            self._done.clear()
        self._host.run(lambda: self._count(missing))

    def _count(self, missing: list[Copy]) -> None:
        host = self._host
        assert host is not None
        try:
            for copy in missing:
                if copy.serving:
                    copy.tally.count(lambda: host.pause(0))
        finally:
            self._done.set()


def cpu() -> float | None:
    """Return how many processes run or wait to run on this host, mean of the last minute, for each of its cores."""
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except OSError:
        return None


def memory(source: Path = MEMORY) -> float | None:
    """Return the share of this host's memory that is in use; None where the system does not say."""
    try:
        lines = dict(line.split(":", 1) for line in source.read_text().splitlines())
        return 1 - int(lines["MemAvailable"].split()[0]) / int(lines["MemTotal"].split()[0])
    except (OSError, ValueError, KeyError, ZeroDivisionError):
        return None
