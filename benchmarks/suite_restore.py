"""Coming back: a fresh node that takes 100,000 objects, and a node that was away and reads only what it missed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from benchmarks.effort import Effort
from benchmarks.figures import Row, Target, row
from benchmarks.processes import Child
from benchmarks.scene import Scene, wait_until
from halog.config import PolicyConfig

PARTITION = "kept-0"
SNAPSHOT_MS = 1_000
"""The state topic is completed a second after the load, so that the fresh node restores from it, not from the log."""
BATCH = 500
"""Objects in one commit of `node.load`."""


def run(scene: Scene, apps: dict[str, Child], effort: Effort) -> list[Row]:
    """The process has started and imported halog, also what `halog.node` would import late, when the clock starts: what
    is timed is `halog.node(…)` until the copy is complete. The baseline reads the same objects from the same topic."""
    policy = PolicyConfig("zone", partitions=1, sync_replicas=0, async_replicas=1, local_sync="WRITE_NO_SYNC")
    config = scene.cluster("restore", "AB", {"Kept": policy}, every_ms=SNAPSHOT_MS)
    active = scene.app(config, "A")
    active.ask("open")
    wait_until("A is active", lambda: active.ask("state")[PARTITION]["serving"])
    active.ask("load", kind="Kept", first=0, count=effort.restore_objects)
    lsn = active.ask("lsn", partition=PARTITION)["lsn"]
    wait_until("the state topic is complete", lambda: active.ask("marked", partition=PARTITION)["lsn"] >= lsn)
    rows = [*_cold(scene, config, active, effort), _warm(scene, config, active, effort)]
    scene.end_all()
    return rows


def _cold(scene: Scene, config: Path, active: Child, effort: Effort) -> list[Row]:
    """Other systems' restores count from the process's start: that is the second row."""

    def measure(i: int) -> tuple[float, float, float]:
        reader = scene.raw(f"raw-consume{i}", "raw.bulk")
        baseline = reader.ask("consume", topic="restore.kept.state", count=effort.restore_objects)["s"]
        scene.end(reader)
        _forget(scene, "B")
        return baseline, *_opened(scene, config, active, f"cold{i}")

    baselines, values, whole = zip(*scene.calm.rounds(effort.restores, measure), strict=True)
    name = f"cold restore of {effort.restore_objects:,} objects of 200 bytes"
    target = Target(3, "ratio", hard=True)
    return [
        row(name, "s", values, baselines, target=target, client_in="the fresh node"),
        row(f"{name}, from its process's start", "s", whole, client_in="the fresh node"),
    ]


def _opened(scene: Scene, config: Path, active: Child, process: str) -> tuple[float, float]:
    """Seconds from `halog.node("B")`, and from the start of B's process, to a copy that has everything; B is gone again
    afterwards."""
    begin = time.perf_counter()
    fresh = scene.app(config, "B", process)
    fresh.ask("imported")
    lsn = active.ask("lsn", partition=PARTITION)["lsn"]
    took: dict[str, Any] = fresh.ask("caught_up", partition=PARTITION, lsn=lsn, begin_open=True)
    whole = time.perf_counter() - begin
    scene.end(fresh)
    return float(took["s"]), whole


def _warm(scene: Scene, config: Path, active: Child, effort: Effort) -> Row:
    """B has a full store; while it is away, `missed` single commits are made."""

    def measure(i: int) -> tuple[float, float]:
        begin = active.ask("lsn", partition=PARTITION)
        active.ask("many", kind="Kept", clients=16, count=effort.missed)
        value, _ = _opened(scene, config, active, f"warm{i}")
        missed = active.ask("lsn", partition=PARTITION)["lsn"] - begin["lsn"]
        reader = scene.raw(f"raw-missed{i}", "raw.bulk")
        asked = {"topic": "restore.kept.log", "count": missed, "offset": begin["next_offset"]}
        baseline = reader.ask("consume", **asked)["s"]
        scene.end(reader)
        return baseline, value

    baselines, values = zip(*scene.calm.rounds(effort.restores, measure), strict=True)
    name = f"warm restart of the same, {effort.missed:,} commits missed"
    return row(name, "s", values, baselines, client_in="the restarted node")


def _forget(scene: Scene, node: str) -> None:
    """A fresh node has no data directory."""
    import shutil

    shutil.rmtree(scene.directory / "restore" / node, ignore_errors=True)
