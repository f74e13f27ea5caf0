"""What a client sees while the active role moves on purpose (Q5), and while the active is frozen."""

from __future__ import annotations

import os
import signal
import time

from benchmarks.effort import Effort
from benchmarks.figures import Row, Target, median, percentile, row
from benchmarks.processes import Child
from benchmarks.scene import Scene, wait_until
from benchmarks.suite_failover import CLIENT, RATE, Cluster, first_after, longest_gap
from halog.config import TimingConfig

AROUND_S = 0.25
"""Writing before a transfer, and after it."""
THAWED_S = 0.3
"""A frozen node sleeps on for so long after it was replaced."""

PAUSE = Target(100, "value", hard=True)
FROZEN = Target(TimingConfig().non_response_timeout_ms + 100, "value")


def transfer(scene: Scene, apps: dict[str, Child], effort: Effort) -> list[Row]:
    """Hand one partition after the other to its first replica, all being written to; the longest time without an
    acknowledgement of the one that moved."""
    cluster = Cluster(scene, "transfer", 1, 1)
    pauses: list[float] = []
    for i in range(effort.transfers):
        cluster.whole()
        state = cluster.state()
        partition = sorted(state)[i % len(state)]
        cluster.client.ask("begin_writes", kind="Item", rate=RATE, partitions=sorted(state))
        time.sleep(AROUND_S)
        at = time.monotonic()
        cluster.client.ask("hand_over", partition=partition, to=state[partition]["sync"][0])
        time.sleep(AROUND_S)
        pauses.append(longest_gap(cluster.client.ask("end_writes")[partition]["times"], at))
    scene.end_all()
    name = f"planned transfer at {RATE:.0f} writes/s a partition, longest pause"
    p99 = row(f"{name}, p99", "ms", [percentile(sorted(pauses), 0.99)], target=PAUSE, client_in=CLIENT)
    return [
        row(f"{name}, median", "ms", [median(pauses)], client_in=CLIENT),
        Row(**{**p99.to_dict(), "runs": len(pauses)}),
    ]


def freeze(scene: Scene, apps: dict[str, Child], effort: Effort) -> list[Row]:
    """SIGSTOP the active of a partition: the time to the first new acknowledged write. It wakes up afterwards."""
    cluster = Cluster(scene, "freeze", 1, 1)
    times = []
    for i in range(effort.pauses):
        cluster.whole()
        state = cluster.state()
        victim = state[sorted(state)[i % len(state)]]["active"]
        led = [p for p, t in state.items() if t["active"] == victim]
        cluster.client.ask("begin_writes", kind="Item", rate=RATE, partitions=led)
        time.sleep(AROUND_S)
        at = time.monotonic()
        os.kill(cluster.nodes[victim].pid, signal.SIGSTOP)
        wait_until("others took over", lambda gone=victim: all(t["active"] != gone for t in cluster.state().values()))  # type: ignore[misc]
        time.sleep(THAWED_S)
        os.kill(cluster.nodes[victim].pid, signal.SIGCONT)
        time.sleep(AROUND_S)
        written = cluster.client.ask("end_writes")
        times.append(max(first_after(written[p]["times"], at) for p in led))
    scene.end_all()
    name = "failover of a frozen process, first new acknowledged write, median"
    return [row(name, "ms", times, target=FROZEN, client_in=CLIENT)]
