"""Processes of these tests: nodes by `halog node start`, clients by `client.py`. They cannot outlive pytest."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.forked import started

ROOT = Path(__file__).resolve().parents[3]


def wait(condition: Callable[[], object], what: str | Callable[[], str], limit_s: float = 45.0) -> None:
    """Until it holds, or the test fails with `what`."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit_s:g} s: {what if isinstance(what, str) else what()}"
        time.sleep(0.02)


def passes(seconds: float) -> None:
    """A fault lasts this long: the only sleep of these tests that is not a look."""
    time.sleep(seconds)


class Process:
    """One run of a process. Started on the main thread: the kernel may kill it with that."""

    def __init__(self, name: str, directory: Path, argv: list[str]) -> None:
        self.name = name
        self.out = directory / f"{name}.out"
        self.err = directory / f"{name}.err"
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{directory}", "PYTHONFAULTHANDLER": "1"}
        with self.out.open("w") as out, self.err.open("a") as err:
            self._process = started(argv, cwd=directory, env=env, out=out, err=err)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def lines(self) -> list[str]:
        """The complete lines it has said on stdout."""
        said = self.out.read_text()
        return said[: said.rfind("\n") + 1].splitlines()

    def ready(self, limit_s: float = 60.0) -> None:
        """Until it has said its first line."""
        wait(lambda: self.lines() or not self.running, f"{self.name} says that it is up", limit_s)
        assert self.lines(), f"{self.name} ended with {self._process.poll()}: {self.last_words()}"

    def last_words(self, characters: int = 600) -> str:
        return self.err.read_text()[-characters:]

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def stop(self) -> None:
        """SIGSTOP; every thread stands still when this returns."""
        self._process.send_signal(signal.SIGSTOP)
        wait(self._stands_still, f"{self._process.pid} did not stop", 10)

    def _stands_still(self) -> bool:
        stats = Path(f"/proc/{self._process.pid}/task").glob("*/stat")
        return all(s.read_text().rpartition(")")[2].split()[0] in "TtZ" for s in stats)

    def kill(self) -> None:
        """kill -9; it is gone when this returns."""
        self._process.kill()
        self._process.wait(10)

    def terminate(self, limit_s: float = 30.0) -> int:
        """SIGTERM; its exit code."""
        self._process.terminate()
        return self._process.wait(limit_s)

    def exit_code(self, limit_s: float = 30.0) -> int:
        return self._process.wait(limit_s)

    def stacks(self) -> str:
        """Ends it and tells what each of its threads was doing."""
        before = len(self.err.read_text())
        if self.running:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGABRT)
            self._process.wait(10)
        return self.err.read_text()[before:]

    def end(self) -> None:
        """Whatever state it is in."""
        if self.running:
            self.signal(signal.SIGKILL)
        self._process.wait(10)
