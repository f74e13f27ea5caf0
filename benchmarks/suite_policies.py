"""One commit under each durability policy (R6), beside the plainest program that keeps the same. What is asked of these
figures stands in `compared`: beside other systems doing the same work."""

from __future__ import annotations

from typing import Any, NamedTuple

from benchmarks.effort import Effort
from benchmarks.figures import Row, row
from benchmarks.processes import Child
from benchmarks.scene import Scene, complete, wait_until
from halog.config import PolicyConfig

MANY = 16
WARM_S = 1.0
ACTIVE, TASKS, RAW = "the active node", "the active node, tasks", "a Python program"
ALONE = "idempotent produce alone"
"""What a lone commit that waits for the log waits for at least, whoever makes it."""
FLUSHED = "raw.flushed"


class Case(NamedTuple):
    """A halog class, the policy it stands for, and the baseline: which method, on which topic."""

    kind: str
    name: str
    local_sync: str
    baseline: str
    topic: str


CASES = (
    Case("Item", "sync replica, local WRITE_NO_SYNC", "WRITE_NO_SYNC", "parallel", "raw.push"),
    Case("Loose", "sync replica, local NO_SYNC", "NO_SYNC", "pushed", "raw.push"),
    Case("Kept", "sync replica, local SYNC", "SYNC", "produced", FLUSHED),
)


def run(scene: Scene, apps: dict[str, Child], effort: Effort) -> list[Row]:
    """All rows; makes a cluster of its own."""
    bindings = {c.kind: PolicyConfig("zone", partitions=1, sync_replicas=1, local_sync=c.local_sync) for c in CASES}
    scene.topic("raw.push")
    scene.topic(FLUSHED, flush=True)
    nodes = scene.open(scene.cluster("policies", "AB", bindings, stays=True), "AB")
    nodes["A"].ask("lead")
    wait_until("A leads", lambda: all(t["serving"] for t in nodes["A"].ask("state").values()))
    wait_until("the cluster is complete", lambda: complete(nodes["A"].ask("state"), 2))
    port = scene.start("raw-store", "raw-store").ask("port")["port"]
    rows: list[Row] = []
    for case in CASES:
        raw = scene.start(f"raw-{case.kind}", "raw-pusher", bootstrap=scene.info.bootstrap, topic=case.topic, port=port)
        nodes["A"].ask("prepare", kind=case.kind, clients=MANY)
        for clients in (1, MANY):
            rows += _case(case, clients, raw, nodes["A"], effort, scene)
        scene.end(raw)
    scene.end_all()
    return rows


def _case(case: Case, clients: int, raw: Child, active: Child, effort: Effort, scene: Scene) -> list[Row]:
    raw.ask(case.baseline, clients=clients, seconds=WARM_S)
    active.ask("commits", kind=case.kind, clients=clients, seconds=WARM_S)
    asked = {"kind": case.kind, "clients": clients, "seconds": effort.seconds}

    def measure(_: int) -> dict[str, dict[str, Any]]:
        found = {
            "raw": raw.ask(case.baseline, clients=clients, seconds=effort.seconds),
            ACTIVE: active.ask("commits", **asked),
            TASKS: active.ask("commits_of_tasks", **asked),
        }
        if clients == 1 and case.baseline == "parallel":
            found[ALONE] = raw.ask("produced", clients=1, seconds=effort.seconds)
        return found

    rounds = scene.calm.rounds(effort.runs if clients == 1 else effort.runs_of_many, measure)
    results = {who: [r[who] for r in rounds] for who in rounds[0]}
    made = []
    if clients == 1 and case.baseline != "pushed":
        alone = [r["p50_us"] / 1000 for r in results.get(ALONE, results["raw"])]
        made.append(row(f"{ALONE}, {case.local_sync}, 1 client, p50", "ms", alone, client_in=RAW))
    for who in (ACTIVE, TASKS):
        title = f"{case.name}, {clients} client{'s' if clients > 1 else ''}"
        late = [[r["p50_us"] / 1000 for r in results[k]] for k in (who, "raw")]
        fast = [[r["per_s"] for r in results[k]] for k in (who, "raw")]
        made += [
            row(f"{title}, p50", "ms", late[0], late[1], clients=clients, client_in=who),
            row(f"{title}, throughput", "1/s", fast[0], fast[1], clients=clients, client_in=who),
        ]
    return made
