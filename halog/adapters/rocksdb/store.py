"""This module implements the Store port on RocksDB (rocksdict, raw bytes). One directory has one owner.

    HALOG-STORE   marker: what makes the directory ours; it says in which format db/ is written (empty: 1)
    lock          flock of the owner     db/   RocksDB's files
    fill/         tables being written that are no part of the store yet
    WRITTEN       how far it was written (`written_mark`)   DAMAGED   why what is in db/ is not to be opened again
    db.damaged-…  what was set aside     db.later-…   likewise, with what is not known here

Every write is one RocksDB batch in its write-ahead log: it survives kill -9; with `flush`, a power cut. The store never
deletes or repairs anything by itself: a damaged store, or one of a later version of halog, is a StoreError with
evidence `rebuild=True`, and the caller calls `set_aside` and begins anew. Damage that is met while it is open is noted,
so that the next one who opens it is told.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import rocksdict

from halog.adapters.rocksdb.options import moved, options, write_options
from halog.adapters.rocksdb.view import RocksView
from halog.adapters.rocksdb.written_mark import NAME as WRITTEN, WrittenMark, remove
from halog.errors import ClosedError, HalogError, RefusedError, StoreError
from halog.release import RELEASE

MARKER = "HALOG-STORE"
FORMAT = "1"
"""Of what is in db/. Whoever writes there what this version would read wrongly says another format first (U1)."""
DAMAGED = "DAMAGED"
_FULL = ("No space left on device", "Disk quota exceeded", "File too large")
"""What the system says of a disk that takes no more."""
_OURS = {MARKER, "lock", "db", "fill", "lost+found", WRITTEN, DAMAGED}


class RocksStore:
    """A `RocksStore` is an ordered map of bytes in `directory`. `read_only`: as it was left. Raises StoreError where
    nothing is."""

    def __init__(self, directory: str | os.PathLike[str], *, read_only: bool = False) -> None:
        self.directory = str(directory)
        if read_only and not Path(directory, "db").is_dir():
            raise StoreError(f"there is no store in {directory}", directory=self.directory, held=False)
        self._lock_fd = _claim(Path(directory))
        self._views: weakref.WeakSet[RocksView] = weakref.WeakSet()
        self._read_only = read_only
        try:
            self._open(Path(directory))
        except BaseException:
            os.close(self._lock_fd)
            raise
        self._get = self._db.get
        self._number = self._db.latest_sequence_number
        self._fills = itertools.count()
        self._no_sync = write_options()

    def _open(self, path: Path) -> None:
        """Open it. Raises StoreError with `rebuild` for what is damaged, or lacks what was in it, or is of a later
        format."""
        if (form := _format(path)) != FORMAT:
            why = f"it is of format {form}, which a later version of halog wrote (halog {RELEASE} reads {FORMAT})"
            raise self._unusable(why, "is not readable by this version: ")
        if why := _noted_damage(path) or _lacks_files(path / "db"):
            raise self._damaged(why)
        self._written = WrittenMark(path)
        try:
            self._db = self._opened(path / "db")
            has = self._db.latest_sequence_number()
            if lacking := self._written.lacking(has):
                self._db.close()
                raise self._damaged(f"its write-ahead log lacks the last {lacking} writes")
            if not self._read_only:
                shutil.rmtree(path / "fill", ignore_errors=True)  # of a process that was killed
                self._written.begin(has, path / "db")
        except BaseException:
            self._written.close()
            raise

    def _opened(self, db: Path) -> Any:
        if why := self._written.shortened(db):
            raise self._damaged(why)
        access = rocksdict.AccessType.read_only() if self._read_only else rocksdict.AccessType.read_write()
        try:
            return rocksdict.Rdict(str(db), options(), access_type=access)
        except Exception as e:
            raise self._error(e) from None

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
                self._written.wrote(self._number())
            if flush:  # by itself: a write that syncs keeps the GIL for as long as the disk takes
                upto = self._number()
                self._db.flush_wal(True)
                self._written.flushed(upto)
        except Exception as e:
            raise self._error(e) from None

    def fill(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        """Write one sorted table aside, and let RocksDB take it in, in one step: a third of the CPU of as many puts,
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
            self._written.wrote(self._number())
        except Exception as e:
            raise self._error(e) from None

    def drop(self, prefix: bytes) -> None:
        upper = _behind(prefix)
        if upper is None:  # nothing sorts behind it: no range to name
            self.write([(key, None) for key, _ in self.scan(prefix)])
            return
        try:
            self._db.delete_range(prefix, upper, self._no_sync)
            self._written.wrote(self._number())
        except Exception as e:
            raise self._error(e) from None

    def snapshot(self) -> RocksView:
        try:
            view = RocksView(self._db.iter(), self._error)
        except Exception as e:
            raise self._error(e) from None
        self._views.add(view)
        return view

    def close(self) -> None:
        """Close the store; twice is fine. Scans that are under way end: RocksDB lets go of its files with the last of
        them."""
        if self._lock_fd < 0:
            return
        fd = self._lock_fd
        self._lock_fd = -1
        for view in list(self._views):
            view.let_go()
        with contextlib.suppress(Exception):
            self._db.close()
        self._written.close()
        os.close(fd)

    def _error(self, e: Exception) -> HalogError:
        if self._lock_fd < 0 or isinstance(e, ClosedError) or type(e).__name__ == "DbClosedError":
            return ClosedError(f"store {self.directory} is closed")
        if _is_damage(str(e)):
            return self._damaged(str(e))
        return StoreError(_refusal(self.directory, str(e)), directory=self.directory, held=False)

    def _damaged(self, why: str) -> StoreError:
        """Note the damage, so that whoever opens the store next is told, too: not everything that is damaged is read
        when it is opened. Returns the error."""
        if not self._read_only:
            note_damage(self.directory, why)
        return self._unusable(why, "is damaged: ")

    def _unusable(self, why: str, what: str) -> StoreError:
        return StoreError(
            f"store {self.directory} {what}{why}; the next start of its node sets it aside and makes a new one",
            directory=self.directory,
            held=False,
            rebuild=True,
            why=why,
        )


