"""An application is told of nodes that come and go, with real processes and servers (N3)."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import NamedTuple

import pytest

from halog.errors import NotFoundError
from tests.integration.cluster.fleet import Aircraft, Flight
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.processes import Process, wait

pytestmark = pytest.mark.timeout(240)


class Application(NamedTuple):
    """A process that hosts a node of the cluster, and tells what its notifiers hear."""

    cluster: Cluster
    process: Process

    @classmethod
    def start(cls, cluster: Cluster, node: str, *more: str) -> Application:
        """Start it, without waiting for it. It is ended with the cluster's processes."""
        argv = ["tests.integration.cluster.notified", str(cluster.toml), node, *more]
        process = cluster.processes[node] = Process(node, cluster.directory, argv)
        return cls(cluster, process)

    def said(self, node: str) -> list[str]:
        """What it said of a node, in its order."""
        return [line.removesuffix(f" {node}") for line in self.process.lines() if line.endswith(f" {node}")]

    def committed(self, node: str) -> list[str]:
        """What its notifiers committed about a node, as a client sees it."""
        client = self.cluster.client()

        def read() -> list[str]:
            try:
                count = client.get(Aircraft, node).landings
            except NotFoundError:
                return []
            return [client.get(Flight, node, number).of for number in range(1, count + 1)]

        return client.transactional(read)()

    def heard(self, node: str, *what: str) -> str:
        """Wait until this is what was committed last about a node; return its words."""
        wait(lambda: [w.partition(":")[0] for w in self.committed(node)[-len(what) :]] == [*what], f"{what} of {node}")
        return self.committed(node)[-1]


@pytest.mark.feature("N3")
def test_an_application_hears_of_nodes_that_die_freeze_leave_and_come_back(make: Make) -> None:
    """One call after the other for each node, in transactions whose commits others see: once each."""
    cluster = make()
    cluster.start(["A", "B"])
    application = Application.start(cluster, "C")
    application.process.ready()
    cluster.whole()
    application.heard("A", "available")
    application.heard("B", "available")
    cluster.kill("B")
    application.heard("B", "available", "unavailable")
    cluster.start(["B"])
    application.heard("B", "unavailable", "available")
    cluster.whole()
    cluster.freeze("B")
    application.heard("B", "available", "unavailable")
    cluster.wake("B")
    application.heard("B", "unavailable", "available")
    cluster.whole()
    assert cluster.processes["B"].terminate() == 0
    assert application.heard("B", "available", "unavailable") == "unavailable: Down: it left"
    cluster.start(["B"])
    application.heard("B", "unavailable", "available")
    for node in ("A", "B"):
        committed, said = application.committed(node), application.said(node)
        told = [words.partition(":")[0] for words in committed]
        assert told[0] == "available"
        assert all(one != other for one, other in pairwise(told)), told
        assert said == [f"{step} {what}" for what in told for step in ("begin", "end")]
    assert len(application.committed("B")) >= 7


@pytest.mark.feature("N3")
def test_a_node_takes_over_while_its_notifiers_hang(make: Make) -> None:
    """It has nobody else to do that. The notifiers of the node that is killed have not returned since it came up."""
    cluster = make(nodes="AB", async_=0)
    cluster.start(["A"])
    application = Application.start(cluster, "B", "hangs")
    application.process.ready()
    wait(lambda: application.said("A") == ["begin available"], "the notifier hangs")
    cluster.whole()
    cluster.lead("p-0", "A")
    client = cluster.client()
    tail = next(f"N{n}" for n in range(1000) if client.space.route(Aircraft, (f"N{n}",)).partition == "p-0")
    with client.transaction():
        client.create(Aircraft(tail=tail))
    began = time.monotonic()
    cluster.kill("A")
    with client.transaction():
        assert client.get(Aircraft, tail).land(1) == 1
    print(f"the first commit behind the kill came after {(time.monotonic() - began) * 1000:.0f} ms")
    assert cluster.led_by("B") == cluster.partitions()
    assert application.said("A") == ["begin available"]
    cluster.start(["A"])
    cluster.whole()
    assert application.said("A") == ["begin available"], "no second call begins before the first one returned"
