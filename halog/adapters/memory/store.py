"""This module implements the Store port on a dictionary. `MemoryDisk` outlives its stores, as a directory outlives a
process."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

from halog.adapters.memory.faults import Attempt, Faults
from halog.errors import ClosedError, StoreError

WRITES: Final = ("write", "flush")
"""Names what a disk is asked when something is changed: a write that may wait, and one that is to be on the disk when
it returns."""

T = TypeVar("T")
Items = Sequence[tuple[bytes, bytes | None]]


class MemoryDisk:
    """Holds what stays when a store is closed or its process 'killed'; one store at a time holds it.

    A test makes it full or slow, and heals it again. Its `faults` are of single operations: `read` is about a key or a
    prefix, `write` and `flush` about the items, or about the prefix of a copy that is dropped. A node that is killed
    leaves a disk without faults.

        cluster.disks["A"].fill_up()
        cluster.disks["A"].faults.fail("read", StoreError("EIO"), times=1)
    """

    def __init__(self, name: str = "memory") -> None:
        self.name = name
        self.data: dict[bytes, bytes] = {}
        self.holder: MemoryStore | None = None
        self.faults = Faults()
        self._held: list[threading.Event] = []

    def fill_up(self) -> None:
        """Let all writes fail as on a disk that has no space left."""
        for operation in WRITES:
            self.faults.fail(operation, StoreError("no space left on device"))

    def hold(self, *operations: str) -> None:
        """Let these, or all writes, wait until the disk is healed, and happen then."""
        over = threading.Event()
        self._held.append(over)

        def wait(attempt: Attempt[Any]) -> Any:
            over.wait()
            return attempt.land()

        for operation in operations or WRITES:
            self.faults.add(operation, wait)

    def heal(self) -> None:
        """End all faults; what was held goes on."""
        self.faults.end()
        while self._held:
            self._held.pop().set()

    def perform(self, operation: str, about: bytes | Items, land: Callable[[], T]) -> T:
        """Carry out what a store asks, or let it meet what stands in its way."""
        return self.faults.perform(operation, about, land) if self.faults else land()


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
    """A `MemoryStore` is an ordered map; each write is one step under a lock."""

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
        self._check()
        return self._disk.perform("read", key, lambda: self._data.get(key))

    def get_many(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        return [*map(self.get, keys)]

    def scan(self, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        return self.snapshot().scan(prefix, after)

    def write(self, items: Iterable[tuple[bytes, bytes | None]], *, flush: bool = False) -> None:
        todo = list(items)  # an iterable that raises half-way must change nothing
        self._disk.perform("flush" if flush else "write", todo, lambda: self._write(todo))

    def _write(self, items: Items) -> None:
        with self._lock:
            self._check()
            for key, value in items:
                if value is None:
                    self._data.pop(key, None)
                else:
                    self._data[key] = value

    def fill(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        self.write(items)

    def drop(self, prefix: bytes) -> None:
        self._disk.perform("write", prefix, lambda: self._drop(prefix))

    def _drop(self, prefix: bytes) -> None:
        with self._lock:
            self._check()
            for key in [k for k in self._data if k.startswith(prefix)]:
                del self._data[key]

    def snapshot(self) -> MemorySnapshot:
        return self._disk.perform("read", b"", self._snapshot)

    def _snapshot(self) -> MemorySnapshot:
        with self._lock:
            self._check()
            return MemorySnapshot(dict(self._data))

    def close(self) -> None:
        with self._lock:
            if self._disk.holder is self:
                self._disk.holder = None
