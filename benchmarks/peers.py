"""`python -m benchmarks.peers [--quick] [--format json]`: the same work by other systems and by halog, in one run.

The peers are those of `../shared/peers` (PEERS names another place): copied to build/peers, built there once (PyPI,
Maven Central, Debian; nothing is installed), then run one after another, never at once. halog's figures are the suites
`policies`, `failover`, `transfer`, `freeze`, `restore`, `reads` of `benchmarks.run`, in the middle of the run. Prints
a table, writes build/bench-peers.json in the form of build/bench.json. Exit code 0 if every hard row meets its target,
1 if not, 2 if there are no peers.
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
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.calm import Calm
from benchmarks.compared import absent, comparisons, figures
from benchmarks.effort import FULL, QUICK, Effort
from benchmarks.figures import Row, missed
from benchmarks.processes import ROOT
from benchmarks.run import document, measure, say
from benchmarks.scene import Scene
from benchmarks.table import show

KILLS = 100
"""The target for failover is a p99: it stands on a hundred of them."""

Parts = tuple[tuple[str, ...], ...]
BEFORE: Parts = (("floor/floor2.py",), ("rawkafka/direct.py",), ("je/je_bench.py",))
AFTER: Parts = (
    ("hazelcast/hz_bench.py",),
    *(("etcd/etcd_bench.py", part) for part in ("updates", "restore", "failover_")),
    ("redis/redis2.py",),
    ("redis/redis_bench.py", "restore", "read", "failover_"),
    ("kstreams/ks_bench.py", "restore", "failover_"),
)
"""Peers, with the parts of each that the table asks for; without any: all."""
PART_S = 1_200
"""Longest run of one peer; the slowest takes eight minutes."""


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a look, not a measurement: short loops, three kills")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    return parser.parse_args(argv)


def prepared(source: Path, place: Path) -> None:
    """A copy of the peers that is built; kept from run to run."""
    if not place.is_dir():
        shutil.copytree(source, place, ignore=shutil.ignore_patterns("run", "venv", "raw"))
    say("peers: fetching and building what is not there yet …")
    subprocess.run(["bash", str(place / "setup.sh")], check=True, stdout=sys.stderr)


def ask(place: Path, script: Sequence[str], out: Path, effort: Effort) -> None:
    """One peer's figures, appended to `out`; one that fails is said and missing in the table."""
    say(f"{' '.join(script)} …")
    env = {**os.environ, "PEERS_OUT": str(out), "PEERS_SECS": str(effort.seconds), "PEERS_REPS": str(effort.runs)}
    env["ETCD_STRICT_RECONFIG_CHECK"] = "false"  # else it wants to have seen its members for 5 s before one is replaced
    command = [str(place / "venv/bin/python"), str(place / script[0]), *script[1:]]
    try:
        done = subprocess.run(command, cwd=place, env=env, stdout=subprocess.DEVNULL, timeout=PART_S, check=False)
        if done.returncode:
            say(f"{script[0]} ended with {done.returncode}: its rows are missing")
    except subprocess.TimeoutExpired:
        say(f"{script[0]} took longer than {PART_S} s: its rows are missing")


def ours(effort: Effort) -> tuple[list[Row], Calm]:
    """halog's own figures, and how calm it was."""
    directory = Path(tempfile.mkdtemp(prefix="halog-peers-"))
    scene = Scene(directory, patience=effort.patience)
    try:
        return measure(scene, ["reads", "policies", "failover", "restore", "transfer", "freeze"], effort), scene.calm
    finally:
        scene.close()
        shutil.rmtree(directory, ignore_errors=True)


def main(argv: Sequence[str]) -> int:
    """Run."""
    args = arguments(argv)
    source, place = Path(os.environ.get("PEERS", ROOT.parent / "shared" / "peers")), ROOT / "build" / "peers"
    if not (source / "setup.sh").is_file():
        say(f"there are no peers at {source}; set PEERS to the directory that holds them")
        return 2
    effort = QUICK if args.quick else replace(FULL, kills=KILLS)
    begin = time.monotonic()
    prepared(source, place)
    out = ROOT / "build" / "peers.jsonl"
    out.unlink(missing_ok=True)
    for script in BEFORE:
        ask(place, script, out, effort)
    own, calm = ours(effort)
    for script in AFTER:
        ask(place, script, out, effort)
    lines = out.read_text().splitlines() if out.exists() else []
    rows = comparisons(own, figures(json.loads(line) for line in lines))
    found = document(rows, time.monotonic() - begin, effort, calm)
    found["absent"] = absent(own)
    found["ok"] = found["ok"] and not found["absent"]
    (ROOT / "build" / "bench-peers.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found)) if args.format == "json" else show(rows, found, "peer")
    for r in missed(rows):
        say(f"missed: {r.name}: {r.value:.3g} {r.unit}, {r.target}")
    for name in absent(own):
        say(f"not measured: {name}")
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
