"""The Store port on RocksDB (rocksdict, raw bytes). One directory, one owner.

    HALOG-STORE   marker: what makes the directory ours     lock   flock of the owner     db/   RocksDB's files
    fill/         tables being written that are no part of the store yet

Every write is one RocksDB batch in its write-ahead log: it survives kill -9; with `flush`, a power cut. Never deletes
or repairs anything by itself: a damaged store is a StoreError with evidence `rebuild=True`, and the caller, which knows
that the log has it all, calls `destroy` and begins anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import rocksdict

from halog.adapters.rocks_options import moved, options, write_options
from halog.adapters.rocks_view import RocksView
from halog.errors import ClosedError, HalogError, RefusedError, StoreError

MARKER = "HALOG-STORE"
_OURS = {MARKER, "lock", "db", "fill", "lost+found"}


class RocksStore:
    """An ordered map of bytes in `directory`. `read_only`: as it was left; StoreError where nothing is."""

    def __init__(self, directory: str | os.PathLike[str], *, read_only: bool = False) -> None:
        self.directory = str(directory)
        if read_only and not Path(directory, "db").is_dir():
            raise StoreError(f"there is no store in {directory}", directory=self.directory, held=False)
        self._lock_fd = _claim(Path(directory))
        access = rocksdict.AccessType.read_only() if read_only else rocksdict.AccessType.read_write()
        try:
            self._db = rocksdict.Rdict(str(Path(directory, "db")), options(), access_type=access)
        except Exception as e:
            os.close(self._lock_fd)
            raise self._error(e) from None
        self._get = self._db.get
        self._fills = itertools.count()
        shutil.rmtree(Path(directory, "fill"), ignore_errors=True)  # of a process that was killed
        self._no_sync = write_options()

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._get(key)
            return value
        except Exception as e:
            raise self._error(e) from None

    def get_many(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        try:
            values: Any = self._db.get(list(keys))  # typed as what one key gives
            return values  # type: ignore[no-any-return]
        except Exception as e:
            raise self._error(e) from None

    def scan(self, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        return self.snapshot().scan(prefix, after)

    def write(self, items: Iterable[tuple[bytes, bytes | None]], *, flush: bool = False) -> None:
        batch = rocksdict.WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key, value in items:
            if value is None:
                delete(key)
            else:
                put(key, value)
        try:
            if not batch.is_empty():
                self._db.write(batch, self._no_sync)
            if flush:  # by itself: a write that syncs keeps the GIL for as long as the disk takes
                self._db.flush_wal(True)
        except Exception as e:
            raise self._error(e) from None

    def fill(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        """One sorted table, written aside and then taken in by RocksDB in one step: a third of the CPU of as many puts,
        and neither the write-ahead log nor a memtable to flush."""
        path = Path(self.directory, "fill", f"{next(self._fills)}.sst")
        try:
            path.parent.mkdir(exist_ok=True)
            table = rocksdict.SstFileWriter(options())
            table.open(str(path))
        except Exception as e:
            raise self._error(e) from None
        try:
            if _put_all(table, items, self._error):
                self._ingest(table, path)
        finally:
            path.unlink(missing_ok=True)

    def _ingest(self, table: Any, path: Path) -> None:
        try:
            table.finish()  # synced
            self._db.ingest_external_file([str(path)], moved())
        except Exception as e:
            raise self._error(e) from None

    def drop(self, prefix: bytes) -> None:
        upper = _behind(prefix)
        if upper is None:  # nothing sorts behind it: no range to name
            self.write([(key, None) for key, _ in self.scan(prefix)])
            return
        try:
            self._db.delete_range(prefix, upper, self._no_sync)
        except Exception as e:
            raise self._error(e) from None

    def snapshot(self) -> RocksView:
        try:
            return RocksView(self._db.iter(), self._error)
        except Exception as e:
            raise self._error(e) from None

    def close(self) -> None:
        """Twice is fine."""
        if self._lock_fd < 0:
            return
        with contextlib.suppress(Exception):
            self._db.close()
        os.close(self._lock_fd)
        self._lock_fd = -1

    def _error(self, e: Exception) -> HalogError:
        if self._lock_fd < 0 or type(e).__name__ == "DbClosedError":
            return ClosedError(f"store {self.directory} is closed")
        return StoreError(
            f"store {self.directory} cannot be trusted: {e}; it will be rebuilt from the log",
            directory=self.directory,
            held=False,
            rebuild=True,
        )


def _put_all(table: Any, items: Iterable[tuple[bytes, bytes]], error: Callable[[Exception], Exception]) -> bool:
    """False if there was nothing: RocksDB knows no empty table."""
    key = None
    for key, value in items:
        try:
            table[key] = value
        except Exception as e:
            raise error(e) from None
    return key is not None


def destroy(directory: str | os.PathLike[str]) -> None:
    """Remove a store's data, so that it can be made anew. Refuses what is not ours or is held by another."""
    if not Path(directory).exists():
        return
    fd = _claim(Path(directory))
    try:
        shutil.rmtree(Path(directory, "db"), ignore_errors=True)
    finally:
        os.close(fd)


def _claim(path: Path) -> int:
    """The directory checked, marked, and locked for this process."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        names = set(os.listdir(path))
        if MARKER not in names and ("db" in names or names - _OURS):
            raise RefusedError(
                f"{path} holds files that are not a halog store's: choose an empty or a new directory",
                directory=str(path),
                found=sorted(names)[:5],
            )
        fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        (path / MARKER).touch(mode=0o600)
    except OSError as e:
        raise StoreError(f"store {path} cannot be used: {e.strerror}", directory=str(path), held=False) from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise StoreError(f"store {path} is held by another node", directory=str(path), held=True) from None
    return fd


def _behind(prefix: bytes) -> bytes | None:
    """The first key behind all keys with `prefix`; None if there is none."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes((head[-1] + 1,)) if head else None
