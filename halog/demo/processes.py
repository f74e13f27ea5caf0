"""This module runs the demo's children: node processes and the client. They cannot outlive the process that started
them.

A child asks the kernel for SIGKILL at its parent's death before it does anything else (`child`); the kernel means the
parent *thread*, so children are started on the main thread. A group of their own keeps a Ctrl-C in the terminal from
reaching them before their parent decides what to do.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from halog.embedded.archives import child_environment
from halog.errors import HalogError

STOP_S = 8.0
"""An orderly end takes a hand-over and a few hundred ms; then SIGKILL follows."""


class Child:
    """A `Child` is one child process, `python -m` of `argv`; its stderr goes to `<name>.log`."""

    def __init__(self, name: str, argv: list[str], logs: Path, *, pipes: bool = False) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise HalogError("children of the demo are started on its main thread, with which they die")
        self.name = name
        self.log = logs / f"{name}.log"
        self.started = time.monotonic()
        pipe = subprocess.PIPE if pipes else subprocess.DEVNULL
        with self.log.open("ab") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "halog.demo.child", str(os.getpid()), *argv],
                env=child_environment(),
                stdin=pipe,
                stdout=pipe,
                stderr=err,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    @property
    def said(self) -> IO[bytes]:
        """Return the child's stdout."""
        assert self._process.stdout is not None
        return self._process.stdout

    def tell(self, line: str) -> None:
        """Write a line to its stdin. If nobody reads it, that is noticed elsewhere."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def kill(self) -> None:
        """Kill it (kill -9), without waiting."""
        os.kill(self.pid, signal.SIGKILL)

    def pause(self) -> None:
        """Stop it with SIGSTOP: it is alive, connected, and silent."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Wake it with SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def check(self, called: str) -> None:
        """Raise HalogError if it has ended, which nobody asked for."""
        if not self.alive:
            raise HalogError(
                f"{called} ended unasked (exit code {self.exit_code}): {self.last_words()}; see {self.log}"
            )

    def reap(self) -> None:
        """Wait for a process that was killed."""
        self._process.wait(STOP_S)

    def last_words(self) -> str:
        """Return the last line of its log, for an error message."""
        try:
            lines = [ln.strip() for ln in self.log.read_text(errors="replace").splitlines() if ln.strip()]
        except OSError:
            lines = []
        return lines[-1][:200] if lines else "it said nothing"

    def terminate(self) -> None:
        """Send SIGTERM, also to a process that is stopped."""
        if self.alive:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()

    def finish(self, until: float) -> None:
        """Wait until it has ended; kill it after the deadline."""
        try:
            self._process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def stop_all(children: list[Child], grace_s: float = STOP_S) -> None:
    """End all of them together."""
    for child in children:
        child.terminate()
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
