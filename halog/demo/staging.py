"""This module holds what every demo's stage does: a with-block that leaves nothing behind except the evidence of a
failure.

`wait` is the only loop: while it waits, it notices a child that ended unasked, and the scene is up to date.
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
"""Processes that are left after this are killed: the data is judged or abandoned, and with all nodes leaving there is
no successor."""


class StoryTeller(Protocol):
    """A `StoryTeller` hears what happens."""

    def tell(self, text: str) -> None: ...


class Staging(abc.ABC):
    """A `Staging` is one run, in a directory of its own below `data_dir`; None: one that is removed afterwards."""

    def __init__(self, data_dir: Path | None, scene: StoryTeller) -> None:
        self.base = prepared(data_dir)
        self.run_dir = self.base / f"run-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        self.keep = data_dir is not None
        """Do data, logs and journals stay? Those of a failed run are evidence."""
        self._told = scene

    @abc.abstractmethod
    def _open(self) -> None:
        """Start everything."""

    @abc.abstractmethod
    def _has_begun(self) -> bool:
        """Is there anything to be kept?"""

    @abc.abstractmethod
    def close(self) -> None:
        """End everything of this run."""

    @abc.abstractmethod
    def _look(self) -> None:
        """Bring the scene up to date; HalogError if a child ended unasked."""

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
        """End the run. KeyboardInterrupt if the error came of an interruption."""
        if isinstance(error, Exception) and not told_to_end() and self._has_begun() and not self.keep:
            self.keep_evidence()
        self.close()
        if not isinstance(error, KeyboardInterrupt):
            _check()

    def journal(self, name: str) -> Path:
        """Return the path of a client's journal."""
        return self.run_dir / f"{name}.journal"

    def keep_evidence(self) -> None:
        """Leave data, logs and journals where they are, since something is wrong."""
        self.keep = True
        self._told.tell(f"data, logs and journals are kept in {self.run_dir}")

    def wait(self, what: str, happened: Callable[[], bool], limit_s: float | None = None) -> None:
        """Wait until `happened()`; DeadlineError names `what`, HalogError a child that ended unasked."""
        until = None if limit_s is None else time.monotonic() + limit_s
        while not happened():
            _check()
            self._look()
            if until is not None and time.monotonic() >= until:
                raise DeadlineError(f"waited {limit_s:.0f} s for {what}; see the logs in {self.run_dir}")
            time.sleep(LOOK_S)
        self._look()


def node_command(config: Path, name: str) -> list[str]:
    """Return the arguments of a child that is a node of the cluster."""
    return ["halog.cli.main", "node", "start", "--config", str(config), "--name", name, "--log-level", "info"]


def _check() -> None:
    """Raise KeyboardInterrupt if an interruption was lost on its way."""
    if told_to_end():
        raise KeyboardInterrupt


def prepared(directory: Path | None) -> Path:
    """Return the demo's directory; SiteError for one that holds other things."""
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
