"""What it costs that objects are in many places: commits over two of them, and objects and copies that move.

A commit over two partitions stands beside one that changes as much in one, in turns. What joins, leaves and other rings
move is planned (`movement`) and, once, done: a fourth node joins three that are written to, and is drained. The pause
of a planned hand-over is measured by `suite_roles.transfer`, where there is nothing else, and not again here.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks import movement
from benchmarks.effort import Effort
from benchmarks.figures import Row, Target, row
from benchmarks.processes import ROOT, Child
from benchmarks.scene import Scene, complete, wait_until
from benchmarks.suite_failover import longest_gap
from halog.config import PolicyConfig, TimingConfig, ZoneConfig, load_config

ACTIVE, CLIENT = "the active node", "a client node"
NODES, PLANNED = "the nodes", "planned only"
"""Where there is no client: what moves, and what would."""
NAMED = {"one": ("item-0", "item-0"), "same": ("item-0", "item-2"), "two": ("item-0", "item-1")}
"""The partitions of a commit: two objects of one, of two that node A is active for, of one of A's and one of B's."""
SPANNING = Target(2.5, "ratio")
MOVEMENT = Target(1.05, "ratio", hard=True)
THROUGHPUT = Target(0.7, "ratio", "higher")
KEYS = 200_000
"""So many that chance makes a node's share 0.3 % larger or smaller."""

MANY, CHANGED = 16, 16 * 100
"""Clients that write while objects move, and the objects they write to."""
RINGS = (131_072, 65_536)
"""In turn: of each nearly all keys are elsewhere than of the other."""
SETTLE_MS = 500
"""A node that came is planned for so soon: it is the moving that is looked at."""
EVERY_S = 0.04
"""Between two writes to a partition while nodes come and go: a pause may look longer by that."""
MOVED_S = 120.0
"""For a join, a drain, another ring: some seconds each."""


def run(scene: Scene, apps: dict[str, Child], effort: Effort) -> list[Row]:
    """All rows of this subject."""
    apps = _two_nodes(scene, effort)
    rows = [*_spanning(scene, apps, effort), *_another_ring(scene, apps, effort)]
    scene.end_all()
    rows += [*_nodes_come_and_go(scene, effort), *_planned()]
    scene.end_all()
    return rows


# --- commits over two partitions ---


def _two_nodes(scene: Scene, effort: Effort) -> dict[str, Child]:
    """Node A is active for the even partitions, B for the odd ones, each the other's replica; and a client node."""
    policy = PolicyConfig("zone", partitions=4, sync_replicas=1, local_sync="WRITE_NO_SYNC")
    apps = scene.open(scene.cluster("placement", "AB", {"Item": policy}), "AB", client="client")
    apps["A"].ask("load", kind="Item", first=0, count=effort.moved_objects)
    for i, (name, table) in enumerate(sorted(apps["A"].ask("state").items())):
        if table["active"] != "AB"[i % 2]:
            apps["A"].ask("hand_over", partition=name, to="AB"[i % 2])
    wait_until("A and B lead in turn", lambda: _leads(apps["client"].ask("state")) == ["A", "B", "A", "B"])
    wait_until("the cluster is complete", lambda: complete(apps["client"].ask("state"), 2))
    return apps


def _leads(state: dict[str, Any]) -> list[str]:
    return [table["active"] for _, table in sorted(state.items())]


def _spanning(scene: Scene, apps: dict[str, Child], effort: Effort) -> list[Row]:
    def measure(_: int) -> dict[tuple[str, str], float]:
        return {
            (what, who): apps[who].ask("commits_over", kind="Item", partitions=named, seconds=effort.seconds)["p50_us"]
            for who in ("A", "client")
            for what, named in NAMED.items()
        }

    measure(0)  # unmeasured: a broker that has just started has compiled none of it
    rounds = scene.calm.rounds(effort.runs, measure)
    return [
        row(
            f"commit over two partitions {where}, 1 client, p50; beside a commit of two objects of one partition",
            "ms",
            [r[what, who] / 1000 for r in rounds],
            [r["one", who] / 1000 for r in rounds],
            target=SPANNING,
            client_in=client_in,
        )
        for who, client_in in (("A", ACTIVE), ("client", CLIENT))
        for what, where in (("same", "of one node"), ("two", "of two nodes"))
    ]


# --- objects move to other partitions ---


def _another_ring(scene: Scene, apps: dict[str, Child], effort: Effort) -> list[Row]:
    """Commits while nearly all objects move, beside those of the seconds before."""
    client, config = apps["client"], scene.directory / "placement.toml"
    asked = {"kind": "Item", "clients": MANY, "seconds": effort.seconds}
    client.ask("commits_again", **asked)

    def measure(i: int) -> tuple[float, float, float]:
        before = client.ask("commits_again", **asked)["per_s"]
        began = time.monotonic()
        apps["A"].ask("rebalance", policy="item", config=str(_with_ring(config, RINGS[i % 2])))
        during = client.ask("commits_again", **asked)["per_s"]
        if apps["A"].ask("rebalanced", policy="item")["state"] == "done":
            raise RuntimeError(f"{effort.moved_objects} objects moved before {effort.seconds} s of commits had passed")
        wait_until("all objects have moved", lambda: _is_done(apps["A"]), MOVED_S)
        return before, during, effort.moved_objects / (time.monotonic() - began)

    rounds = scene.calm.rounds(effort.restores, measure)
    before, during, moved = zip(*rounds, strict=True)
    return [
        row(
            f"commits of {MANY} clients while nearly all of {effort.moved_objects:,} objects move; beside before",
            "1/s",
            during,
            before,
            target=THROUGHPUT,
            clients=MANY,
            client_in=CLIENT,
        ),
        row("objects looked at, and most of them moved, beside these commits", "objects/s", moved, client_in=NODES),
    ]


