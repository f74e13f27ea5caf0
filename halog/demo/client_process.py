"""This module runs a client process of the demo: a node in no zone that works, and reports how far it is.

Its parent opens the gate by lines on stdin (`allow 30000`). JSON lines on stdout are its reports. It ends when all work
is done, or with one line that says why not.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import halog
from halog.demo.ordered_work import RowGate
from halog.errors import HalogError
from halog.runtime.node.open import RunningNode


def run_client(config: str, name: str, work: Callable[[RunningNode], None]) -> int:
    """Open a node and do the work; return the process's exit code. A HalogError is reported in one line."""
    try:
        with halog.node(config, name=name) as node:
            work(node)
    except HalogError as error:
        say({"error": f"{type(error).__name__}: {error}"})
        return 1
    return 0


@contextmanager
def reporting(gate: RowGate, report: Callable[[], Mapping[str, object]], every_s: float) -> Iterator[None]:
    """Obey the parent at this gate, and report every so often, inside the block."""
    ended = threading.Event()
    for target in (lambda: _obey(gate), lambda: _report_on(report, ended, every_s)):
        threading.Thread(target=target, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def epochs_of(node: RunningNode) -> Callable[[], dict[str, int]]:
    """Return a function that returns each partition's epoch, as the node knows it now."""
    tables = node.runtime.router.tables
    return lambda: {name: table.epoch.number for name, (_, table) in tables.items()}


def say(message: Mapping[str, object]) -> None:
    """Write one line of JSON to stdout."""
    os.write(1, json.dumps(dict(message)).encode() + b"\n")


def _obey(gate: RowGate) -> None:
    for line in sys.stdin:
        word, _, number = line.partition(" ")
        if word == "allow":
            gate.open_to(int(number))


def _report_on(report: Callable[[], Mapping[str, object]], ended: threading.Event, every_s: float) -> None:
    while not ended.wait(every_s):
        say(report())
