"""`python -m benchmarks.run [names…] [--quick] [--format json]`: measure, print, write build/bench.json, judge.

Exit code 0 if every hard row meets its target, 1 if not, 2 for a wrong call.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import (
    suite_commit,
    suite_failover,
    suite_merge,
    suite_objects,
    suite_placement,
    suite_policies,
    suite_restore,
    suite_roles,
    suite_sites,
    suite_spark,
    suite_takeover,
    suite_tls,
    suite_upgrade,
)
from benchmarks.calm import Calm
from benchmarks.effort import FULL, QUICK, Effort
from benchmarks.figures import Row, missed
from benchmarks.processes import ROOT, Child
from benchmarks.scene import Scene, complete, wait_until
from benchmarks.table import show
from halog.config import PolicyConfig

Suite = Callable[[Scene, dict[str, Child], Effort], list[Row]]

SHARED: dict[str, Suite] = {"commit": suite_commit.run, "reads": suite_objects.reads, "load": suite_objects.load}
"""These use one cluster: node A active for everything, B its replica, and a client node."""
OWN: dict[str, Suite] = {
    "restore": suite_restore.run,
    "failover": suite_failover.failover,
    "pause": suite_failover.pause,
    "notifiers": suite_failover.notifiers,
    "placement": suite_placement.run,
    "transfer": suite_roles.transfer,
    "freeze": suite_roles.freeze,
    "policies": suite_policies.run,
    "spark": suite_spark.run,
    "merge": suite_merge.run,
    "sites": suite_sites.run,
    "takeover": suite_takeover.run,
    "tls": suite_tls.run,
    "upgrade": suite_upgrade.run,
}
"""These make a cluster of their own."""

ASKED_FOR = {"freeze", "policies", "merge", "sites", "takeover", "tls", "notifiers", "upgrade"}
"""Only by name, the first two also in `benchmarks.peers`: minutes of their own."""


def arguments(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"suites to run: {', '.join([*SHARED, *OWN])}")
    parser.add_argument("--quick", action="store_true", help="a look in some minutes instead of a measurement")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    parser.add_argument("--keep", action="store_true", help="keep the logs and data of the run")
    parser.add_argument("--switch-interval-ms", type=float, default=0.0, help="thread switch interval of halog's nodes")
    found = parser.parse_args(argv)
    unknown = [n for n in found.names if n not in SHARED and n not in OWN]
    if unknown:
        parser.error(f"no such suite: {unknown[0]}")
    return found


def shared(scene: Scene) -> dict[str, Child]:
    """The cluster of the SHARED suites."""
    same = "WRITE_NO_SYNC"  # as the baselines: nobody flushes
    sync = PolicyConfig("zone", partitions=1, sync_replicas=1, local_sync=same)
    loose = PolicyConfig("zone", partitions=1, sync_replicas=0, async_replicas=1, local_sync=same)
    bindings = {"Item": sync, "Loose": loose, "Kept": sync, "Spare": sync}
    apps = scene.open(scene.cluster("bench", "AB", bindings, stays=True), "AB", client="client")
    apps["A"].ask("lead")
    wait_until("A leads", lambda: all(t["serving"] for t in apps["A"].ask("state").values()))
    wait_until("the cluster is complete", lambda: complete(apps["A"].ask("state"), 2))
    return apps


def chosen(names: list[str]) -> list[str]:
    """These, in the order they are run in; without a name all that need not be asked for."""
    return [n for n in [*SHARED, *OWN] if n in names or (not names and n not in ASKED_FOR)]


def measure(scene: Scene, names: list[str], effort: Effort) -> list[Row]:
    """All rows of the chosen suites."""
    rows: list[Row] = []
    apps: dict[str, Child] = {}
    for name in chosen(names):
        say(f"{name} …")
        if name in OWN and apps:
            scene.end_all()
            apps = {}
        elif name in SHARED and not apps:
            apps = shared(scene)
        rows += (SHARED.get(name) or OWN[name])(scene, apps, effort)
    scene.end_all()
    return rows


def say(text: str) -> None:
    """Talk goes to stderr."""
    print(text, file=sys.stderr, flush=True)


def machine() -> dict[str, object]:
    """What the figures were taken on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {"cpus": len(model), "cpu": model[0] if model else "", "python": platform.python_version()}


def document(rows: list[Row], seconds: float, effort: Effort, calm: Calm) -> dict[str, object]:
    """What is written to build/bench.json; `stolen`: the largest share of the CPUs' time the host took from a round
    that counts, and how many more rounds were measured and do not."""
    return {
        "ok": not missed(rows),
        "quick": effort.quick,
        "seconds": round(seconds, 1),
        "machine": machine(),
        "stolen": {"worst": round(calm.worst, 3), "again": calm.again},
        "rows": [r.to_dict() for r in rows],
    }


def main(argv: list[str]) -> int:
    """Run."""
    args = arguments(argv)
    effort = QUICK if args.quick else FULL
    directory = Path(tempfile.mkdtemp(prefix="halog-bench-"))
    begin = time.monotonic()
    scene = Scene(directory, switch_interval_ms=args.switch_interval_ms, patience=effort.patience)
    try:
        rows = measure(scene, args.names, effort)
    except BaseException:
        say(f"the run ended early; logs: {directory}/logs")
        args.keep = True
        raise
    finally:
        scene.close()
        if not args.keep:
            shutil.rmtree(directory, ignore_errors=True)
    found = document(rows, time.monotonic() - begin, effort, scene.calm)
    path = ROOT / "build" / "bench.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found)) if args.format == "json" else show(rows, found)
    for r in missed(rows):
        say(f"missed: {r.name}: {r.value:.3g} {r.unit}, {r.target}")
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
