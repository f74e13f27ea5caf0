"""This module notes how far a store was written, beside it: a write-ahead log that has lost its end looks like one that
ends there.

    WRITTEN   the run of the machine (36 bytes), the last sequence number written, the last one flushed, the number of
              the manifest, and how long that was (8 bytes each)

RocksDB stops at the first record of its write-ahead log that it cannot read, as behind a torn last write, and says
nothing of one that is missing as a whole. Both numbers are set behind what they tell of, in memory that the file shares
(mmap): a process that is killed leaves them. In the same run of the machine everything written is there; in another one
everything flushed. A store that comes back with less has lost something. So has one whose manifest has become shorter:
RocksDB forgets the tables that its end named.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import Final

from halog.adapters.rocksdb.machine_run import machine_run
from halog.errors import StoreError

NAME: Final = "WRITTEN"
_FORM: Final = struct.Struct(">36sQQQQ")


class WrittenMark:
    """Keeps the note of one store, while it is open."""

    def __init__(self, directory: Path) -> None:
        path = directory / NAME
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, _FORM.size)  # a hole in it would be found only when it is written: SIGBUS
            self._shared = mmap.mmap(fd, _FORM.size)
        except OSError as e:
            raise StoreError(f"{path} cannot be used: {e.strerror}", path=str(path)) from e
        finally:
            os.close(fd)
        self._manifest = -1
        self._run = machine_run().encode()[:36].ljust(36, b"\0")

    def shortened(self, db: Path) -> str:
        """Return why the store's manifest, as it is before it is opened, is not all of it; "": it is."""
        number, size = self._read()[3:]
        name = _manifest_of(db)
        if name and _number(name) == number and (db / name).exists() and (db / name).stat().st_size < size:
            return f"{db / name} had {size} bytes, and has fewer"
        return ""

    def lacking(self, has: int) -> int:
        """Return how many writes are missing from a store whose last sequence number is `has`."""
        run, written, flushed, _, _ = self._read()
        known = bool(self._run.strip(b"\0")) and run == self._run
        return max(0, (written if known else flushed) - has)

    def _read(self) -> tuple[bytes, int, int, int, int]:
        run, *numbers = _FORM.unpack(self._shared[:])
        written, flushed, manifest, size = map(int, numbers)
        return bytes(run), written, flushed, manifest, size

    def begin(self, has: int, db: Path) -> None:
        """Begin this run's note: from here on it is this run's."""
        flushed, name = self._read()[2], _manifest_of(db)
        self._manifest = os.open(db / name, os.O_RDONLY | os.O_CLOEXEC)
        self._shared[:] = _FORM.pack(self._run, has, min(flushed, has), _number(name), os.fstat(self._manifest).st_size)

    def wrote(self, upto: int) -> None:
        """Note that everything up to there was handed to the operating system."""
        self._shared[36:44] = upto.to_bytes(8, "big")
        self._shared[60:68] = os.fstat(self._manifest).st_size.to_bytes(8, "big")

    def flushed(self, upto: int) -> None:
        """Note that everything up to there is on the disk."""
        self._shared[44:52] = upto.to_bytes(8, "big")

    def close(self) -> None:
        if self._manifest >= 0:
            os.close(self._manifest)
        self._manifest = -1
        self._shared.close()


def _manifest_of(db: Path) -> str:
    """Return the manifest's name; "": it is not known."""
    try:
        return (db / "CURRENT").read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


def _number(manifest: str) -> int:
    digits = manifest.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0


def remove(directory: Path) -> None:
    """Remove the note: the store it tells of is there no more."""
    (directory / NAME).unlink(missing_ok=True)
