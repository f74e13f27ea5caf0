"""Figures 17 to 20 of the reference documents, restoring after a multi-master scenario, as stories of whole nodes in
memory; each test is named after its own (M1-M4).

What parts there are nodes; here it is sites, since one log lets one history through. So the figures' nodes, or
sub-clusters, are sites, and a restore is asked for where the initiating nodes are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import halog
from halog.runtime.sites.voting import held
from halog.schema.registry import Registry
from halog.testing.cluster import Cluster, wait_until
from halog.transactions.node import Node
from restore.compensation import Conflict, Verdict, by_default
from tests.unit.cli.conftest import Ran, halog as halog_command
from tests.unit.cli.sites.test_sites import configured
from tests.unit.sites.two import level

pytestmark = [pytest.mark.timeout(120), pytest.mark.feature("M2")]
__all__ = ["halog_command"]

Halog = Callable[..., Ran]
ALONE_MS = 2_000
"""Until a site goes on that does not see the other one."""


class Sites(NamedTuple):
    """Both, each with classes of its own: who asks a trigger is the node that runs it."""

    one: Cluster
    two: Cluster
    orders: dict[str, type[Any]]
    """By site."""
    asked: list[str]
    """The site of whoever asked a trigger, each time."""
    tomls: dict[str, Path]

    def do(self, cluster: Cluster, work: Callable[[Node, type[Any]], object]) -> None:
        node = cluster.node(cluster.names[0])
        with node.transaction():
            work(node, self.orders[cluster.site])

    def create(self, cluster: Cluster, **amounts: int) -> None:
        self.do(cluster, lambda node, order: [node.create(order(name, n)) for name, n in amounts.items()])

    def change(self, cluster: Cluster, name: str, amount: int) -> None:
        def work(node: Node, order: type[Any]) -> None:
            node.get(order, name).amount = amount

        self.do(cluster, work)

    def delete(self, cluster: Cluster, name: str) -> None:
        self.do(cluster, lambda node, order: node.delete(node.get(order, name)))

    def kept(self, name: str) -> dict[str, int]:
        """What that node has."""
        cluster = self.one if name in self.one.names else self.two
        node = cluster.node(name)
        with node.transaction(read="local") as tx:
            return {o.name: o.amount for o in tx.extent(self.orders[cluster.site])}

    def knows(self, cluster: Cluster) -> bool:
        """Has it been told of every partition that site one serves it?"""
        coordinator = cluster.node(cluster.names[0]).runtime.adapters.coordinator
        votes = (held(coordinator, name)[0] for name in cluster.tables())
        return all(vote is not None and vote.site == "one" for vote in votes)

    def active(self, partition: str) -> set[str]:
        """Of both definitions there are of it."""
        tables = (cluster.tables()[partition] for cluster in (self.one, self.two))
        return {t.active.node for t in tables if t.active is not None and not t.owner}


def made(asked: list[str], site: str) -> tuple[Registry, type[Any]]:
    """A site's application."""
    registry = Registry()

    @halog.managed(name="Order", key="name", registry=registry)
    class Order:
        name: str
        amount: int = 0

    def trigger(conflict: Conflict) -> Verdict:
        asked.append(site)
        return by_default(conflict)

    halog.on_conflict(Order, registry=registry)(trigger)
    return registry, Order


@contextmanager
def running(nodes: int, partitions: int, directory: Path, patch: pytest.MonkeyPatch) -> Iterator[Sites]:
    """Both of so many nodes each. Neither needs a quorum: who misses the other one goes on by itself."""
    asked: list[str] = []
    (one_has, first), (two_has, second) = made(asked, "one"), made(asked, "two")
    more: Any = {"partitions": partitions, "takeover": "always", "takeover_after_ms": ALONE_MS}
    with (
        Cluster(nodes, registry=one_has, site="one", others=("two",), **more) as one,
        Cluster(nodes, registry=two_has, site="two", home=one, **more) as two,
    ):
        tomls = configured(one, two, directory, patch)
        yield Sites(one, two, {"one": first, "two": second}, asked, tomls)


def fail(sites: Sites) -> None:
    """Connectivity is lost, and both go on."""
    wait_until(lambda: sites.knows(sites.one) and sites.knows(sites.two), "both know that one serves", 30)
    sites.one.cut_off()
    for cluster in (sites.one, sites.two):
        wait_until(lambda c=cluster: not any(t.owner for t in c.tables().values()), f"{cluster.site} goes on", 30)  # type: ignore[misc]
        cluster.settle()


def parted(halog: Halog, toml: Path) -> list[dict[str, Any]]:
    """What `halog status` says."""
    return list(halog("status", "--config", toml, "--format", "json").json["parted"])


# --- figures 17 to 19: A is active for P, B has the replica; both go on; restored with A or B as the active node ---

P = "test-0"
A, B = "one-A", "two-A"


@pytest.fixture
def active(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sites]:
    """Figure 17."""
    with running(1, 1, tmp_path, monkeypatch) as sites:
        sites.create(sites.one, same=1, mine=1, theirs=1, both=1, replaced=1)
        level(sites.one, sites.two)
        yield sites


@pytest.fixture
def failed(active: Sites) -> Sites:
    """Figure 18, and what each node did by itself; then connectivity is restored."""
    fail(active)
    active.change(active.one, "mine", 10), active.change(active.two, "theirs", 20)
    active.change(active.one, "both", 10), active.change(active.two, "both", 20)
    for cluster, amount in ((active.one, 10), (active.two, 20)):
        active.delete(cluster, "replaced")
        active.create(cluster, replaced=amount)
    active.create(active.one, added=10)
    active.one.mend()
    return active


