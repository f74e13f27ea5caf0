"""Runs `halog demo` as a user does, in a process of its own, and looks for what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROWS = 3_000
"""Enough for a kill, a restart and a freeze in the middle."""
LIMIT_S = 480.0
"""On a machine that runs other tests at the same time."""
ENDS_S = 120.0
"""For a demo that is told to end, and for the last of its processes."""


@dataclass(frozen=True)
class Ran:
    """How a run ended."""

    code: int
    out: str
    err: str

    @property
    def result(self) -> dict[str, Any]:
        """The one document on stdout."""
        lines = self.out.strip().splitlines()
        assert len(lines) == 1, self.err
        found: dict[str, Any] = json.loads(lines[0])
        return found


def start(*options: str) -> subprocess.Popen[str]:
    """The command, in a group of its own as a shell would have it."""
    return subprocess.Popen(
        [sys.executable, "-m", "halog.cli.main", "demo", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(*options: str) -> Ran:
    """The command to its end."""
    process = start(*options)
    try:
        out, err = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    return Ran(process.returncode, out, err)


def processes_of(data_dir: Path) -> dict[int, str]:
    """Living processes that name the directory in their arguments, or work in it."""
    found = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            line = Path(entry.path, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            where = os.readlink(f"{entry.path}/cwd")
            state = Path(entry.path, "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z" and (str(data_dir) in line or where.startswith(str(data_dir))):
            found[int(entry.name)] = line
    return found


def await_none(data_dir: Path, limit_s: float) -> dict[int, str]:
    """Those still there after `limit_s`."""
    until = time.monotonic() + limit_s
    while (left := processes_of(data_dir)) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def read_until(process: subprocess.Popen[str], text: str) -> None:
    """Follow stderr to a line that holds the text."""
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return
    raise AssertionError(f"the demo ended before it said {text!r}")


def interrupt(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """To the demo alone: what its children do is up to it."""
    os.kill(process.pid, number)
