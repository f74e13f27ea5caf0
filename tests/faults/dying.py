"""`python -m tests.faults.dying STEPS WHERE MODULE ARGS…`: a program that dies at a step of its own.

A signal from outside hits a step of some milliseconds by luck. So the process writes each step down in the file STEPS
before it takes it, numbered, and kills itself in front of the first that the regular expression WHERE matches as a
whole, by the signal that nobody can catch. Steps are what it changes at a coordinator, what it gives to a log, what it
says, and what a Spark job notes. Everything else is the program as it is.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from halog.core.table.table import PartitionTable
from halog.metadata.restore_requests import ASKED


class Ran(NamedTuple):
    """What became of a program."""

    died: bool
    steps: list[str]
    """Those that it came to; in front of the last one, if it died."""
    out: str
    err: str


def argv_dying(steps: Path, where: str, argv: Sequence[str]) -> list[str]:
    """To be run as a module: `argv` is what would be behind `python -m`."""
    return ["tests.faults.dying", str(steps), where, *argv]


def run_dying(steps: Path, where: str, argv: Sequence[str], limit_s: float = 120.0) -> Ran:
    """Run it to its end, which is to be there, or with exit code 0."""
    steps.write_text("")
    done = subprocess.run(
        [sys.executable, "-m", *argv_dying(steps, where, argv)],
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), (done.returncode, done.stdout, done.stderr)
    return Ran(done.returncode != 0, steps.read_text().splitlines(), done.stdout, done.stderr)


class Dying:
    """Of this process."""

    def __init__(self, steps: Path, where: str) -> None:
        self._steps = steps
        self._where = re.compile(where, re.DOTALL)
        self._numbers = itertools.count(1)

    def step(self, what: str) -> None:
        """It is about to be taken."""
        line = f"{next(self._numbers)} {what}"
        with self._steps.open("a") as out:
            out.write(line.replace("\n", " ") + "\n")
        if self._where.fullmatch(line):
            os.kill(os.getpid(), signal.SIGKILL)

    def at(self, owner: Any, name: str, what: Callable[..., str]) -> None:
        """Each call of it is a step."""
        taken = getattr(owner, name)

        def step(*args: Any, **more: Any) -> Any:
            self.step(what(*args, **more))
            return taken(*args, **more)

        setattr(owner, name, step)


def change(verb: str, path: str, data: bytes) -> str:
    """Of a coordinator: of a restore with its phase, of a partition with the other site that is to serve it."""
    more = ""
    if path.startswith("restores/"):
        more = json.loads(data).get("phase", ASKED)
    elif path.startswith("partitions/"):
        more = PartitionTable.from_bytes(data).owner
    return f"{verb} {path} {more}".rstrip()


def note(now: Any) -> str:
    """Of a Spark job: where it follows logs, with how many of them are not read to their end."""
    words = ["notes", type(now).__name__, getattr(now, "stage", "")]
    if hasattr(now, "ends"):
        words.append(f"left {sum(now.offset(number) < now.ends[number] for number in now.carried)}")
    return " ".join(words)


def watch(dying: Dying) -> None:
    import click

    from halog.adapters.kafka.log import KafkaLog
    from halog.adapters.kafka.session import KafkaSession
    from halog.adapters.zookeeper.coordinator import ZkCoordinator
    from spark_jobs import progress

    for name in ("create", "set"):
        dying.at(ZkCoordinator, name, lambda self, path, data, *args, verb=name, **more: change(verb, path, data))
    dying.at(ZkCoordinator, "delete", lambda self, path, *args, **more: f"delete {path}")
    for owner, name in ((KafkaSession, "append"), (KafkaLog, "put")):
        dying.at(owner, name, lambda self, tp, *args, verb=name, **more: f"{verb} {tp.topic} {tp.partition}")
    dying.at(progress, "save", lambda directory, now: note(now))
    dying.at(click, "echo", lambda message=None, *args, **more: f"says {message}")


if __name__ == "__main__":
    watch(Dying(Path(sys.argv[1]), sys.argv[2]))
    sys.argv[:] = sys.argv[3:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
