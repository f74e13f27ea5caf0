"""This module implements the Store port on a dictionary. `MemoryDisk` outlives its stores, as a directory outlives a
process."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

from halog.errors import ClosedError, StoreError

DiskStep = Literal["read", "write", "flush"]
"""Names what a disk may fail or be slow at: a read, a write that may wait, a write that is to be on the disk when it
returns. Dropping a copy's objects is a write."""
WRITES: Final[tuple[DiskStep, ...]] = ("write", "flush")


class _DiskFault:
    """Holds what happens at these steps: an error is raised, so many times, or, where there is none, they wait."""

    def __init__(self, steps: Collection[DiskStep], error: Exception | None, times: int | None) -> None:
        self.steps = frozenset(steps)
        self.error = error
        self.left = times
        self.over = threading.Event()


class MemoryDisk:
    """Holds what stays when a store is closed or its process 'killed'; one store at a time holds it.

    A test makes it fail, be slow or be full, at any moment and until it is healed: `fail`, `hold`, `fill_up`, `heal`.
    The oldest fault that a step meets counts. `on_write` tells of what is written. A node that is killed leaves a disk
    without faults.

        cluster.disks["A"].fill_up()
        cluster.disks["A"].fail(StoreError("EIO"), at=["read"], times=1)
    """

    def __init__(self, name: str = "memory") -> None:
        self.name = name
        self.data: dict[bytes, bytes] = {}
        self.holder: MemoryStore | None = None
        self._faults: tuple[_DiskFault, ...] = ()
        self._hearers: tuple[Callable[[Mapping[bytes, bytes | None], bool], None], ...] = ()
        self._lock = threading.Lock()

    def fail(self, error: Exception, *, at: Collection[DiskStep] = WRITES, times: int | None = None) -> None:
        """Let these steps raise, the first `times` of them or all; none of them changes or returns anything."""
        self._add(_DiskFault(at, error, times))

    def fill_up(self) -> None:
        """Let all writes fail as on a disk that has no space left."""
        self.fail(StoreError("no space left on device"))

    def hold(self, *, at: Collection[DiskStep] = WRITES) -> None:
        """Let these steps wait until the disk is healed, and happen then."""
        self._add(_DiskFault(at, None, None))

    def heal(self) -> None:
        """End all faults; what was held goes on."""
        with self._lock:
            ended, self._faults = self._faults, ()
        for fault in ended:
            fault.over.set()

    def on_write(self, hears: Callable[[Mapping[bytes, bytes | None], bool], None]) -> None:
        """Call `hears(items, flush)` behind every write, in the thread that made it. It may read the store."""
        self._hearers += (hears,)

    def meet(self, step: DiskStep) -> None:
        """Raise, or wait, as the disk's faults say. A store calls it before each step, and holds no lock."""
        for fault in self._faults:
            if step not in fault.steps:
                continue
            if fault.error is None:
                fault.over.wait()
                continue
            with self._lock:
                if fault.left == 0:
                    continue
                fault.left = None if fault.left is None else fault.left - 1
            raise fault.error

    def tell(self, items: Sequence[tuple[bytes, bytes | None]], flush: bool) -> None:
        """Tell those that asked of a write. A store calls it behind each."""
        for hears in self._hearers:
            hears(dict(items), flush)

    def _add(self, fault: _DiskFault) -> None:
        with self._lock:
            self._faults += (fault,)


class MemorySnapshot:
    """Holds a copy of the data; scanning sorts it once."""

    def __init__(self, data: dict[bytes, bytes]) -> None:
        self._data = data
        self._keys: list[bytes] | None = None

    def get(self, key: bytes) -> bytes | None:
        return self._data.get(key)

    def scan(self, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        if self._keys is None:
            self._keys = sorted(self._data)
        return self._from(self._keys, prefix, after)

    def _from(self, keys: list[bytes], prefix: bytes, after: bytes) -> Iterator[tuple[bytes, bytes]]:
        begin = bisect_right(keys, after) if after and after >= prefix else bisect_left(keys, prefix)
        for at in range(begin, len(keys)):
            if not keys[at].startswith(prefix):
                return
            yield keys[at], self._data[keys[at]]


class MemoryStore:
    """A `MemoryStore` is an ordered map; each write is one step under a lock. Its disk's faults are met before."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self._disk = disk or MemoryDisk()
        if self._disk.holder is not None:
            raise StoreError(f"store {self._disk.name} is held by another node", directory=self._disk.name, held=True)
        self._disk.holder = self
        self._data = self._disk.data
        self._lock = threading.Lock()

    def _check(self) -> None:
        if self._disk.holder is not self:
            raise ClosedError(f"store {self._disk.name} is closed")

    def get(self, key: bytes) -> bytes | None:
        self._disk.meet("read")
        self._check()
        return self._data.get(key)

    def get_many(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        return [*map(self.get, keys)]

    def scan(self, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        return self.snapshot().scan(prefix, after)

    def write(self, items: Iterable[tuple[bytes, bytes | None]], *, flush: bool = False) -> None:
        todo = list(items)  # an iterable that raises half-way must change nothing
        self._disk.meet("flush" if flush else "write")
        with self._lock:
            self._check()
            for key, value in todo:
                if value is None:
                    self._data.pop(key, None)
                else:
                    self._data[key] = value
        self._disk.tell(todo, flush)

    def fill(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        self.write(items)

    def drop(self, prefix: bytes) -> None:
        self._disk.meet("write")
        with self._lock:
            self._check()
            for key in [k for k in self._data if k.startswith(prefix)]:
                del self._data[key]

    def snapshot(self) -> MemorySnapshot:
        self._disk.meet("read")
        with self._lock:
            self._check()
            return MemorySnapshot(dict(self._data))

    def close(self) -> None:
        with self._lock:
            if self._disk.holder is self:
                self._disk.holder = None
