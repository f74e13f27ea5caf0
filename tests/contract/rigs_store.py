"""Store implementations under test."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from halog.adapters.memory import MemoryDisk, MemoryStore
from halog.adapters.rocksdb.store import RocksStore
from halog.ports import Store


class StoreRig(Protocol):
    """What the store suite needs: the same disk, opened again and again."""

    def open(self) -> Store: ...

    def end(self) -> None: ...


class MemoryStoreRig:
    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self._open: list[MemoryStore] = []

    def open(self) -> MemoryStore:
        store = MemoryStore(self.disk)
        self._open.append(store)
        return store

    def end(self) -> None:
        for store in self._open:
            store.close()


class RocksRig:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._open: list[RocksStore] = []

    def open(self) -> RocksStore:
        store = RocksStore(self.path)
        self._open.append(store)
        return store

    def end(self) -> None:
        for store in self._open:
            store.close()