CONFLICTS = {"instance added": 1, "key conflict": 1, "state conflict": 1}
RESTORED = {"same": 1, "mine": 10, "theirs": 20, "both": 20, "replaced": 20, "added": 10}


@pytest.mark.feature("P1")
def test_figure_17_a_is_active_and_b_has_the_replica(active: Sites) -> None:
    assert active.active(P) == {A}
    assert active.kept(A) == active.kept(B) == {"same": 1, "mine": 1, "theirs": 1, "both": 1, "replaced": 1}


@pytest.mark.feature("M1")
def test_figure_18_each_takes_the_other_for_lost_and_is_active_without_it(failed: Sites, halog_command: Halog) -> None:
    """Nobody has asked anybody. That both are is told as soon as they have discovered each other, and nothing is done
    about it: the operator can."""
    assert failed.active(P) == {A, B}
    lists = [cluster.tables()[P].node_list for cluster in (failed.one, failed.two)]
    assert lists == [(A,), (B,)]
    for toml in failed.tomls.values():
        wait_until(lambda t=toml: [p["partition"] for p in parted(halog_command, t)] == [P], "it is told", 30)  # type: ignore[misc]
    assert failed.active(P) == {A, B}
    assert (failed.kept(A)["both"], failed.kept(B)["both"]) == (10, 20)


@pytest.mark.feature("M3", "M5")
@pytest.mark.parametrize("source", [[], ["--from", f"{P}={B}"]], ids=["broadcast", "from B"])
@pytest.mark.parametrize("then", [A, B])
def test_figure_19_restored_on_a(failed: Sites, halog_command: Halog, source: list[str], then: str) -> None:
    """B responds that it is active, or is named; what A has is compared there, and the triggers of B's application are
    asked; the node that is to be active is, the other one has the replica, and both have the same (figure 17)."""
    ran = halog_command("restore", *source, "--active", then, "--config", failed.tomls["one"], "--format", "json")
    assert ran.code == 0, ran.err
    (told,) = ran.json
    assert (told["source"], told["phase"], told["conflicts"]) == ("two", "done", CONFLICTS)
    assert failed.asked == ["two"] * len(CONFLICTS)
    assert failed.active(P) == {then}
    wait_until(lambda: failed.kept(A) == failed.kept(B) == RESTORED, f"{failed.kept(A)}, {failed.kept(B)}", 30)
    level(failed.one, failed.two)
    failed.change(failed.one if then == A else failed.two, "same", 2)
    level(failed.one, failed.two)
    assert failed.kept(A) == failed.kept(B) == RESTORED | {"same": 2}
    for toml in failed.tomls.values():
        wait_until(lambda t=toml: parted(halog_command, t) == [], "they are one", 30)  # type: ignore[misc]


# --- figure 20: two sub-clusters, A and B, C and D ---

ONE, TWO = ("one-A", "one-B"), ("two-A", "two-B")
LED = {"test-0": (ONE[0], TWO[0]), "test-1": (ONE[1], TWO[1]), "test-2": (ONE[0], TWO[1]), "test-3": (ONE[1], TWO[0])}
"""By partition, the active nodes of both sub-clusters."""


@pytest.fixture
def split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sites]:
    with running(2, 4, tmp_path, monkeypatch) as sites:
        names = {f"o{i}": i for i in range(24)}
        sites.create(sites.one, **names)
        level(sites.one, sites.two)
        fail(sites)
        for cluster, n in ((sites.one, 0), (sites.two, 1)):
            for partition, pair in LED.items():
                active = cluster.tables()[partition].active
                if active is None or active.node != pair[n]:
                    cluster.node(cluster.names[0]).runtime.operators.hand_over(partition, pair[n])
            cluster.settle()
            for name in names:
                sites.change(cluster, name, 100 * (n + 1))
            sites.create(cluster, **{f"of {cluster.site} {i}": i for i in range(8)})
        sites.one.mend()
        yield sites


@pytest.mark.feature("M4")
def test_figure_20_each_initiating_node_is_restored_from_a_source_node_of_the_other_sub_cluster(
    split: Sites, halog_command: Halog
) -> None:
    """Which are which the operator says, for each partition: A from C, B from D, C from B, and D from A."""
    assert {p: split.active(p) for p in LED} == {p: set(pair) for p, pair in LED.items()}
    for partition, (here, there) in LED.items():
        initiates = "one" if partition < "test-2" else "two"
        source = there if initiates == "one" else here
        words = ["--partition", partition, "--config", split.tomls[initiates], "--format", "json"]
        within = halog_command("restore", "--from", f"{partition}={here if source is there else there}", *words)
        assert (within.code, "is not active for" in within.err) == (5, True), "nothing parts inside a sub-cluster"
        ran = halog_command("restore", "--from", f"{partition}={source}", *words)
        assert ran.code == 0, ran.err
        assert [(d["source"], d["phase"]) for d in ran.json] == [("two" if initiates == "one" else "one", "done")]
        assert split.active(partition) == {source}
    level(split.one, split.two)
    expected = {f"of {site} {i}": i for site in ("one", "two") for i in range(8)}
    for i in range(24):
        partition = split.one.partition_of(split.orders["one"], f"o{i}")
        expected[f"o{i}"] = 200 if partition < "test-2" else 100
    assert [split.kept(name) for name in (*ONE, *TWO)] == [expected] * 4
