"""Processes of these tests: nodes by `halog node start`, clients by `client.py`. They cannot outlive pytest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from halog.testing.processes import ChildProcess
from tests.forked import started

LIMIT_S = 90.0
"""For what takes a second where the machine has time for it. Only a test that fails waits for so long."""
ROOT = Path(__file__).resolve().parents[3]


def wait(condition: Callable[[], object], what: str | Callable[[], str], limit_s: float = LIMIT_S) -> None:
    """Until it holds, or the test fails with `what`."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit_s:g} s: {what if isinstance(what, str) else what()}"
        time.sleep(0.02)


def passes(seconds: float) -> None:
    """A fault lasts this long: the only sleep of these tests that is not a look."""
    time.sleep(seconds)


class Process(ChildProcess):
    """One run of a process. Started on the main thread: the kernel may kill it with that."""

    def __init__(self, name: str, directory: Path, argv: list[str], source: Path | None = None) -> None:
        """Run a module of this halog, or of the one in `source`."""
        self._source = source
        super().__init__(name, argv, directory)

    def _log_in(self, directory: Path) -> Path:
        return directory / f"{self.name}.err"

    def _begin(self, argv: Sequence[str], directory: Path, out: IO[bytes] | int, err: IO[bytes]) -> Any:
        assert not isinstance(out, int), "it says all of it into a file"
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{directory}", "PYTHONFAULTHANDLER": "1"}
        if self._source is None:
            return started(argv, cwd=directory, env=env, out=out, err=err)
        return subprocess.Popen(
            [sys.executable, "-m", "halog.testing.child", str(os.getpid()), *argv],
            cwd=directory,
            env={**env, "PYTHONPATH": f"{self._source}:{env['PYTHONPATH']}"},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )

    def stacks(self) -> str:
        """Ends it and tells what each of its threads was doing."""
        before = len(self.log.read_text())
        if self.running:
            self.thaw()
            self.signal(signal.SIGABRT)
            self.exit_code(10)
        return self.log.read_text()[before:]
