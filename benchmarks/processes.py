"""The harness's side of its children: start, ask, kill, end. All of them end with the harness."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.worker import lines

ROOT = Path(__file__).resolve().parents[1]
STOP_S = 8.0
"""An orderly end takes a hand-over and a few hundred ms; then SIGKILL."""


class ChildError(Exception):
    """A child answered an error, or nothing."""


class Child:
    """One process; its stderr goes to `logs/<name>.log`."""

    def __init__(self, name: str, role: str, logs: Path, args: dict[str, Any]) -> None:
        self.name = name
        self.log = logs / f"{name}.log"
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        with self.log.open("ab") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.worker", str(os.getpid()), role, json.dumps(args)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=err,
                env=env,
                start_new_session=True,  # a Ctrl-C ends the harness, which ends them
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, do: str, **args: Any) -> None:
        """Send a command; `heard` brings its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **args}).encode() + b"\n")
        self._process.stdin.flush()

    def heard(self) -> Any:
        """The answer to the oldest command not yet answered; ChildError."""
        assert self._process.stdout is not None
        try:
            said = lines(self._process.stdout)
        except BrokenPipeError:
            raise ChildError(f"{self.name} ended; see {self.log}") from None
        if "error" in said:
            raise ChildError(f"{self.name}: {said['error']}; see {self.log}")
        return said["ok"]

    def ask(self, do: str, **args: Any) -> Any:
        """Send a command and wait for its answer."""
        self.tell(do, **args)
        return self.heard()

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self._process.kill()
        self._process.wait()
        self._close()

    def stop(self) -> None:
        """An orderly end where it understands one."""
        if self._process.poll() is None:
            with contextlib.suppress(ChildError, OSError):
                self.tell("close")
            with contextlib.suppress(OSError):
                assert self._process.stdin is not None
                self._process.stdin.close()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._close()

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
