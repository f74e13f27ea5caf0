"""This module runs one server as a child process that dies with its parent. The supervisor decides when.

The child asks the kernel for SIGKILL at its parent's death (PR_SET_PDEATHSIG). The kernel means the parent *thread*; so
only single-threaded processes use this: the supervisor, and the builder of class archives.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from halog.embedded import settings
from halog.embedded.model import ServerName, boot_clock

PR_SET_PDEATHSIG = 1
POLL_S = 0.01  # fine enough to be lost in a start of a second
_libc = ctypes.CDLL(None, use_errno=True)


def dies_with(parent: int) -> Callable[[], None]:
    """Return a function to run in the child between fork and exec: it makes the child die with its parent."""

    def ask() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before we asked
            os._exit(127)

    return ask


@dataclass
class Server:
    """A `Server` is Kafka or ZooKeeper of one site."""

    name: ServerName
    root: Path
    argv: list[str]
    answers: Callable[[], bool]
    process: subprocess.Popen[bytes] | None = None
    ready_ms: int = 0
    wanted: bool = False  # started and not told to stop: its end is news
    _out: Path = field(init=False)

    def __post_init__(self) -> None:
        self._out = self.root / "logs" / f"{self.name}.out"

    @property
    def pid(self) -> int:
        return self.process.pid if self.process else 0

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def spawn(self) -> None:
        """Start it; `answers` tells when it serves."""
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(
                self.argv,
                cwd=self.root,
                env=settings.environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                preexec_fn=dies_with(os.getpid()),
            )
        self.ready_ms = 0
        self.wanted = True

    def note_ready(self, since: float) -> bool:
        """Ask once whether it answers; remember how long the first answer took."""
        if not self.ready_ms and self.answers():
            self.ready_ms = max(1, round((boot_clock() - since) * 1000))
        return self.ready_ms > 0

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.alive():
            self.process.send_signal(number)

    def pause(self) -> None:
        """Stop it where it is. When this returns, none of its threads runs any more. The signal alone does not promise
        that: on a busy machine a broker went on for some ms, and answered."""
        if self.process is not None and self.alive():
            self.process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self.wanted = False
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def last_words(self) -> str:
        """Return the last line it wrote, for an error message."""
        for path in (self._out, self.root / "logs" / f"{self.name}.log"):
            lines = _tail(path)
            if lines:
                return lines[-1]
        return "it said nothing"


def stop_all(servers: list[Server], grace_s: float) -> None:
    """Send SIGTERM to all at once, and SIGKILL to those that still run after `grace_s`."""
    for server in servers:
        server.wanted = False
        server.signal(signal.SIGCONT)  # a paused process does not hear SIGTERM
        server.signal(signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while any(s.alive() for s in servers) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    for server in servers:
        server.kill()


def _tail(path: Path, size: int = 4096) -> list[str]:
    try:
        with path.open("rb") as f:
            f.seek(max(0, path.stat().st_size - size))
            text = f.read().decode(errors="replace")
    except OSError:
        return []
    # the message, not the stack below it
    return [ln.strip() for ln in text.splitlines() if ln.strip() and not ln.startswith(("\t", "Caused by", "    at "))]
