"""This module manages halog's cache directory: what can be fetched or built again. It never holds data of a site."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from halog.embedded.progress import Progress
from halog.errors import SiteError

WAIT_S = 900.0  # a slow network's fetch by the process before us
_MAKING = "making-"


def root() -> Path:
    """Return $HALOG_CACHE, else halog's directory under XDG_CACHE_HOME."""
    if os.environ.get("HALOG_CACHE"):
        return Path(os.environ["HALOG_CACHE"]).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "halog").absolute()


@contextmanager
def locked(progress: Progress) -> Iterator[None]:
    """Lock the cache: one process at a time changes it; the others wait, and say so."""
    path = root()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as e:
        raise SiteError(f"cache directory {path} cannot be used ({e.strerror}): set HALOG_CACHE") from None
    try:
        _wait_for(fd, progress)
        yield
    except OSError as e:
        raise SiteError(
            f"cache directory {path} cannot be used ({e.strerror}): free some space or set HALOG_CACHE"
        ) from e
    finally:
        os.close(fd)


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a directory in which something is made before it is renamed to its place. The caller has the cache locked,
    so any older such directory belongs to a process that was killed, and is removed."""
    for left in root().glob(f"{_MAKING}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_MAKING, dir=root()) as made:
        yield Path(made)


def _wait_for(fd: int, progress: Progress) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.report("another halog process is filling the cache", 0, 0)
            if time.monotonic() > deadline:
                raise SiteError(f"another process has held {root()}/lock for {WAIT_S:.0f} s: end it") from None
            time.sleep(0.1)
