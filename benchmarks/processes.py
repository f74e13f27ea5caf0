"""The harness's side of its children: start, ask, kill, end. All of them end with the harness."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

from benchmarks.worker import lines
from halog.testing.processes import ChildProcess

ROOT = Path(__file__).resolve().parents[1]
STOP_S = 8.0
"""An orderly end takes a hand-over and a few hundred ms; then SIGKILL."""


class ChildError(Exception):
    """A child answered an error, or nothing."""


class Child(ChildProcess):
    """One process of a role, which answers commands."""

    def __init__(self, name: str, role: str, logs: Path, args: dict[str, Any]) -> None:
        super().__init__(name, ["benchmarks.worker", role, json.dumps(args)], logs, pipes=True)

    def command(self, do: str, **args: Any) -> None:
        """Send a command; `heard` brings its answer."""
        self.tell(json.dumps({"do": do, **args}))

    def heard(self) -> Any:
        """The answer to the oldest command not yet answered; ChildError."""
        try:
            said = lines(self.said)
        except BrokenPipeError:
            raise ChildError(f"{self.name} ended; see {self.log}") from None
        if "error" in said:
            raise ChildError(f"{self.name}: {said['error']}; see {self.log}")
        return said["ok"]

    def ask(self, do: str, **args: Any) -> Any:
        """Send a command and wait for its answer."""
        self.command(do, **args)
        return self.heard()

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        super().kill()
        self.finish(time.monotonic())

    def stop(self) -> None:
        """An orderly end where it understands one."""
        if self.running:
            self.command("close")
            with contextlib.suppress(OSError):
                assert self._process.stdin is not None
                self._process.stdin.close()
        self.finish(time.monotonic() + STOP_S)
