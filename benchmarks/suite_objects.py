"""Objects in the active node's own process: reads, and bulk load."""

from __future__ import annotations

from benchmarks.effort import Effort
from benchmarks.figures import Row, Target, row
from benchmarks.processes import Child
from benchmarks.scene import Scene

READ_OBJECTS = 10_000
"""More than any CPU cache keeps, fewer than the node's."""
READS_EACH = 1_000
"""Reads in one transaction: its own cost is part of the figure, and small."""
AGAIN = 100
"""Objects read ten times each: what a get of an object costs that the transaction has."""


def reads(scene: Scene, apps: dict[str, Child], effort: Effort) -> list[Row]:
    """Get + one field of random objects, in transactions; the baseline is a dict that nothing keeps. The target is for
    the first get of an object in a transaction, which makes the Python object and is checked at the end; getting it
    again is shown beside it."""
    a = apps["A"]
    a.ask("load", kind="Kept", first=0, count=READ_OBJECTS)
    asked = {"kind": "Kept", "per_transaction": READS_EACH, "seconds": effort.read_seconds}

    def measure(_: int) -> tuple[float, float, float]:
        plain = a.ask("plain_reads", objects=READ_OBJECTS, seconds=effort.read_seconds / 2)["per_s"]
        first = a.ask("reads", objects=READ_OBJECTS, **asked)["per_s"]
        return plain, first, a.ask("reads", objects=AGAIN, **asked)["per_s"]

    plain, first, again = zip(*scene.calm.rounds(effort.runs, measure), strict=True)
    target = Target(200_000, "value", "higher", hard=True)
    name, where = "local read in a transaction of 1,000", "the active node"
    return [
        row(f"{name} different objects out of 10,000", "1/s", first, plain, target=target, client_in=where),
        row(f"{name}, of 100 objects ten times each", "1/s", again, plain, client_in=where),
    ]


def load(scene: Scene, apps: dict[str, Child], effort: Effort) -> list[Row]:
    """`node.load`; the baseline encodes the same objects with fastavro and produces one record each."""
    raw = scene.raw("raw-bulk", "raw.bulk")

    def measure(i: int) -> tuple[float, float]:
        baseline = raw.ask("bulk", count=effort.load_objects)["per_s"]
        done = apps["A"].ask("load", kind="Spare", first=i * effort.load_objects, count=effort.load_objects)
        return baseline, done["per_s"]

    baselines, values = zip(*scene.calm.rounds(max(3, effort.runs - 2), measure), strict=True)
    scene.end(raw)
    target = Target(30_000, "value", "higher", hard=True)
    return [row("node.load", "objects/s", values, baselines, target=target, client_in="the active node")]
