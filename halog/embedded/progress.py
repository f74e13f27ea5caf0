"""This module tells a person what takes long on the first start. It writes to stderr only; nothing ever depends on
it."""

from __future__ import annotations

import logging
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress, TaskID

log = logging.getLogger("halog.embedded")


class Progress(Protocol):
    """A `Progress` takes reports of work; `total` 0 means that the amount is not known."""

    def report(self, text: str, done: int, total: int) -> None: ...


class LogProgress:
    """Logs one INFO line per kind of work: for Python callers without a terminal."""

    def __init__(self) -> None:
        self._said = ""

    def report(self, text: str, done: int, total: int) -> None:
        if text != self._said:
            self._said = text
            log.info("%s", text)


class PlainProgress:
    """Writes one line per kind of work to a stderr that is no terminal, and only if it takes longer than a moment."""

    PATIENCE_S = 10.0  # a failure before that is the only line there is

    def __init__(self) -> None:
        self._began: dict[str, float] = {}
        self._said: set[str] = set()

    def report(self, text: str, done: int, total: int) -> None:
        began = self._began.setdefault(text, time.monotonic())
        if text not in self._said and time.monotonic() - began > self.PATIENCE_S:
            self._said.add(text)
            sys.stderr.write(f"{text}\n")


class BarProgress:
    """Draws a bar on stderr, from the first report on: a cached start never imports rich."""

    def __init__(self) -> None:
        self._plain = None if sys.stderr.isatty() else PlainProgress()
        self._bar: RichProgress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def report(self, text: str, done: int, total: int) -> None:
        if self._plain is not None:
            return self._plain.report(text, done, total)
        if self._bar is None:
            self._bar = _start_bar()
        if text not in self._tasks:
            self._tasks[text] = self._bar.add_task(text, total=total or None)
        return self._bar.update(self._tasks[text], completed=done, total=total or None)


def _start_bar() -> RichProgress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress as RichProgress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    bar = RichProgress(*columns, console=Console(file=sys.stderr), transient=True)  # what stays is the outcome
    bar.start()
    return bar
