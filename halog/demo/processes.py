"""This module starts and ends the demo's children: node processes and the client. They cannot outlive it."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from halog.testing.processes import ChildProcess

STOP_S = 8.0
"""An orderly end takes a hand-over and a few hundred ms; then SIGKILL follows."""


class Child(ChildProcess):
    """A `Child` is one child process, which knows when it was started."""

    def __init__(self, name: str, argv: Sequence[str], logs: Path, *, pipes: bool = False) -> None:
        self.started = time.monotonic()
        super().__init__(name, argv, logs, pipes=pipes)


def stop_all(children: list[Child], grace_s: float = STOP_S) -> None:
    """End all of them together."""
    for child in children:
        child.thaw()
        child.signal(signal.SIGTERM)
    until = time.monotonic() + grace_s
    for child in children:
        child.finish(until)


_told_to_end = False


def listen() -> None:
    """Make SIGINT and SIGTERM interrupt the main thread from now on, and remember that. A KeyboardInterrupt that comes
    while Python frees an object is lost, and a library that it interrupts may raise something else instead."""

    def hear(number: int, frame: object) -> None:
        global _told_to_end
        _told_to_end = True
        raise KeyboardInterrupt

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, hear)


def told_to_end() -> bool:
    """Has one of these signals come since?"""
    return _told_to_end


@contextlib.contextmanager
def undivided() -> Iterator[None]:
    """Delay a signal that comes while a process is started until the process is known: else nobody would end it."""
    heard: list[int] = []
    before = {n: signal.signal(n, lambda number, _: heard.append(number)) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        for number in heard:
            signal.raise_signal(number)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore a second Ctrl-C, which would leave half of the processes behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
