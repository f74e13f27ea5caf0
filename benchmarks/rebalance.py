"""`python -m benchmarks.rebalance [--objects N]`: a Spark job moves objects under traffic, and is killed at half way.

Two nodes with four partitions; another ring has four objects of five elsewhere. The driver is a process of its own,
killed with SIGKILL when half of them have moved, and started again with the same checkpoint. Traffic comes from another
process. Afterwards every object is counted, and the mapper is called for it in plain Python. Writes
build/bench-rebalance.json. Exit code 0 if nothing is lost, doubled or misplaced, else 1.

A pause is what a caller noticed of it: how long a transaction took, from its first try to its commit, that took longer
than every one before the job, or had to be run again. It waited for an object that was just moving, or for the CPUs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.judged import Place, Verdict, judge
from benchmarks.model import Kept
from benchmarks.processes import ROOT, Child
from benchmarks.run import machine, say
from benchmarks.scene import Scene, wait_until
from halog.cli.shared.connection import ClusterConnection, connect
from halog.config import PolicyConfig, load_config
from halog.runtime.keys.key_owners import Places
from halog.schema.registry import DEFAULT
from spark_jobs import progress
from spark_jobs.rebalance import changed

PARTITIONS = 4
RING = 131_072
"""Another ring than the default's: four objects of five are in another one of the four partitions."""
THREADS, RATE = 4, 40.0
"""160 transactions a second at most: beside nodes, broker and Spark on the same CPUs."""
EACH_LOAD = 50_000
COMPLETE_S = 300.0
"""Until the state topic of a million objects is complete."""
MOVE_S = 3_000.0
"""Of each run of the driver."""
SNAPSHOT_MS = 5_000
"""What moves is in the state topics soon, as on a cluster that does this for hours."""
SAMPLE = 10_000
"""Objects that tell how many are to move, before any is."""
BATCHES, FEWEST_ROWS = 10, 2_500
"""Micro-batches that the objects come in, and their rows at least: the job notes how far it is behind each. What it
moves is in the state topic once more, so that smaller ones would be many."""
CALM_S = 5.0
"""Traffic alone, before anything moves."""


