"""Commits: latency and throughput, with one sync replica and with async ones only, beside raw Kafka."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.effort import Effort
from benchmarks.figures import Row, Target, row
from benchmarks.processes import Child
from benchmarks.scene import Scene

WARM_S = 1.0
"""Unmeasured, before the first run of each case: a broker a few seconds old has not compiled this path yet."""

ACTIVE, TASKS, REMOTE = "the active node", "the active node, tasks", "a client node"
NO_TARGET = Target()


@dataclass(frozen=True)
class Case:
    """One kind of commit: its halog class, and what a Python program with Kafka alone would do."""

    kind: str
    name: str
    baseline: str


SYNC = Case("Item", "sync commit", "replicated")
ASYNC = Case("Loose", "async commit", "acknowledged")
MANY = 16
LATENCY = {
    ("Item", 1): Target(1.5, "ratio", hard=True),
    ("Item", MANY): Target(1.5, "ratio", hard=True),
    ("Loose", 1): Target(1.6, "ratio", hard=True),
}
THROUGHPUT = {("Loose", MANY, "tasks"): Target(0.6, "ratio", "higher", hard=True)}
"""Of the two ways to have many clients in one process the one made for many; threads stand beside it (decision 10)."""


def run(scene: Scene, apps: dict[str, Child], effort: Effort) -> list[Row]:
    """All rows of this subject; `apps` are the active node A and a client node."""
    raw = _raw(scene)
    rows = []
    for case in (SYNC, ASYNC):
        apps["A"].ask("prepare", kind=case.kind, clients=MANY)
        for clients in (1, MANY):
            rows += _case(case, clients, raw[case.kind], apps, effort, scene)
    for child in raw.values():
        scene.end(child)
    scene.end(scene.children["raw-replica"])
    return rows


def _raw(scene: Scene) -> dict[str, Child]:
    """The baselines' client processes, the first one with its second process."""
    sync, plain = scene.raw("raw-sync", "raw.sync"), scene.raw("raw-async", "raw.async")
    port = sync.ask("listen")["port"]
    replica = scene.start("raw-replica", "raw-replica", bootstrap=scene.info.bootstrap, topic="raw.sync", port=port)
    replica.ask("ready")
    return {SYNC.kind: sync, ASYNC.kind: plain}


def _case(case: Case, clients: int, raw: Child, apps: dict[str, Child], effort: Effort, scene: Scene) -> list[Row]:
    """Baseline, active node (threads, then tasks), client node, baseline, …: all of a round within the same seconds."""
    raw.ask(case.baseline, clients=clients, seconds=WARM_S)
    apps["A"].ask("commits", kind=case.kind, clients=clients, seconds=WARM_S)
    asked = {"kind": case.kind, "clients": clients, "seconds": effort.seconds}

    def measure(_: int) -> dict[str, dict[str, Any]]:
        return {
            "raw": raw.ask(case.baseline, clients=clients, seconds=effort.seconds),
            "A": apps["A"].ask("commits", **asked),
            "tasks": apps["A"].ask("commits_of_tasks", **asked),
            "client": apps["client"].ask("commits", **asked),
        }

    rounds = scene.calm.rounds(effort.runs if clients == 1 else effort.runs_of_many, measure)
    results = {who: [r[who] for r in rounds] for who in rounds[0]}
    return [
        *(_latency(case, clients, results, part) for part in (0.5, 0.99)),
        _throughput(case, clients, results, "A", ACTIVE),
        _plain_latency(case, clients, results, "tasks", TASKS),
        _throughput(case, clients, results, "tasks", TASKS),
        _plain_latency(case, clients, results, "client", REMOTE),
        _throughput(case, clients, results, "client", REMOTE),
    ]


def _ms(results: list[dict[str, Any]], key: str) -> list[float]:
    return [r[key] / 1000 for r in results]


def _title(case: Case, clients: int, what: str) -> str:
    return f"{case.name}, {clients} client{'s' if clients > 1 else ''}, {what}"


def _latency(case: Case, clients: int, results: dict[str, list[dict[str, Any]]], part: float) -> Row:
    key = f"p{part * 100:.0f}_us"
    target = LATENCY.get((case.kind, clients), NO_TARGET) if part == 0.5 else NO_TARGET
    name = _title(case, clients, f"p{part * 100:.0f}")
    measured, baseline = _ms(results["A"], key), _ms(results["raw"], key)
    return row(name, "ms", measured, baseline, target=target, clients=clients, client_in=ACTIVE)


def _plain_latency(case: Case, clients: int, results: dict[str, list[dict[str, Any]]], who: str, client_in: str) -> Row:
    name = _title(case, clients, "p50")
    measured, baseline = _ms(results[who], "p50_us"), _ms(results["raw"], "p50_us")
    return row(name, "ms", measured, baseline, clients=clients, client_in=client_in)


def _throughput(case: Case, clients: int, results: dict[str, list[dict[str, Any]]], who: str, client_in: str) -> Row:
    target = THROUGHPUT.get((case.kind, clients, who), NO_TARGET)
    values, baseline = [r["per_s"] for r in results[who]], [r["per_s"] for r in results["raw"]]
    name = _title(case, clients, "throughput")
    return row(name, "1/s", values, baseline, target=target, clients=clients, client_in=client_in)
