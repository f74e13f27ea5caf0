"""Commands have these helpers for files; `-` is standard input, or standard output."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from halog.config.read import STANDARD

if TYPE_CHECKING:
    from halog.errors import HalogError


class Source:
    """Opens a file from its beginning as often as asked. It keeps a copy of standard input while it is open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._copy: IO[bytes] | None = None

    def __str__(self) -> str:
        return "standard input" if self._path == STANDARD else str(self._path)

    def open(self) -> IO[bytes]:
        """Open the file at its beginning. OSError."""
        if self._path != STANDARD:
            return self._path.open("rb")
        if self._copy is None:
            copy = tempfile.TemporaryFile()  # noqa: SIM115 - as long as this object is there
            shutil.copyfileobj(sys.stdin.buffer, copy)
            self._copy = copy
        self._copy.seek(0)
        return open(os.dup(self._copy.fileno()), "rb")


def is_standard(target: Path) -> bool:
    """Does this go to standard output? Then everything else that the command says goes to stderr."""
    return target == STANDARD


@contextlib.contextmanager
def written_whole(target: Path) -> Iterator[IO[str]]:
    """Give a file that takes its name only when it is complete. Only its owner can read it, for it holds everything.
    Standard output takes what there is as it comes.

    A link stays, and the file it leads to is replaced. A device or a pipe is refused: it cannot be replaced.
    """
    if is_standard(target):
        yield from _standard()
        return
    from halog.errors import ConfigError

    target = target.resolve() if target.is_symlink() else target
    if target.exists() and not target.is_file():
        raise ConfigError(
            f"{target}: cannot be written: it is not a file; name a file, which appears when it is complete"
        )
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        raw = _Unfinished(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), target)
    except OSError as error:
        raise ConfigError(f"{target}: cannot be written: {error.strerror}") from error
    try:
        with io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8") as out:
            yield out
        try:
            unfinished.replace(target)
        except OSError as error:
            raise _unwritable(target, error) from error
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def _standard() -> Iterator[IO[str]]:
    sys.stdout.flush()
    out = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="\n")
    try:
        yield out
    finally:
        out.detach()  # writes what it holds


class _Unfinished(io.FileIO):
    """Is the file of a target while it is not complete. An error of a write names the target, so that it is not taken
    for one of stdout."""

    def __init__(self, number: int, target: Path) -> None:
        super().__init__(number, "w")
        self._target = target

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise _unwritable(self._target, error) from error

    def close(self) -> None:
        try:
            super().close()
        except OSError as error:  # a remote disk may tell its error only now
            raise _unwritable(self._target, error) from error


def _unwritable(target: Path, error: OSError) -> HalogError:
    from halog.errors import HalogError

    return HalogError(f"{target}: cannot be written: {error.strerror}; no file was written")