class Driver(NamedTuple):
    """The two runs of the job."""

    began: float
    ended: float
    killed_at: int
    """Objects that had moved, as the checkpoint says."""
    said: dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rebalance", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--objects", type=int, default=1_300_000, help="four of five move: by default a million")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    parser.add_argument("--keep", action="store_true", help="keep the logs and data of the run")
    given = parser.parse_args(argv)
    directory = Path(tempfile.mkdtemp(prefix="halog-rebalance-"))
    scene = Scene(directory)
    try:
        document = measure(scene, given.objects)
    finally:
        scene.close()
        if given.keep:
            say(f"kept: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    path = ROOT / "build/bench-rebalance.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
    show(document, given.format)
    return 0 if document["ok"] else 1


def measure(scene: Scene, count: int) -> dict[str, Any]:
    """The whole run."""
    config = _cluster(scene, count)
    new = scene.directory / "new.toml"
    new.write_text(changed(load_config(config), "kept", ring_size=RING).to_toml())
    traffic = scene.start("traffic", "traffic", config=str(config), name="traffic")
    traffic.ask("open")
    traffic.ask("begin", objects=count, threads=THREADS, rate=RATE)
    time.sleep(CALM_S)
    say("moving …")
    driver = _driven(scene, new, count, _share(config, new))
    time.sleep(CALM_S)
    told = traffic.ask("end", since=driver.began, until=driver.ended)
    say("judging …")
    verdict = _judged(config, new, count, traffic)
    wrong = traffic.ask("judge")
    scene.end_all()
    return document(count, driver, told, verdict, wrong)


def _cluster(scene: Scene, count: int) -> Path:
    policy = PolicyConfig("zone", partitions=PARTITIONS, sync_replicas=0, local_sync="WRITE_NO_SYNC")
    config = scene.cluster("move", "AB", {"Kept": policy}, every_ms=SNAPSHOT_MS)
    nodes = _opened(scene, config)
    say(f"loading {count:,} objects …")
    for first in range(0, count, EACH_LOAD):
        nodes["A"].ask("load", kind="Kept", first=first, count=min(EACH_LOAD, count - first))
    names = [f"kept-{i}" for i in range(PARTITIONS)]
    lsns: dict[str, int] = {}
    for child in nodes.values():
        state = child.ask("state")
        lsns |= {name: child.ask("lsn", partition=name)["lsn"] for name in names if state[name]["serving"]}
    complete = "the state topic is complete"
    ask = nodes["A"].ask
    wait_until(complete, lambda: all(ask("marked", partition=n)["lsn"] >= lsns[n] for n in names), COMPLETE_S)
    return config


def _opened(scene: Scene, config: Path) -> dict[str, Child]:
    """Both nodes, each active for a half."""
    nodes = {name: scene.app(config, name) for name in "AB"}
    for child in nodes.values():
        child.command("open")
    for child in nodes.values():
        child.heard()
    names = [f"kept-{i}" for i in range(PARTITIONS)]
    wait_until("every partition is served", lambda: all(nodes["A"].ask("state")[n]["active"] for n in names))
    return nodes


# --- the job ---


def _share(config: Path, new: Path) -> float:
    """Of the objects, that belong elsewhere by the new file."""
    before, now = _placed(config), _placed(new)
    return sum(before(n) != now(n) for n in range(SAMPLE)) / SAMPLE


def _driven(scene: Scene, new: Path, count: int, share: float) -> Driver:
    """Killed when half of what is elsewhere has moved, and started again."""
    checkpoint = scene.directory / "checkpoint"
    command = [
        sys.executable,
        "-m",
        "halog.testing.child",
        str(os.getpid()),
        "spark_jobs.rebalance",
        "--config",
        str(new),
        "--policy",
        "kept",
        "--move",
        "--checkpoint",
        str(checkpoint),
        "--max-offsets",
        str(max(FEWEST_ROWS, count // BATCHES)),
        "--timeout",
        str(MOVE_S),
        "--format",
        "json",
    ]
    half = round(count * share / 2)
    log, began = scene.logs / "driver.log", time.monotonic()
    with log.open("ab") as err:
        first = subprocess.Popen(command, cwd=ROOT, stdout=err, stderr=err)

        def half_way() -> bool:
            return _moved(checkpoint) >= half or first.poll() is not None

        wait_until("half of the objects have moved", half_way, MOVE_S)
        if first.poll() is not None:
            raise RuntimeError(f"the driver ended with {first.returncode} before it could be killed; see {log}")
        first.kill()
        first.wait()
        killed_at = _moved(checkpoint)
        say(f"killed when {killed_at:,} had moved; started again …")
        second = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=err, timeout=MOVE_S, check=False)
    if second.returncode != 0:
        raise RuntimeError(f"the driver ended with {second.returncode}; see {log}: {_last(log)}")
    return Driver(began, time.monotonic(), killed_at, json.loads(second.stdout))


def _moved(checkpoint: Path) -> int:
    """As the job has noted."""
    try:
        found = msgspec.msgpack.decode((checkpoint / progress.FILE).read_bytes(), type=progress.FinderProgress)
    except FileNotFoundError:
        return 0
    return found.counts.get("moved", 0)


def _last(log: Path) -> str:
    return " ".join(log.read_text().split())[-600:]


# --- what came of it ---


def _judged(config: Path, new: Path, count: int, traffic: Child) -> Verdict:
    created = traffic.ask("created")
    there, perhaps = set(created["there"]), set(created["perhaps"])
    with connect(config, 60.0) as connection:
        return judge(_all(connection), count, there, perhaps, _placed(config), _placed(new))


def _all(connection: ClusterConnection) -> Iterator[tuple[str, int, bytes]]:
    """As the active nodes have it."""
    info = DEFAULT.info(Kept)
    for table in connection.tables:
        for found in connection.scan(table.name, b""):
            (number,) = info.decode_index_key(found.key)
            yield table.name, number, found.ref


def _placed(file: Path) -> Place:
    """By the mapper, called here."""
    info = DEFAULT.info(Kept)
    owner = Places(load_config(file), lambda name: DEFAULT.info(name).parsed).owner("Kept")
    return lambda number: owner.partition("Kept", info.routing_key((number,)))


def document(
    count: int, driver: Driver, told: dict[str, Any], verdict: Verdict, users: dict[str, Any]
) -> dict[str, Any]:
    """What is written. An object whose count is not what its user was told has lost a change."""
    if told["errors"]:
        say(f"traffic ended early: {told['errors'][0]}")
    lost = verdict.lost + len(users["wrong"])
    seconds = driver.ended - driver.began
    return {
        "ok": not (lost or verdict.doubled or verdict.misplaced or told["errors"]),
        "objects": count,
        "moved": verdict.moved,
        "lost": lost,
        "doubled": verdict.doubled,
        "misplaced": verdict.misplaced,
        "remapped_again": driver.said["remapped_again"],
        "txn_during": told["during"]["count"],
        "pause_ms": told["paused"],
        "seconds": round(seconds, 1),
        "moved_per_s": round(verdict.moved / seconds),
        "moved_by_job": driver.said["moved"],
        "killed_at": driver.killed_at,
        "txn_ms": {"before": told["before"], "during": told["during"]},
        "touched": users["touched"],
        "machine": machine(),
    }


def show(found: dict[str, Any], format_: str) -> None:
    """On stdout."""
    if format_ == "json":
        print(json.dumps(found))
        return
    table = Table("what", "figure", title=None)
    for name, value in found.items():
        if name != "machine":
            table.add_row(name, _text(value))
    Console(width=120).print(table)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(inner)}" for name, inner in value.items())
    return f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


if __name__ == "__main__":
    sys.exit(main())
