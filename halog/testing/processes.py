"""This module runs nodes, and other modules of an application, in processes of their own for tests (X5). A test can
kill, freeze and thaw them. They cannot outlive the process that started them.

    node = start_node("A", "halog.toml", tmp_path)
    node.ready()
    node.kill()

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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Final

from halog.embedded.archives import child_environment
from halog.errors import HalogError

UP_S: Final = 60.0
END_S: Final = 30.0
"""An orderly end takes a hand-over and a few hundred ms, and a hundred times that on a busy machine."""

GONE_S: Final = 10.0
"""Within this a process is gone, or stands still, that was sent SIGKILL or SIGSTOP."""


class ChildProcess:
    """A `ChildProcess` runs `python -m` of `argv`. Its stderr is added to `<name>.log`, its stdout is in `<name>.out`.
    With `pipes` it is told and heard line by line instead."""

    def __init__(self, name: str, argv: Sequence[str], directory: Path, *, pipes: bool = False) -> None:
        self.name = name
        self.log = self._log_in(directory)
        self.out = directory / f"{name}.out"
        with self.log.open("ab") as err:
            if pipes:
                self._process = self._begin(argv, directory, subprocess.PIPE, err)
            else:
                with self.out.open("wb") as out:
                    self._process = self._begin(argv, directory, out, err)

    def _log_in(self, directory: Path) -> Path:
        return directory / f"{self.name}.log"

    def _begin(
        self, argv: Sequence[str], directory: Path, out: IO[bytes] | int, err: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        if threading.current_thread() is not threading.main_thread():
            raise HalogError("child processes are started on the main thread, with which they die")
        return subprocess.Popen(
            [sys.executable, "-m", "halog.testing.child", str(os.getpid()), *argv],
            env=child_environment(),
            stdin=out if out == subprocess.PIPE else subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    # --- what it says ---

    @property
    def said(self) -> IO[bytes]:
        """Return its stdout, where it has a pipe."""
        assert self._process.stdout is not None
        return self._process.stdout

    def tell(self, line: str) -> None:
        """Write a line to its stdin. If nobody reads it, that is noticed elsewhere."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def lines(self) -> list[str]:
        """Return the complete lines that it has said on stdout."""
        said = self.out.read_text()
        return said[: said.rfind("\n") + 1].splitlines()

    def ready(self, limit_s: float = UP_S) -> None:
        """Wait until it has said its first line: a node is up then. HalogError if it ends before."""
        _wait(lambda: bool(self.lines()) or not self.running, f"{self.name} says that it is up", limit_s)
        self._check(bool(self.lines()))

    def check(self) -> None:
        """Raise HalogError if it has ended, which nobody asked for."""
        self._check(self.running)

    def _check(self, good: bool) -> None:
        if not good:
            code, words = self._process.poll(), self.last_words()
            raise HalogError(f"{self.name} ended unasked (exit code {code}): {words}; see {self.log}")

    def last_words(self, characters: int = 200) -> str:
        """Return the end of what it has said on stderr, for an error message."""
        return self.log.read_text(errors="replace")[-characters:].strip() or "it said nothing"

    # --- signals ---

    def signal(self, number: int) -> None:
        """Send it a signal, if it has not ended."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Send SIGKILL (kill -9); it is gone when this returns."""
        self.signal(signal.SIGKILL)
        self.exit_code(GONE_S)

    def freeze(self) -> None:
        """Send SIGSTOP: it is alive, connected and silent. Every thread stands still when this returns."""
        self.signal(signal.SIGSTOP)
        _wait(self._stands_still, f"{self.name} stands still", GONE_S)

    def _stands_still(self) -> bool:
        stats = Path(f"/proc/{self.pid}/task").glob("*/stat")
        return all(s.read_text().rpartition(")")[2].split()[0] in "TtZ" for s in stats)

    def thaw(self) -> None:
        """Send SIGCONT: a frozen process goes on."""
        self.signal(signal.SIGCONT)

    # --- its end ---

    def exit_code(self, limit_s: float = END_S) -> int:
        """Wait until it has ended."""
        return self._process.wait(limit_s)

    def terminate(self, limit_s: float = END_S) -> int:
        """Send SIGTERM, after which a node hands over and ends. Wait for that, and return its exit code."""
        self.signal(signal.SIGTERM)
        return self.exit_code(limit_s)

    def finish(self, until: float) -> None:
        """Wait for its end until that time of `time.monotonic()`; then kill it. Close its pipes."""
        try:
            self.exit_code(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def start_node(name: str, config: str | Path, directory: Path) -> ChildProcess:
    """Start a node of that configuration; `ready` waits until it is up. What it says is in files in `directory`. It
    imports the application's modules from where this process is, and from `PYTHONPATH`."""
    return ChildProcess(name, ["halog.cli.main", "node", "start", "--config", str(config), "--name", name], directory)


def _wait(holds: Callable[[], bool], what: str, limit_s: float) -> None:
    until = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > until:
            raise HalogError(f"not within {limit_s:g} s: {what}")
        time.sleep(0.02)
