"""How many objects the partitions have that a node is active for, and how busy its host is (P6).

Nobody counts before somebody asks. The theory: what a store holds is counted once, by reading all its keys beside the
work of the partition; from then on what commits create and delete is added, which costs a look at each change. A copy
that is active no more forgets its count, since it may be copied anew.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from halog.core.keys.directory import is_entry
from halog.core.log import records
from halog.core.log.records import CREATE, DELETE
from halog.core.log.transactions import Applied, Decided
from halog.runtime.rpc import frames

if TYPE_CHECKING:
    from halog.runtime.host.host import Host
    from halog.runtime.replica.driver import Copy
    from halog.runtime.store.object_table import ObjectTable

WAIT_S: Final = 0.1
"""How long who asks first waits for the count: 50,000 objects take less. Then it is told the next time."""
LOOK: Final = 10_000
"""Keys between two looks whether the node closes."""
MEMORY: Final = Path("/proc/meminfo")


class Tally:
    """The number of objects of one copy. What changes it runs under the partition's lock."""

    def __init__(self, table: ObjectTable) -> None:
        self._table = table
        self._counted: int | None = None
        self._since: int | None = None
        """Created since the count began, less what was deleted; None: nobody has asked."""

    @property
    def objects(self) -> int | None:
        """How many there are; None: not counted yet."""
        counted, since = self._counted, self._since
        return None if counted is None or since is None else counted + since

    def took(self, accepted: Iterable[Applied]) -> None:
        """Records were taken."""
        if self._since is None:
            return
        for record in accepted:
            commit = record.commit if isinstance(record, Decided) else record
            if isinstance(commit, records.Commit):
                self._since += sum((c.op == CREATE) - (c.op == DELETE) for c in commit.changes if not is_entry(c.key))

    def forget(self) -> None:
        """It is to be counted anew."""
        self._counted = self._since = None

    def count(self, closing: Callable[[], bool]) -> None:
        """Read all keys, with no lock held meanwhile. One thread at a time."""
        with self._table.lock:
            self._table.save()
            source = self._table.store.snapshot()
            self._counted, self._since = None, 0
        found = 0
        for i, (key, _) in enumerate(self._table.objects(source)):
            if i % LOOK == 0 and closing():
                return
            found += not is_entry(key)
        with self._table.lock:
            if self._since is not None:
                self._counted = found


class Counting:
    """Of one node; `host` is None for a client, which has nothing to tell."""

    def __init__(self, host: Host | None) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._done.set()

    def told(self) -> frames.LoadsAre:
        """What is known now; what is not counted yet is, for the next time."""
        copies: Mapping[str, Copy] = {} if self._host is None else dict(self._host.copies)
        serving = {name: copy for name, copy in copies.items() if copy.serving}
        missing = [copy for copy in serving.values() if copy.tally.objects is None]
        if missing:
            self._begin(missing)
            self._done.wait(WAIT_S)
        counts = {name: copy.tally.objects for name, copy in serving.items()}
        return frames.LoadsAre({name: n for name, n in counts.items() if n is not None}, cpu(), memory())

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
    """Processes that run or wait to run on this host, mean of the last minute, for each of its cores."""
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except OSError:
        return None


def memory(source: Path = MEMORY) -> float | None:
    """The share of this host's memory that is in use; None where the system does not say."""
    try:
        lines = dict(line.split(":", 1) for line in source.read_text().splitlines())
        return 1 - int(lines["MemAvailable"].split()[0]) / int(lines["MemTotal"].split()[0])
    except (OSError, ValueError, KeyError, ZeroDivisionError):
        return None
