"""Two real sites, and commits that wait for the other one's log: a whole site is lost, and nothing acknowledged is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from halog.errors import HalogError, SitesError
from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.processes import wait
from tests.integration.sites.test_taking_over import command, land, landings, level, wait_lag
from tests.integration.sites.two import EAST, WEST, Between, TwoSites

pytestmark = [pytest.mark.timeout(300), pytest.mark.feature("M5", "R1")]

LINE_S = 0.03
"""One way: so much is under way that a commit which did not wait is not there."""


@pytest.fixture
def made(between: Between, tmp_path: Path) -> Iterator[Callable[..., TwoSites]]:
    """Makes a cluster over both sites whose commits wait for the other one's log."""
    clusters: list[TwoSites] = []

    def make(**values: Any) -> TwoSites:
        clusters.append(TwoSites(tmp_path, between, sync_sites=(WEST, EAST), **values))
        return clusters[-1]

    yield make
    between.heal()
    for cluster in clusters:
        cluster.close()


class Traffic:
    """Threads that create aircraft until they are told to stop: those that were acknowledged, and those of which nobody
    could tell."""

    def __init__(self, node: Any, threads: int = 4) -> None:
        self.node = node
        self.acknowledged = set[str]()
        self.unknown = set[str]()
        self.stopped = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(f"T{n}-",), daemon=True) for n in range(threads)]
        for thread in self._threads:
            thread.start()

    def _run(self, prefix: str) -> None:
        number = 0
        while not self.stopped.is_set():
            number += 1
            try:
                with self.node.transaction():
                    self.node.create(Aircraft(tail=f"{prefix}{number}"))
            except HalogError as e:
                if e.happened is not False:
                    self.unknown.add(f"{prefix}{number}")
                continue
            self.acknowledged.add(f"{prefix}{number}")

    def end(self, limit_s: float) -> None:
        """Every one of them has its answer; `limit_s` from now on."""
        self.stopped.set()
        until = time.monotonic() + limit_s
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        assert not any(t.is_alive() for t in self._threads), "a caller never got an answer"

    def flows(self, count: int = 60) -> None:
        """So many more."""
        need = len(self.acknowledged) + count
        wait(lambda: len(self.acknowledged) >= need, lambda: f"commits: {len(self.acknowledged)} of {need}", 60)


def waited_for(two_sites: TwoSites) -> None:
    """East knows that commits wait for it. Before it mirrors anything the command exits with 4."""
    wait(lambda: {m["commits_wait"] for m in wait_lag(two_sites.east)} == {True}, "commits wait for east", 60)


def lost(two_sites: TwoSites) -> set[str]:
    """West is lost in the middle of traffic, and east taken over to; what was acknowledged there and is not here."""
    two_sites.start()
    waited_for(two_sites)
    two_sites.between.delay(LINE_S)
    traffic = Traffic(two_sites.west.client())
    traffic.flows()
    two_sites.between.cut()
    for name in ("west-1", "west-2"):
        two_sites.west.kill(name)
    for server in ("kafka", "zookeeper"):
        two_sites.between.sites[WEST].site.kill(server)
    traffic.stopped.set()
    acknowledged = set(traffic.acknowledged)
    refused = command(two_sites.east, "promote", code=5)
    assert "What it acknowledged is here" in refused
    told = command(two_sites.east, "promote", "--may-fork", "--cluster", two_sites.east.name)
    assert {(d["may_fork"], d["lacks"]) for d in told} == {(True, "")}
    two_sites.east.whole()
    node = two_sites.east.client("reader")
    with node.transaction():
        here = {a.tail for a in node.extent(Aircraft)}
    land(two_sites.east.client(), "after", 3)  # it goes on, alone
    return acknowledged - here


@pytest.mark.long
def test_every_acknowledged_commit_is_there_when_a_whole_site_is_lost(made: Callable[..., TwoSites]) -> None:
    """Its nodes, Kafka and ZooKeeper, while the line is cut, in the middle of traffic."""
    assert not lost(made())


@pytest.mark.long
def test_without_the_wait_acknowledged_commits_are_lost_with_the_site(made: Callable[..., TwoSites]) -> None:
    """So the test above notices."""
    assert lost(made(module="tests.integration.sites.not_waiting"))


@pytest.mark.long
def test_commits_are_refused_while_the_line_is_cut_and_go_on_when_it_is_back(made: Callable[..., TwoSites]) -> None:
    """And are all there when the other site takes over, which waits for this one from then on."""
    two_sites = made()
    two_sites.start()
    client = two_sites.west.client()
    told = unknown = 0

    def landed() -> str:
        nonlocal told, unknown
        try:
            land(client, "N1")
        except SitesError as error:
            return f"refused: {error.evidence['sites']}"
        except HalogError:
            unknown += 1
            return "unknown"
        told += 1
        return "told"

    wait(lambda: landed() == "told" and told >= 5, "commits are acknowledged", 60)
    two_sites.between.cut()
    wait(lambda: landed() == f"refused: {[EAST]}", "commits are refused by name", 120)
    two_sites.between.heal()
    wait(lambda: landed() == "told", "commits go on", 60)
    switched = command(two_sites.east, "promote")
    assert {(d["may_fork"], d["lacks"]) for d in switched} == {(False, "")}
    two_sites.east.whole()
    assert told <= landings(two_sites.east, "N1") <= told + unknown
    land(two_sites.east.client(), "N2", 5)
    level(two_sites)