def _put_all(table: Any, items: Iterable[tuple[bytes, bytes]], error: Callable[[Exception], Exception]) -> bool:
    """Put all items into a table; False if there was nothing: RocksDB knows no empty table."""
    key = None
    for key, value in items:
        try:
            table[key] = value
        except Exception as e:
            raise error(e) from None
    return key is not None


def note_damage(directory: str | os.PathLike[str], why: str) -> None:
    """Note that what is there is not to be opened again."""
    with contextlib.suppress(OSError):  # of a disk that takes nothing it is told again
        Path(directory, DAMAGED).write_text(" ".join(why.split())[:1_000])


def set_aside(directory: str | os.PathLike[str], *, later: bool = False) -> Path | None:
    """Rename a store's data, so that it can be made anew; nothing is deleted. Returns where it is now; None: there was
    none. Refuses a directory that is not ours or is held by another. `later`: it has what only a later halog knows, as
    one of another format has anyway; its name says so."""
    path = Path(directory)
    if not path.exists():
        return None
    fd = _claim(path)
    try:
        aside = None
        if (path / "db").exists():
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            kind = "later" if later or _format(path) != FORMAT else "damaged"
            names = (f"db.{kind}-{stamp}-{n}" for n in itertools.count(1))
            aside = next(path / name for name in names if not (path / name).exists())
            (path / "db").rename(aside)
        remove(path)
        (path / DAMAGED).unlink(missing_ok=True)
        if _format(path) != FORMAT:
            (path / MARKER).write_text("")
        return aside
    finally:
        os.close(fd)


def _format(path: Path) -> str:
    """Return the format in which the store in this directory was written."""
    return (path / MARKER).read_text(errors="replace").strip()[:20] or FORMAT


def _noted_damage(path: Path) -> str:
    try:
        return (path / DAMAGED).read_text() or "it was found damaged"
    except FileNotFoundError:
        return ""


def _lacks_files(db: Path) -> str:
    """Return which file is missing; "": none. RocksDB makes a new store where its file CURRENT is not there, over all
    that is, and reads one without its write-ahead log."""
    names = set(os.listdir(db)) if db.exists() else set()
    has_any = any(name.startswith("MANIFEST") or name.endswith((".sst", ".log")) for name in names)
    if has_any and "CURRENT" not in names:
        return f"{db / 'CURRENT'} is missing"
    if "CURRENT" in names and not any(name.endswith(".log") for name in names):
        return f"the write-ahead log in {db} is missing"
    return ""


def _refusal(directory: str, why: str) -> str:
    """Return what is said of a store whose disk did not do what it was asked."""
    full = next((text for text in _FULL if text in why), "")
    if not full:
        return f"store {directory} cannot be used: {why}"
    path = Path(directory).absolute()
    at = next(p for p in (path, *path.parents) if os.path.ismount(p))
    return (
        f"the disk of store {directory}, mounted at {at}, takes no more ({full}): make room there, then start its node "
        "again"
    )


def _is_damage(text: str) -> bool:
    """Say whether an error means damage. A disk that is full, read only, or gives an error once has not damaged
    anything."""
    return text.startswith("Corruption") or "No such file" in text


def _claim(path: Path) -> int:
    """Check and mark the directory, and lock it for this process; return the lock."""
    for above in path.resolve().parents:
        if (above / MARKER).exists():
            raise RefusedError(
                f"{path} lies in {above}, which is another node's data directory: choose one outside of it",
                directory=str(path),
                within=str(above),
            )
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
    """Return the first key behind all keys with `prefix`; None if there is none."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes((head[-1] + 1,)) if head else None
