"""How full partitions are: counted once, then kept; asked for while it is used, and forgotten when nobody answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from halog.core.keys.directory import is_entry
from halog.errors import UnreachableError, ZoneQuorumError
from halog.runtime.keys.loads import PartitionLoads
from halog.runtime.node.node_load import LoadCounter, memory
from halog.runtime.rpc import frames
from halog.testing.cluster import Cluster, wait_until
from tests.unit.runtime.keys.remapped import Counter, Order, cluster_of, configured
from tests.unit.runtime.keys.rounds import active, rounds, settled

pytestmark = pytest.mark.feature("P6")


class Table:
    def __init__(self, node: str | None) -> None:
        self.configured = ("A", "B")
        self.active = None if node is None else type("Active", (), {"node": node})()


class Router:
    """Nodes that answer as they are told."""

    me = "client"

    def __init__(self, **active: str | None) -> None:
        self.tables = {name: (0, Table(node)) for name, node in active.items()}
        self.says: dict[str, frames.LoadsReply | Exception] = {}
        self.asked: list[str] = []
        self.wait: threading.Event | None = None

    def active(self, partition: str) -> str | None:
        table = self.tables[partition][1]
        return None if table.active is None else str(table.active.node)

    def request(self, node: str, frame: object, timeout_s: float) -> object:
        assert isinstance(frame, frames.Loads)
        self.asked.append(node)
        if self.wait is not None:
            self.wait.wait(60)
        said = self.says.get(node, UnreachableError("silent"))
        if isinstance(said, Exception):
            raise said
        return said


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def told(**objects: int) -> frames.LoadsReply:
    return frames.LoadsReply(objects, 0.5, 0.25)


def made(router: Any, clock: Clock, ask_s: float = 10.0) -> PartitionLoads:
    """`ask_s` is of real time: a test machine stalls."""
    return PartitionLoads(router, clock=clock, ask_s=ask_s)


def ended(it: PartitionLoads) -> None:
    wait_until(it._done.is_set, "it asks on")


def test_nobody_is_asked_before_somebody_looks(clock: Clock) -> None:
    router = Router(p="A", q="B", r=None)
    router.says = {"A": told(p=3), "B": told(q=4)}
    it = made(router, clock)
    states = it.states(("p", "q", "r"))
    assert router.asked == []
    assert (states["p"].objects, states["q"].objects, states["r"].objects) == (3, 4, None)
    assert (states["p"].node, states["p"].nodes, states["r"].node) == ("A", ("A", "B"), None)
    assert (states["q"].cpu, states["q"].memory, states["q"].age_s) == (0.5, 0.25, 0.0)
    assert (sorted(router.asked), len(states), sorted(states)) == (["A", "B"], 3, ["p", "q", "r"])


def test_figures_are_asked_for_anew_each_second_and_nobody_waits_for_that(clock: Clock) -> None:
    router = Router(p="A")
    router.says = {"A": told(p=3)}
    it = made(router, clock)
    assert it.states(("p",))["p"].objects == 3
    clock.now += 0.9
    assert it.states(("p",))["p"].age_s == pytest.approx(0.9)
    assert router.asked == ["A"]
    router.wait, router.says = threading.Event(), {"A": told(p=8)}
    clock.now += 0.2
    assert it.states(("p",))["p"].objects == 3, "those there are"
    clock.now += 0.7
    assert it.states(("p",))["p"].objects == 3
    router.wait.set()
    ended(it)
    assert (it.states(("p",))["p"].objects, router.asked) == (8, ["A", "A"])


def test_who_has_only_old_figures_waits_for_new_ones_but_not_for_ever(
    clock: Clock,
) -> None:
    router = Router(p="A")
    router.says = {"A": told(p=3)}
    it = made(router, clock, ask_s=1.0)
    assert it.states(("p",))["p"].objects == 3
    clock.now += 6
    router.says = {"A": told(p=9)}
    assert it.states(("p",))["p"].objects == 9
    clock.now += 6
    router.wait, router.says = threading.Event(), {"A": told(p=11)}
    seen = it.states(("p",))["p"]
    assert (seen.objects, seen.age_s) == (9, 6.0)
    router.wait.set()
    ended(it)


def test_a_node_that_does_not_answer_is_forgotten_and_the_others_are_not(clock: Clock) -> None:
    router = Router(p="A", q="B")
    router.says = {"A": told(p=3), "B": told(q=4)}
    it = made(router, clock)
    assert it.states(("p",))["p"].objects == 3
    router.says = {"B": told(q=5)}
    for step in (4, 4, 4):
        clock.now += step
        it.states(("p",))["p"]
        ended(it)
    states = it.states(("p", "q"))
    assert (states["p"].objects, states["p"].cpu, states["p"].age_s, states["p"].node) == (None, None, None, "A")
    assert states["q"].objects == 5
    router.tables["q"] = (1, Table("A"))  # another node is active: what the one before said is not its
    assert it.states(("q",))["q"].objects is None


def test_what_was_placed_counts_until_newer_figures_come(clock: Clock) -> None:
    """Not longer: what had been placed when they were asked for is among them; nor what was placed elsewhere."""
    router = Router(p="A", q="B")
    router.says = {"A": told(p=3)}
    it = made(router, clock)
    for _ in range(4):
        it.placed("p")
    it.placed("q")
    assert [it.states(("p", "q"))[n].placed for n in "pq"] == [0, 1]
    it.placed("p")
    assert it.states(("p",))["p"].placed == 1
    router.wait = threading.Event()
    clock.now += 2
    it.states(("p",))["p"]
    wait_until(lambda: router.asked.count("A") == 2, "it is not asked")
    it.placed("p")
    router.wait.set()
    ended(it)
    assert it.states(("p",))["p"].placed == 1


def test_a_node_does_not_ask_itself_over_the_wire(clock: Clock) -> None:
    router = Router(p="client")
    it = PartitionLoads(router, lambda: told(p=7))  # type: ignore[arg-type]
    assert (it.states(("p",))["p"].objects, router.asked) == (7, [])


def test_a_client_counts_nothing_and_a_system_that_says_nothing_is_none(tmp_path: Path) -> None:
    assert LoadCounter(None).told().objects == {}
    assert memory(tmp_path / "none") is None
    (tmp_path / "odd").write_text("MemTotal: many kB\n")
    assert memory(tmp_path / "odd") is None
    (tmp_path / "right").write_text("MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:   250 kB\n")
    assert memory(tmp_path / "right") == 0.75


# --- counting ---


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with rounds(2) as made:
        yield made


def truth(cluster: Cluster) -> dict[str, int]:
    """Read from the copies that serve, entries left out."""
    return {name: sum(not is_entry(f.key) for f in c.objects.scan(b"")) for name, c in active(cluster).items()}


def said(cluster: Cluster, names: str = "AB") -> dict[str, int]:
    found: dict[str, int] = {}
    for name in names:
        found |= cluster.node(name).runtime.service.counting.told().objects
    return found


def test_counts_follow_what_is_created_changed_and_deleted(cluster: Cluster) -> None:
    client = cluster.client()
    client.load([Counter(f"c{i}") for i in range(30)])
    assert all(copy.tally.objects is None for copy in active(cluster).values()), "nobody has asked"
    wait_until(lambda: said(cluster) == truth(cluster), "they are not counted")
    client.load([Order("s", i) for i in range(9)])
    with client.transaction():
        client.get(Counter, "c1").value += 1
        client.delete(client.get(Counter, "c2"))
    with client.transaction():
        again = client.get(Counter, "c3")
        client.delete(again)
        client.create(Counter("c3", 7))
    settled(cluster)
    wait_until(lambda: said(cluster) == truth(cluster), "counts are wrong")
    assert sum(said(cluster).values()) == 30 + 9 - 1


def test_a_node_that_takes_over_counts_anew(cluster: Cluster) -> None:
    client = cluster.client()
    client.load([Counter(f"c{i}") for i in range(30)])
    wait_until(lambda: sum(said(cluster).values()) == 30, "they are not counted")
    cluster.kill("A")
    cluster.settle()
    client.load([Counter(f"d{i}") for i in range(10)])
    settled(cluster)
    wait_until(lambda: said(cluster, "B") == truth(cluster), "what was taken over is not counted")
    assert sum(said(cluster, "B").values()) == 40
    cluster.restart("A")
    cluster.settle()
    for name, copy in cluster.node("A").runtime.copies.items():
        assert copy.serving or copy.tally.objects is None, name


def test_a_node_that_is_active_no_more_forgets_its_count(cluster: Cluster) -> None:
    """Its copy may be made anew; when it is active again it counts again."""
    cluster.client().load([Counter(f"c{i}") for i in range(30)])
    settled(cluster)
    wait_until(lambda: said(cluster) == truth(cluster), "they are not counted")
    name, copy = next(iter(active(cluster).items()))
    before, after = copy.node.me.node, next(n for n in "AB" if n != copy.node.me.node)
    cluster.node(before).runtime.operators.hand_over(name, after)
    wait_until(lambda: not copy.serving, "it is not handed over")
    assert copy.tally.objects is None
    wait_until(lambda: said(cluster, after).get(name) == truth(cluster)[name], "it is not counted there")


def test_what_is_committed_while_it_counts_is_counted_once(cluster: Cluster) -> None:
    client = cluster.client()
    client.load([Counter(f"c{i}") for i in range(20)])
    settled(cluster)
    name, copy = next(iter(active(cluster).items()))
    before = truth(cluster)[name]

    def closing() -> bool:
        client.load([Counter(f"d{i}") for i in range(20)])
        wait_until(lambda: sum(truth(cluster).values()) == 40, "they are not there")
        return False

    copy.tally.count(closing)
    assert (copy.tally.objects, truth(cluster)[name]) == (truth(cluster)[name], before + 5)


def test_a_count_that_is_forgotten_while_it_goes_on_is_none(cluster: Cluster) -> None:
    cluster.client().load([Counter(f"c{i}") for i in range(20)])
    copy = next(iter(active(cluster).values()))

    def closing() -> bool:
        copy.tally.forget()
        return False

    copy.tally.count(closing)
    assert copy.tally.objects is None
    copy.tally.count(lambda: True)
    assert copy.tally.objects is None, "the node closes"


def test_an_offline_node_says_nothing_of_its_partitions() -> None:
    with configured(cluster_of(2)) as cluster:
        router = cluster.node("B").runtime.router
        assert isinstance(router.request("A", frames.Loads(), 5.0), frames.LoadsReply)
        own = cluster.node("A").runtime.members.own
        own.why_offline = "alone"
        with pytest.raises(ZoneQuorumError):
            router.request("A", frames.Loads(), 5.0)
        own.why_offline = ""
