"""This module implements the Store port on a dictionary. `MemoryDisk` outlives its stores, as a directory outlives a
process."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from halog.errors import ClosedError, StoreError


class MemoryDisk:
    """Holds what stays when a store is closed or its process 'killed'; one store at a time holds it."""

    def __init__(self, name: str = "memory") -> None:
        self.name = name
        self.data: dict[bytes, bytes] = {}
        self.holder: MemoryStore | None = None


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
        return self._data.get(key)

    def get_many(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        return [*map(self.get, keys)]

    def scan(self, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        return self.snapshot().scan(prefix, after)

    def write(self, items: Iterable[tuple[bytes, bytes | None]], *, flush: bool = False) -> None:
        todo = list(items)  # an iterable that raises half-way must change nothing
        with self._lock:
            self._check()
            for key, value in todo:
                if value is None:
                    self._data.pop(key, None)
                else:
                    self._data[key] = value

    def fill(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        self.write(items)

    def drop(self, prefix: bytes) -> None:
        with self._lock:
            self._check()
            for key in [k for k in self._data if k.startswith(prefix)]:
                del self._data[key]

    def snapshot(self) -> MemorySnapshot:
        with self._lock:
            self._check()
            return MemorySnapshot(dict(self._data))

    def close(self) -> None:
        with self._lock:
            if self._disk.holder is self:
                self._disk.holder = None
