"""A certificates directory holds PEM files, and this module writes them so that no reader finds half of one.

A single file is written under another name, flushed to the disk, and renamed. Files that belong together (a key and its
certificate) are all written first, as `.NAME.new`, then renamed one after the other, the key first and the certificate
last. So whoever sees a new certificate finds its key there. A reader between the two sees a key that does not fit: it
keeps what it has, and looks again. A command that was killed before the first rename has changed nothing; one that was
killed later is finished by the next command.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from halog.errors import ConfigError, HalogError, RefusedError

DIRECTORY_MODE: Final = 0o700
SECRET_MODE: Final = 0o600
PUBLIC_MODE: Final = 0o644
OTHERS: Final = 0o077
OTHERS_WRITE: Final = 0o022
MOST_BYTES: Final = 1_000_000
"""No file of certificates is larger than this, by far."""
ORDER: Final = (".key", ".pem", ".crt")
"""Files of one holder take their names in this order. `.pem` has the key and the certificate, as the JVM reads them."""
LOCK: Final = ".lock"


class NewFile(NamedTuple):
    """This is a file that is to be written."""

    name: str
    data: bytes
    mode: int = PUBLIC_MODE


class CertsDirectory:
    """A `CertsDirectory` reads and writes the files of one directory. Nothing is written without `writing`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def place(self, name: str) -> Path:
        """Return the path of a file of this directory."""
        return self.path / name

    def names(self) -> list[str]:
        """Return the names of all files but the hidden ones, in order."""
        try:
            return sorted(p.name for p in self.path.iterdir() if not p.name.startswith(".") and p.is_file())
        except FileNotFoundError:
            raise ConfigError(
                f"{self.path}: there is no such directory; name it with --certs-dir, or make it with `halog certs "
                "create-ca`"
            ) from None
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be read: {error.strerror}") from error

    def interrupted(self) -> list[str]:
        """Return the names of files that a command which was killed has not yet put in place."""
        return sorted(p.name[1 : -len(".new")] for p in self.path.glob(".*.new"))

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep other commands from writing, and finish what one that was killed had begun. The directory is made if it
        is not there. Others must not be able to write in it: they could replace the authority."""
        try:
            self.path.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
            mode = self.path.stat().st_mode
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be made a directory: {error.strerror}") from error
        if mode & OTHERS_WRITE:
            raise RefusedError(
                f"{self.path}: others may write there, and could replace what is trusted; `chmod 700 {self.path}`"
            )
        with self._locked():
            self._finish_interrupted()
            yield

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            number = os.open(self.place(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, SECRET_MODE)
        except OSError as error:
            raise _unwritable(self.place(LOCK), error) from error
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(number)
            raise RefusedError(
                f"{self.path}: another command writes there; nothing was changed. Repeat this when it has ended"
            ) from None
        try:
            yield
        finally:
            os.close(number)

    def _finish_interrupted(self) -> None:
        for unfinished in self.path.glob(".*.part"):
            unfinished.unlink(missing_ok=True)
        stems = {name.rpartition(".")[0] for name in self.interrupted()}
        for stem in sorted(stems):
            if self._staged(f"{stem}.key").exists():  # no file has its name yet
                for suffix in reversed(ORDER):  # the key's last: as long as it is there nothing counts
                    self._staged(stem + suffix).unlink(missing_ok=True)
            else:
                self._put_in_place([stem + suffix for suffix in ORDER if self._staged(stem + suffix).exists()])

    def write(self, new: NewFile) -> None:
        """Write one file, whole."""
        self._check_replaceable(new.name)
        part = self._write_part(new)
        try:
            os.replace(part, self.place(new.name))
            self._sync()
        except OSError as error:
            raise _unwritable(self.place(new.name), error) from error

    def write_together(self, files: Sequence[NewFile]) -> None:
        """Write files that belong together, in the order of `ORDER`. The first one must be the key."""
        for new in files:
            self._check_replaceable(new.name)
        try:
            for new in files:
                os.replace(self._write_part(new), self._staged(new.name))
            self._sync()
            self._put_in_place([new.name for new in files])
        except OSError as error:
            raise _unwritable(self.place(files[0].name), error) from error

    def rename(self, name: str, to: str) -> None:
        """Give a file another name, which is free."""
        os.replace(self.place(name), self.place(to))
        self._sync()

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        self.place(name).unlink(missing_ok=True)
        self._sync()

    def _put_in_place(self, names: Sequence[str]) -> None:
        for name in names:
            os.replace(self._staged(name), self.place(name))
            self._sync()

    def _write_part(self, new: NewFile) -> Path:
        part = self.place(f".{new.name}.part")
        part.unlink(missing_ok=True)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(part, flags, new.mode), "wb") as out:
                out.write(new.data)
                out.flush()
                os.fsync(out.fileno())
        except OSError as error:
            raise _unwritable(self.place(new.name), error) from error
        return part

    def _staged(self, name: str) -> Path:
        return self.place(f".{name}.new")

    def _check_replaceable(self, name: str) -> None:
        target = self.place(name)
        if target.is_symlink():
            raise RefusedError(
                f"{target}: is a link, which is not replaced by a file; nothing was changed. Write where it leads to"
            )

    def _sync(self) -> None:
        number = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def read_public(path: Path) -> bytes:
    """Return what a file that is no secret holds. ConfigError if it cannot be read, or is too large."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > MOST_BYTES:
        raise ConfigError(f"{path}: is larger than {MOST_BYTES} bytes: it holds no certificates")
    return data


def read_secret(path: Path) -> bytes:
    """Return what a key's file holds. RefusedError if others than its owner can read or write it."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    if problem := secret_problem(path, mode):
        raise RefusedError(problem, file=str(path))
    return read_public(path)


def secret_problem(path: Path, mode: int) -> str:
    """Return what is wrong with the mode of a key's file; "" if only its owner has access."""
    if not mode & OTHERS:
        return ""
    return f"{path}: others have access to this key (mode {stat.S_IMODE(mode):04o}); `chmod 600 {path}`"


def _unwritable(path: Path, error: OSError) -> HalogError:
    return HalogError(f"{path}: cannot be written: {error.strerror}")
