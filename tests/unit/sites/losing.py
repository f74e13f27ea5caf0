"""A site that is lost in the middle of traffic, with all its nodes: what was acknowledged there and is not at the other
one."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from halog.errors import HalogError
from halog.runtime.sites.switchover import Switchover
from halog.testing.cluster import Cluster, wait_until
from tests.unit.sites.model import Flight, registry

BOTH = ("west", "east")
LATE_MS = 10_000
"""Nobody is away because this machine is busy."""


def lose(cluster: Cluster, other: Cluster) -> None:
    """All of a site at once, and the line to it: none of its nodes takes over from another."""
    other.cut()
    with ThreadPoolExecutor() as pool:
        list(pool.map(cluster.kill, cluster.names))


def lost_with_the_site() -> str:
    """What is missing, or ""."""
    with (
        Cluster(
            2,
            partitions=3,
            registry=registry,
            site="west",
            others=("east",),
            sync_sites=BOTH,
            sync_site_away_ms=LATE_MS,
        ) as west,
        Cluster(
            2, partitions=3, registry=registry, site="east", home=west, sync_sites=BOTH, sync_site_away_ms=LATE_MS
        ) as east,
    ):
        acknowledged = set[int]()
        stop = threading.Event()

        def work(number: int) -> None:
            while not stop.is_set():
                number += 10
                try:
                    with west.node(west.names[0]).transaction() as tx:
                        tx.create(Flight(number))
                except (HalogError, KeyError):
                    return
                acknowledged.add(number)

        threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(acknowledged) > 100 or stop.wait(0.01), "nothing is acknowledged", 20)
        east.cut()
        time.sleep(0.2)  # commits that do not wait go on
        lose(west, east)
        stop.set()
        told = set(acknowledged)
        node = east.node(east.names[0]).runtime
        names = [f"test-{i}" for i in range(3)]
        Switchover(node.adapters.coordinator, "east", node.adapters.reach, 10).promote(names, may_fork=True)
        east.settle()
        with east.client().transaction() as tx:
            missing = told - {f.number for f in tx.extent(Flight)}
    return f"{len(missing)} of {len(told)} acknowledged commits are lost" if missing else ""
