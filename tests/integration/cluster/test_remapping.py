"""Where keys belong changes under load, with real processes on the real log (P6, P13, T8)."""

from __future__ import annotations

import json
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from halog.config import load_config
from halog.errors import ConflictError
from halog.runtime.keys.key_owners import Places
from halog.runtime.rpc import frames
from halog.schema.registry import DEFAULT
from tests.integration.cluster.fleet import Aircraft, Flight
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.load import Load
from tests.integration.cluster.pauses import Control
from tests.integration.cluster.processes import wait
from tests.integration.cluster.waits import DOUBTED

pytestmark = [pytest.mark.timeout(600), pytest.mark.feature("P6", "P13")]

STEADY = 600
PATIENCE_S = 90.0


class Looker:
    """Looks for what was there before, all the time."""

    def __init__(self, cluster: Cluster) -> None:
        self.node = cluster.client("looker")
        self.missed = list[str]()
        self.looks = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Looker:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._stop.is_set():
            tail = f"steady{self.looks * 7 % STEADY}"
            if self._misses(tail):
                self.missed.append(tail)
            if self.looks % 50 == 0:
                self._all()
            self.looks += 1

    def _misses(self, tail: str) -> bool:
        """Read twice and checked at the end: a single look at a node that was replaced may be old."""
        missed = False
        with suppress(ConflictError), self.node.transaction():
            found = self.node.find(Aircraft, tail)
            self.node.get(Aircraft, "steady0" if tail != "steady0" else "steady1")
            missed = found is None
        return missed

    def _all(self) -> None:
        tails: list[str] = []
        with suppress(ConflictError), self.node.transaction():
            tails += [a.tail for a in self.node.extent(Aircraft)]
        seen = Counter(tails)
        if seen:
            self.missed += [f"steady{i} in an extent" for i in range(STEADY) if seen[f"steady{i}"] != 1]


def mapping(cluster: Cluster) -> dict[str, Any]:
    data = cluster.znode("policies/p")
    assert data is not None
    found: dict[str, Any] = json.loads(data)
    return found


def done(cluster: Cluster, version: int) -> bool:
    now = mapping(cluster)
    return now.get("mapping") == version and "changing" not in now


def begins(cluster: Cluster, version: int) -> bool:
    """Do objects move? Where this process has stood still they may all have moved."""
    return bool(mapping(cluster).get("changing", {}).get("open")) or done(cluster, version)


def undecided(cluster: Cluster) -> int:
    """Transactions in doubt, in all partitions. One that nobody serves counts as one: there may be some."""
    count = 0
    for table in cluster.tables():
        if table.active is None:
            count += 1
            continue
        reply = cluster.ask(table.active.node, frames.Votes(table.name, [], 0))
        assert isinstance(reply, frames.VotesReply)
        count += len(reply.doubts)
    return count


def check_places(cluster: Cluster, file: Path) -> None:
    """Everything once, and where the file has it: counted in the copies of the active nodes."""
    wait(lambda: undecided(cluster) == 0, "something is in doubt", PATIENCE_S)
    places = Places(load_config(file), lambda name: DEFAULT.info(name).parsed)
    seen: Counter[bytes] = Counter()
    for table in cluster.tables():
        assert table.active is not None
        for found in cluster.stored(table.active.node, table.name):
            info = next(i for i in DEFAULT.by_name.values() if found.key.startswith(i.family_id))
            routing_key = info.routing_key(info.decode_index_key(found.key))
            assert places.owner(info.name).partition(info.name, routing_key) == table.name, found.key
            seen[found.key] += 1
    assert seen
    assert set(seen.values()) == {1}


def check_objects(load: Load, cluster: Cluster) -> None:
    node = cluster.client("judge")
    load.check_objects(node)
    with node.transaction():
        assert sum(1 for a in node.extent(Aircraft) if a.tail.startswith("steady")) == STEADY


def test_the_ring_changes_while_a_node_dies_then_partitions_are_added(make: Make, control: Control) -> None:
    """A changed ring moves five objects of six; the node that moves them is killed meanwhile, and comes back with its
    old file. Then three partitions more. Callers get no error, nothing is lost, doubled, misplaced or missed."""
    cluster = make(every=2_000, keep=500)
    cluster.start()
    client = cluster.client()
    client.load([Aircraft(f"steady{i}") for i in range(STEADY)])
    ring = cluster.configuration("ring.toml")
    ring.write_text(ring.read_text().replace("[policies.p]\n", "[policies.p]\nring_size = 3000\nmove_objects = 10\n"))
    with Load(client, "ring") as load, Looker(cluster) as looker:
        victim = cluster.table("p-0").active
        assert victim is not None
        client.runtime.operators.rebalance("p", load_config(ring))
        wait(lambda: begins(cluster, 1), "objects begin to move", PATIENCE_S)
        cluster.kill(victim.node)
        wait(lambda: done(cluster, 1), "every object is where the new ring has it", PATIENCE_S)
        cluster.start([victim.node])
        load.flows()
        cluster.values["partitions"] = 9
        more = cluster.configuration("more.toml")
        more.write_text(more.read_text().replace("[policies.p]\n", "[policies.p]\nring_size = 3000\n"))
        client.runtime.operators.rebalance("p", load_config(more), wait_s=PATIENCE_S)
        load.flows()
    assert done(cluster, 2)
    assert (load.errors, looker.missed[:3], looker.looks > 50) == ([], [], True)
    control.check(load.waits, DOUBTED)
    cluster.whole(PATIENCE_S)
    check_places(cluster, more)
    check_objects(load, cluster)
    with client.transaction():
        assert len(list(client.extent(Flight))) > 0
    wait(lambda: "counts" in cluster.log_of(victim.node), "it was told that its file is old")
