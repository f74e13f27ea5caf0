"""Registers that are read and swapped, each operation written down: here, or in a process of its own.

`python -m tests.integration.cluster.registers CONFIG NAME MODE`: a node called NAME, hosting if the configuration says
so, whose one thread reads with `read=MODE`. A line of JSON for each operation that was answered; it may be killed or
stopped at any moment. Times are CLOCK_MONOTONIC, the same for all processes of a machine.
"""

from __future__ import annotations

import itertools
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import halog
from halog.errors import HalogError
from halog.transactions.node import Node
from tests.faults.history import Operation, Outcome
from tests.faults.things import Register

BLOCK_S = 2.0
"""After this long everybody takes new registers: no key has more operations than the checker can judge."""
OUTCOMES = {True: Outcome.OK, False: Outcome.FAILED, None: Outcome.UNKNOWN}


def groups(node: Node) -> list[str]:
    """A group in each partition."""
    found: dict[str, str] = {}
    for n in itertools.count():
        found.setdefault(node.space.route(Register, (f"g{n}", "")).partition, f"g{n}")
        if len(found) == len(node.backend.partitions_of("Register")):
            return sorted(found.values())
    raise AssertionError


def operate(node: Node, process: str, group: str, value: int, mode: Any) -> Operation:
    """Swap to `value`; 0: read, in this mode."""
    began = time.monotonic()
    name = f"r{int(began // BLOCK_S)}"
    told: int | None = None
    outcome = Outcome.OK
    try:
        with node.transaction(read=mode if not value else "active"):
            found = node.find(Register, group, name)
            told = 0 if found is None else found.value
            if value and found is None:
                node.create(Register(group, name, value))
            elif value and found is not None:
                found.value = value
    except HalogError as error:
        outcome = OUTCOMES[error.happened]
    kind = "swap" if value else "read"
    result = told if outcome is Outcome.OK else None
    return Operation(process, f"{group}/{name}", kind, value, result, began, time.monotonic(), outcome)


def parsed(lines: Sequence[str]) -> list[Operation]:
    """What a process said."""
    found = [json.loads(line) for line in lines if line.startswith("[")]
    return [Operation._make([*o[:-1], Outcome(o[-1])]) for o in found]


def work(
    node: Node, process: str, mode: str, tell: Callable[[Operation], None], *, writes: int, pause_s: float
) -> None:
    """For ever: of ten operations so many swap. `process` makes values that nobody else gives."""
    places = groups(node)
    seat = sum(process.encode()) * 1_000_000
    for n in itertools.count(1):
        tell(operate(node, process, places[n % len(places)], seat + n if n % 10 < writes else 0, mode))
        time.sleep(pause_s)


class EnoughError(Exception):
    """Raised by `tell`: the last operation was answered."""


def main(config: str, name: str, mode: str) -> None:
    """SIGTERM: nothing more is begun; `end` is said, and the node stays."""
    node = halog.node(config, name=name)
    enough = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: enough.set())

    def say(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def tell(o: Operation) -> None:
        say(json.dumps([*o[:-1], o.outcome.value]))
        if enough.is_set():
            raise EnoughError

    say("up")
    with suppress(EnoughError):
        work(node, name, mode, tell, writes=1, pause_s=0.004)
    say("end")
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3])