def _with_ring(path: Path, ring: int) -> Path:
    config = load_config(path)
    policies = {name: dataclasses.replace(p, ring_size=ring) for name, p in config.policies.items()}
    other = path.with_name(f"placement-{ring}.toml")
    other.write_text(dataclasses.replace(config, policies=policies).to_toml())
    return other


def _is_done(app: Child) -> bool:
    found: dict[str, Any] = app.ask("rebalanced", policy="item")
    return bool(found["state"] == "done")


# --- nodes come and go ---


def _nodes_come_and_go(scene: Scene, effort: Effort) -> list[Row]:
    """A fourth node joins, and is drained; each of twelve partitions is written to all the while."""
    policy = PolicyConfig("zone", partitions=12, sync_replicas=1, local_sync="WRITE_NO_SYNC")
    four = scene.cluster("turnover", "ABCD", {"Item": policy})
    three = _of_nodes(four, "ABC")
    apps = scene.open(three, "ABC", client="client", copies=2)
    client, copied = apps["client"], effort.moved_objects
    apps["A"].ask("load", kind="Item", first=0, count=copied)
    counts = client.ask("counts", kind="Item", count=copied)
    before = _hosts(client)
    client.ask("begin_writes", kind="Item", rate=1 / EVERY_S, partitions=sorted(before))
    began = time.monotonic()
    _halog("config", "activate", str(_of_nodes(four, "ABCD")), "--config", str(three))
    scene.app(four, "D").ask("open")
    wait_until("D has its share", lambda: _shares(client) == dict.fromkeys("ABCD", 6), MOVED_S)
    joined, came = time.monotonic(), _hosts(client)
    _halog("drain", "D", "--config", str(four), "--timeout", f"{MOVED_S:.0f}")
    wait_until("D has nothing", lambda: _shares(client) == dict.fromkeys("ABC", 8), MOVED_S)
    left, written = _hosts(client), client.ask("end_writes")
    if errors := [e for w in written.values() for e in w["errors"]]:
        raise RuntimeError(f"{len(errors)} writes failed while nodes came and went: {errors[0]}")
    held = sum(counts[p] for p, nodes in came.items() if "D" in nodes)
    gaps = [_gap(written[p]["times"], began, joined) for p in before if before[p] != came[p]]
    made, pause = (
        _made(counts, before, came),
        "longest pause of a partition's writes while it moves to a node that joins",
    )
    return [
        _movement("a node joins three that are written to, objects copied", made, copied * 2 // 4, NODES),
        _movement("it is drained, objects copied", _made(counts, came, left), held, NODES),
        row(f"{pause}, median", "ms", gaps, client_in=CLIENT),
        row(f"{pause}, worst", "ms", [max(gaps)], client_in=CLIENT),
    ]


def _of_nodes(path: Path, nodes: str) -> Path:
    """The same cluster with these nodes, which are planned for soon after they came."""
    config = load_config(path)
    fewer = dataclasses.replace(
        config,
        timing=TimingConfig(join_settle_ms=SETTLE_MS),
        zones={"zone": ZoneConfig(tuple(nodes))},
        nodes={n: config.nodes[n] for n in nodes},
    )
    other = path.with_name(f"{path.stem}-{nodes}.toml")
    other.write_text(fewer.to_toml())
    return other


def _hosts(app: Child) -> dict[str, set[str]]:
    """Partition → nodes in its node list."""
    return {name: {t["active"], *t["replicas"]} for name, t in app.ask("state").items()}


def _shares(app: Child) -> Counter[str]:
    """Node → copies in node lists."""
    return Counter(n for nodes in _hosts(app).values() for n in nodes)


def _made(counts: dict[str, int], before: dict[str, set[str]], after: dict[str, set[str]]) -> int:
    """Objects of which a node has a copy that had none."""
    return sum(counts[p] * len(after[p] - before[p]) for p in before)


def _gap(times: list[tuple[float, float]], began: float, ended: float) -> float:
    return longest_gap([(begin, end) for begin, end in times if begin <= ended], began)


def _halog(*words: str) -> None:
    """A command, as an operator gives it."""
    done = subprocess.run(
        [sys.executable, "-m", "halog.cli.main", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=MOVED_S + 10,
    )
    if done.returncode != 0:
        raise RuntimeError(f"halog {' '.join(words)}: exit code {done.returncode}: {done.stderr.strip()}")


# --- what is only planned ---


def _planned() -> list[Row]:
    keys = movement.keys(KEYS)
    join, leave = (movement.worst(movement.SIZES, change) for change in (movement.joined, movement.left))
    more, fewer = movement.remapped(keys, 12, 13), movement.remapped(keys, 13, 12)
    cases = len(movement.SIZES)
    return [
        _movement(f"a node joins, copies made, worst of {cases} clusters ({join.where})", join.moved, join.minimum),
        _movement(f"a node leaves, copies made, worst of {cases} clusters ({leave.where})", leave.moved, leave.minimum),
        _movement(f"a partition more, keys elsewhere ({more.where})", more.moved, more.minimum),
        _movement(f"a partition less, keys elsewhere ({fewer.where})", fewer.moved, fewer.minimum),
        *(
            row(
                f"the fullest node's objects beyond the mean, ring of {ring:,} ({KEYS:,} objects, {movement.SPREAD})",
                "%",
                [100 * (movement.unevenness(keys, ring) - 1)],
                client_in=PLANNED,
            )
            for ring in movement.RINGS
        ),
    ]


def _movement(name: str, moved: int, minimum: int, where: str = PLANNED) -> Row:
    return row(f"{name}; beside the fewest", "1", [moved], [minimum], target=MOVEMENT, client_in=where)
