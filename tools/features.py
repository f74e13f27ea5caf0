"""What of the mission is proved: the table of feature ids, and `make features`.

The tests leave build/outcomes.json (tests/conftest.py: one row per test); build/features.json is made from all of them,
so that unit, simulation and integration runs add up. Never runs a test.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypedDict

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
OUTCOMES = BUILD / "outcomes.json"
FEATURES = BUILD / "features.json"
MAX_IDS = 3  # a test that proves everything proves nothing

Outcome = Literal["passed", "failed", "skipped"]

TITLES: dict[str, str] = {
    "P1": "Partition: named, node list, active and replicas",
    "P2": "Dynamic policy: halog creates and spreads partitions",
    "P3": "Static policy: partitions placed by hand",
    "P4": "Policy: replicas, sync or async, tuning; bindings",
    "P5": "Availability zones",
    "P6": "Mappers: consistent hashing, round robin, custom",
    "P7": "Define, enable, disable",
    "P8": "Partition statuses, states and notifiers",
    "P9": "Foreign partition",
    "P10": "Failover: the next node is active in one step",
    "P11": "Restore of a node",
    "P12": "Live migration",
    "P13": "Rebalancing",
    "R1": "Sync and async replicas, nothing committed is lost",
    "R2": "Async consistency errors discard one object",
    "R3": "Modification on a replica node",
    "R4": "An unreachable replica leaves the node list",
    "R5": "Location transparency",
    "R6": "Sync policies SYNC, WRITE_NO_SYNC, NO_SYNC",
    "R7": "Quorum commit",
    "R8": "Maximum size of a commit record",
    "Q1": "Node quorum per zone",
    "Q2": "Election: recency, priority, place",
    "Q3": "quorumOverride and designatedPrimary",
    "Q4": "Operational events",
    "Q5": "Requested transfer of the active role; intruders",
    "M1": "Several actives are detected and shown",
    "M2": "Restore after split brain",
    "M3": "Conflicts and compensation triggers",
    "M4": "Several sub-clusters",
    "M5": "Geographic redundancy",
    "D1": "Distributed objects and references",
    "D2": "Extents and queries",
    "D3": "Deferred writes",
    "D4": "ACID transactions over partitions and nodes",
    "D5": "Outcome voting",
    "D6": "Triggers",
    "N1": "Node name, location code, installation timestamp",
    "N2": "Discovery, dynamic and proxy",
    "N3": "Remote node states",
    "N4": "Keep-alive",
    "N5": "TCP or TLS between nodes",
    "N6": "Node start sequence",
    "U1": "Nodes of different halog versions",
    "U2": "Type versions and exchange",
    "U3": "Object upgrade in both directions",
    "O1": "Command line",
    "O2": "Metrics, health, logs, event history",
    "O3": "Embedded site, existing servers, compose",
    "O4": "TLS, authentication, least privilege",
    "S1": "Spark jobs: rebalance and merge",
    "S2": "Log and objects open to Spark and Kafka",
    "X1": "A killed node replaced in a tenth of a second",
    "X2": "Fencing at the log",
    "X3": "Three-way merge from the fork point",
    "X4": "A proof that the next node is safe to stop",
    "X5": "Deterministic simulation and a test kit",
    "X6": "Time travel over the log",
    "X7": "Spark SQL over live objects",
    "X8": "Overrides that expire by themselves",
    "X9": "The exact list of discarded transactions",
    "X10": "Plan, apply, roll back for placement",
}


class Row(TypedDict):
    """One feature as written to build/features.json."""

    title: str
    tests: int
    passed: int
    failed: int
    skipped: int


@dataclass(frozen=True)
class Ended:
    """How one test that carries ids ended."""

    ids: tuple[str, ...]
    outcome: Outcome


def problem_with(ids: tuple[str, ...]) -> str | None:
    """Why a marker's ids are not acceptable, or None."""
    unknown = [i for i in ids if i not in TITLES]
    if unknown:
        return f"unknown feature {', '.join(map(str, unknown))}: the ids are the mission's (tools/features.py)"
    if not 1 <= len(set(ids)) <= MAX_IDS:
        return f"{len(set(ids))} feature ids: a test carries 1 to {MAX_IDS}"
    return None


def load(path: Path = OUTCOMES) -> dict[str, Ended]:
    """The outcomes so far; none if there was no run."""
    try:
        rows = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return {test: Ended(tuple(row["ids"]), row["outcome"]) for test, row in rows.items()}


def save(outcomes: dict[str, Ended], build: Path = BUILD) -> None:
    """Writes both files."""
    build.mkdir(exist_ok=True)
    rows = {test: {"ids": list(o.ids), "outcome": o.outcome} for test, o in sorted(outcomes.items())}
    _write(build / OUTCOMES.name, rows)
    _write(build / FEATURES.name, summarise(outcomes))


def summarise(outcomes: dict[str, Ended]) -> dict[str, Row]:
    """Per id, in the mission's order; ids without a test are left out."""
    table: dict[str, Row] = {}
    for feature, title in TITLES.items():
        ends = [o.outcome for o in outcomes.values() if feature in o.ids]
        if ends:
            table[feature] = Row(
                title=title,
                tests=len(ends),
                passed=ends.count("passed"),
                failed=ends.count("failed"),
                skipped=ends.count("skipped"),
            )
    return table


def _write(path: Path, value: object) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps(value, indent=1) + "\n")
    new.rename(path)


def _result(row: Row) -> str:
    if row["failed"]:
        return "FAILED"
    return "passed" if row["passed"] else "skipped"


def main() -> int:
    """Prints id, tests, result; 1 if a feature failed or nothing was run."""
    table = summarise(load())
    if not table:
        print("no test that carries a feature id has been run: make test", file=sys.stderr)
        return 1
    print(f"{'id':<4} {'tests':>5} {'passed':>6} {'failed':>6} {'skipped':>7}  {'result':<7}  title")
    for feature, row in table.items():
        counts = f"{row['tests']:>5} {row['passed']:>6} {row['failed']:>6} {row['skipped']:>7}"
        print(f"{feature:<4} {counts}  {_result(row):<7}  {row['title']}")
    untested = " ".join(i for i in TITLES if i not in table)
    print(f"\n{len(table)} of {len(TITLES)} features have tests; none yet: {untested}")
    return 1 if any(row["failed"] for row in table.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
