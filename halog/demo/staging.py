"""What every demo's stage is: a with-block that leaves nothing behind but the evidence of a failure.

`wait` is the only loop: whatever is waited for, a child that ended unasked is noticed, and the scene is up to date.
"""

from __future__ import annotations

import abc
import re
import secrets
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from halog.demo.processes import told_to_end
from halog.errors import DeadlineError, SiteError

LOOK_S = 0.02
"""Restart and catch-up are measured this finely."""
UP_S = 60.0
"""A node of ours is up in two seconds; a loaded machine may need ten times that."""
GRACE_S = 0.2
"""What is left then is killed: the data is judged or abandoned, and with all nodes leaving there is no successor."""


class Told(Protocol):
    """Who hears what happens."""

    def tell(self, text: str) -> None: ...


class Staging(abc.ABC):
    """One run, in a directory of its own below `data_dir`; None: one that is gone afterwards."""

    def __init__(self, data_dir: Path | None, scene: Told) -> None:
        self.base = prepared(data_dir)
        self.run_dir = self.base / f"run-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        self.keep = data_dir is not None
        """Whether data, logs and journals stay; those of a failed run are evidence."""
        self._told = scene

    @abc.abstractmethod
    def _open(self) -> None:
        """Start everything."""

    @abc.abstractmethod
    def _has_begun(self) -> bool:
        """Is there anything to be kept?"""

    @abc.abstractmethod
    def close(self) -> None:
        """Nothing of this run is alive afterwards."""

    @abc.abstractmethod
    def _look(self) -> None:
        """HalogError if a child ended unasked; the scene is up to date afterwards."""

    def __enter__(self) -> Self:
        try:
            self._open()
            _check()
        except BaseException as error:
            self._end(error)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        """KeyboardInterrupt if that is what became of an interruption."""
        if isinstance(error, Exception) and not told_to_end() and self._has_begun() and not self.keep:
            self.keep_evidence()
        self.close()
        if not isinstance(error, KeyboardInterrupt):
            _check()

    def keep_evidence(self) -> None:
        """Something is wrong: leave data, logs and journals where they are."""
        self.keep = True
        self._told.tell(f"data, logs and journals are kept in {self.run_dir}")

    def wait(self, what: str, happened: Callable[[], bool], limit_s: float | None = None) -> None:
        """Wait; DeadlineError names `what`, HalogError a child that ended unasked."""
        until = None if limit_s is None else time.monotonic() + limit_s
        while not happened():
            _check()
            self._look()
            if until is not None and time.monotonic() >= until:
                raise DeadlineError(f"waited {limit_s:.0f} s for {what}; see the logs in {self.run_dir}")
            time.sleep(LOOK_S)
        self._look()


def _check() -> None:
    """Was an interruption lost on its way?"""
    if told_to_end():
        raise KeyboardInterrupt


def prepared(directory: Path | None) -> Path:
    """The demo's directory; SiteError for one that holds other things."""
    if directory is None:
        return Path(tempfile.mkdtemp(prefix="halog-demo-"))
    path = directory.absolute()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        foreign = sorted(p.name for p in path.iterdir() if not re.fullmatch(r"sites?|run-[0-9a-f-]+", p.name))
    except OSError as e:
        raise SiteError(f"data directory {path} cannot be used ({e.strerror}): choose another --data-dir") from None
    if foreign:
        raise SiteError(
            f"data directory {path} holds files that are not the demo's ({foreign[0]}): choose an empty or a new "
            "--data-dir",
            found=foreign[:5],
        )
    return path
