"""What TLS between nodes costs (N5): the same commits in two clusters by turns, one of which speaks plain text; and how
long a connection takes."""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path
from typing import Any

from benchmarks.effort import Effort
from benchmarks.figures import Row, Target, row
from benchmarks.processes import Child
from benchmarks.scene import Scene, complete, wait_until
from benchmarks.suite_failover import NODES, Cluster
from halog.adapters.tcp.connect import Dialler
from halog.certs.authority import Holder
from halog.certs.directory import CertsDirectory
from halog.certs.identity import HolderIdentity, HolderKind
from halog.certs.issuance import create, create_authority
from halog.cli.shared.connection import connect
from halog.config import PolicyConfig, load_config
from halog.config.security import REQUIRED, SecurityConfig
from halog.runtime.node.wiring import channel_security

TLS, PLAIN = "tls", "plain"
USER = "bench"
MANY = 16
WARM_S = 1.0
CONNECTS = 40
ACTIVE, CLIENT = "the active node", "a client node"
POLICIES = {"Item": "WRITE_NO_SYNC", "Loose": "NO_SYNC", "Kept": "SYNC"}
"""By class, what a commit waits for in the log; each has a sync replica."""
SLOWER = Target(1.1, "ratio", hard=True)
FEWER = Target(0.9, "ratio", better="higher", hard=True)
CONNECTED = Target(5.0, "value", hard=True)
LATER = Target(1.2, "ratio", hard=True)


def run(scene: Scene, apps: dict[str, Child], effort: Effort) -> list[Row]:
    """All rows; makes two clusters of its own."""
    bindings = {k: PolicyConfig("zone", partitions=1, sync_replicas=1, local_sync=v) for k, v in POLICIES.items()}
    secured = SecurityConfig(REQUIRED, certificates(scene.directory / "certs", TLS), roles={USER: "operator"})
    files = {
        PLAIN: scene.cluster(PLAIN, "AB", bindings, stays=True),
        TLS: scene.cluster(TLS, "AB", bindings, stays=True, security=secured),
    }
    found = {name: _open(scene, file) for name, file in files.items()}
    rows = _connects(files)
    for kind, policy in POLICIES.items():
        for who, process in ((ACTIVE, "A"), (CLIENT, "client")):
            for clients in (1, MANY):
                rows.append(_case(kind, policy, who, clients, {n: c[process] for n, c in found.items()}, effort, scene))
    scene.end_all()
    return [*rows, _failover(scene, effort)]


def _failover(scene: Scene, effort: Effort) -> Row:
    """Kills of active nodes, by turns in a cluster with TLS and in one without."""
    name = f"{TLS}-failover"
    secured = SecurityConfig(
        REQUIRED, certificates(scene.directory / f"{name}-certs", name, NODES), roles={USER: "client"}
    )
    clusters = {TLS: Cluster(scene, name, 1, 1, secured), PLAIN: Cluster(scene, f"{PLAIN}-failover", 1, 1)}
    times: dict[str, list[float]] = {kind: [] for kind in clusters}
    for i in range(effort.kills):
        for kind, cluster in clusters.items():
            times[kind].append(cluster.fail_over(i)[0])
    scene.end_all()
    title = "failover of a killed process with TLS, first new acknowledged write, median"
    return row(title, "ms", times[TLS], times[PLAIN], target=LATER, client_in="a client node")


def certificates(directory: Path, cluster: str, nodes: str = "AB") -> Path:
    """Make those of these nodes, and of a user."""
    now, made = dt.datetime.now(dt.UTC), CertsDirectory(directory)
    create_authority(made, cluster, now)
    for kind, name in (*((HolderKind.NODE, n) for n in nodes), (HolderKind.USER, USER)):
        create(made, Holder(HolderIdentity(cluster, kind, name)), made.place("ca.key"), now)
    return directory


def _open(scene: Scene, file: Path) -> dict[str, Child]:
    nodes = scene.open(file, "AB", client="client")
    nodes["A"].ask("lead")
    wait_until("A leads", lambda: all(t["serving"] for t in nodes["A"].ask("state").values()))
    wait_until("the cluster is complete", lambda: complete(nodes["A"].ask("state"), 2))
    for kind in POLICIES:
        nodes["A"].ask("prepare", kind=kind, clients=MANY)
    return nodes


def _case(kind: str, policy: str, who: str, clients: int, apps: dict[str, Child], effort: Effort, scene: Scene) -> Row:
    asked = {"kind": kind, "clients": clients}
    for app in apps.values():
        app.ask("commits", **asked, seconds=WARM_S)

    def measure(_: int) -> dict[str, dict[str, Any]]:
        return {name: app.ask("commits", **asked, seconds=effort.seconds) for name, app in apps.items()}

    rounds = scene.calm.rounds(effort.runs if clients == 1 else effort.runs_of_many, measure)
    title = f"commit with TLS, {policy}, {clients} client{'s' if clients > 1 else ''}"
    if clients == 1:
        late = {name: [r[name]["p50_us"] / 1000 for r in rounds] for name in apps}
        return row(f"{title}, p50", "ms", late[TLS], late[PLAIN], target=SLOWER, client_in=who)
    fast = {name: [r[name]["per_s"] for r in rounds] for name in apps}
    return row(f"{title}, throughput", "1/s", fast[TLS], fast[PLAIN], target=FEWER, clients=clients, client_in=who)


def _connects(files: dict[str, Path]) -> list[Row]:
    """Connections to a node, its handshake included, one behind the other; plain text by turns."""
    reached = {}
    for name, file in files.items():
        with connect(file, 10.0) as connection:
            address = connection.nodes["A"].address
        dialler = Dialler(channel_security(load_config(file), USER))
        dialler.expect(address, "A", tls=name == TLS)
        reached[name] = (dialler, address)
    taken: dict[str, list[float]] = {name: [] for name in files}
    for _ in range(CONNECTS):
        for name, (dialler, address) in reached.items():
            begin = time.perf_counter()
            dialler.connect(address, 5.0).sock.close()
            taken[name].append((time.perf_counter() - begin) * 1000)
    return [row("connect with TLS", "ms", taken[TLS], taken[PLAIN], target=CONNECTED, client_in="a command")]
