"""What one node plans, with a clock of the test's: members that come and go, versions, operators' plans."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from halog.adapters.memory import MemoryCoordinator, MemoryTree
from halog.config import Config, TimingConfig
from halog.config.static import StaticPartition
from halog.core.ids import Member
from halog.core.table.table import DISABLED, PartitionDefinition, PartitionTable, Target
from halog.errors import RefusedError
from halog.events import REBALANCE, Kind
from halog.runtime.placement import auto_rebalance as rebalancing, plan as plans
from halog.testing.cluster import Cluster
from tests.unit.core import kit
from tests.unit.counting import REGISTRY

pytestmark = pytest.mark.feature("P13", "P2")


class Alone:
    """A node's rebalancing with a clock of the test's, in a cluster of A, B and C with two copies of partitions."""

    def __init__(self) -> None:
        self.now = 0
        self.causes = list[str]()
        self.tree = MemoryCoordinator(MemoryTree())
        self.tree.connect(lambda state: None)
        config = Cluster(3, registry=REGISTRY).config
        policy = dataclasses.replace(config.policies["test"], async_replicas=0)
        self.config = dataclasses.replace(
            config, timing=TimingConfig(join_settle_ms=100, replace_after_ms=300), policies={"test": policy}
        )
        self.tables: dict[str, tuple[int, PartitionTable]] = {}
        self.nodes: dict[str, Any] = {}
        members: Any = SimpleNamespace(
            me=SimpleNamespace(node="B"), offline="", coordinated=lambda: True, registered={}, alive=frozenset()
        )
        self.members = members
        router: Any = SimpleNamespace(tables=self.tables, nodes=self.nodes, table_seen=self.seen)
        history: Any = SimpleNamespace(tell=self.told)
        self.versions: Any = SimpleNamespace(active=0)
        self.it = rebalancing.AutoRebalance(
            lambda: self.config,
            lambda: self.versions.active,
            self.tree,
            router,
            members,
            history,
            lambda: self.now,
        )

    def told(self, kind: Kind, cause: str, **more: object) -> None:
        if kind is REBALANCE:
            self.causes.append(cause)

    def seen(self, name: str, version: int, table: PartitionTable) -> None:
        self.tables[name] = (version, table)

    def put(self, table: PartitionTable) -> None:
        """The coordinator's, as every node knows it."""
        self.tables[table.name] = (0, table)
        path = f"partitions/{table.name}"
        if not self.tree.create(path, table.to_bytes()):
            found = self.tree.get(path)
            assert found is not None
            self.tree.set(path, table.to_bytes(), found.version)

    def wishes(self) -> dict[str, tuple[str, ...]]:
        """Where partitions are to move."""
        return {name: t.target.nodes for name, (_, t) in self.tables.items() if t.target}

    def look(self, now: int, *up: str, later: str = "") -> list[str]:
        """`later`: a node that runs another release than the rest."""
        self.now = now
        self.members.alive = frozenset(Member(n, 1) for n in up)
        self.nodes.clear()
        releases = {n: "0.3.0" if n == later else "0.2.0" for n in up}
        self.nodes.update({n: SimpleNamespace(name=n, hosts=True, version=r) for n, r in releases.items()})
        self.it.turn(lambda seconds: False)
        return self.causes

    def by_hand(self, **lists: tuple[str, ...]) -> Config:
        """The policy is a static one now, with these partitions."""
        placed = {name: StaticPartition(nodes) for name, nodes in lists.items()}
        policy = dataclasses.replace(self.config.policies["test"], kind="static", static=placed)
        self.config = dataclasses.replace(self.config, policies={"test": policy})
        return self.config

    def copies(self, count: int) -> Config:
        """The configuration with so many copies of each partition."""
        policy = dataclasses.replace(self.config.policies["test"], async_replicas=count - 2)
        return dataclasses.replace(self.config, policies={"test": policy})

    def activate(self, config: Config) -> None:
        """It is the next version, and this node runs with it."""
        self.config = config
        self.versions.active = self.versions.active + 1

    def known(self) -> set[str]:
        found = self.tree.get("rebalanced/test")
        assert found is not None
        return set(rebalancing._counted("rebalanced/test", found).nodes)


@pytest.fixture
def alone() -> Iterator[Alone]:
    made = Alone()
    yield made
    made.tree.close()


def test_each_restart_of_the_first_node_is_one_of_its_own(alone: Alone) -> None:
    """While A is there B does not look: what it saw of the restart before says nothing."""
    alone.look(0, "A", "B")
    alone.tree.create("rebalanced/test", b'{"nodes":["A","B"]}')
    assert alone.look(10, "B") == []
    alone.look(200, "A", "B")
    assert alone.look(900, "B") == []
    assert alone.look(1_199, "B") == []
    assert alone.look(1_200, "B") == ["A has been gone for long"]


@pytest.mark.feature("U1")
@pytest.mark.parametrize("state", ["running", "paused"])
def test_nobody_is_replaced_while_nodes_are_upgraded(alone: Alone, state: str) -> None:
    """Time begins anew behind it. Once every node runs the release, and all that is left is to raise the level, plans
    are made again."""
    alone.tree.create("rebalanced/test", b'{"nodes":["A","B"]}')
    alone.tree.create("upgrade", b'{"to":"0.3.0","state":"%s"}' % state.encode())
    for now in (0, 500, 1_000, 5_000):
        assert alone.look(now, "B") == []
    alone.tree.set("upgrade", b'{"to":"0.3.0","state":"complete"}', 0)
    assert alone.look(5_100, "B") == []
    assert alone.look(5_300, "B") == []
    assert alone.look(5_500, "B") == ["A has been gone for long"]


@pytest.mark.feature("U1")
def test_nobody_is_replaced_while_nodes_run_several_releases(alone: Alone) -> None:
    alone.tree.create("rebalanced/test", b'{"nodes":["A","B","C"]}')
    for now in (0, 500, 5_000):
        assert alone.look(now, "B", "C", later="C") == []
    assert alone.look(5_100, "B", "C") == []
    assert alone.look(5_500, "B", "C") == ["A has been gone for long"]


@pytest.mark.parametrize("away", ["offline", "coordinated"])
def test_who_could_not_look_begins_anew(alone: Alone, away: str) -> None:
    alone.tree.create("rebalanced/test", b'{"nodes":["A","B"]}')
    assert alone.look(0, "B") == []
    before = getattr(alone.members, away)
    setattr(alone.members, away, "no quorum" if away == "offline" else lambda: False)
    alone.look(100, "B")
    setattr(alone.members, away, before)
    assert alone.look(350, "B") == []
    assert alone.look(650, "B") == ["A has been gone for long"]


def test_who_was_taken_out_of_the_zone_comes_anew_when_it_is_put_back(alone: Alone) -> None:
    alone.tree.create("rebalanced/test", b'{"nodes":["A","B"]}')
    both = alone.config
    alone.config = dataclasses.replace(both, zones={"test": dataclasses.replace(both.zones["test"], nodes=("B",))})
    assert alone.look(0, "A", "B") == []
    assert alone.known() == {"B"}
    alone.config, alone.members.me = both, SimpleNamespace(node="A")
    alone.look(10, "A", "B")
    assert alone.look(110, "A", "B") == ["A came"]
    assert alone.known() == {"A", "B"}


def test_who_cannot_be_replaced_now_is_replaced_as_soon_as_that_is_possible(alone: Alone) -> None:
    """C is gone for long while A is down for a moment: its copies have no other place but where one is already."""
    alone.tree.create("rebalanced/test", b'{"nodes":["A","B","C"]}')
    alone.put(kit.table(name="p", policy="test", configured=("B", "C")))
    alone.look(0, "A", "B")
    alone.members.me = SimpleNamespace(node="A")
    alone.look(10, "A", "B")
    alone.members.me = SimpleNamespace(node="B")
    alone.look(20, "B")
    assert alone.look(330, "B") == ["A, C has been gone for long"]
    assert alone.known() == {"B"}
    assert alone.look(340, "B") == ["A, C has been gone for long"], "there is nothing to be done, and it is told once"
    assert alone.wishes() == {}
    alone.members.registered = {"A": None}
    assert alone.look(350, "A", "B")[1:] == []
    alone.members.me = SimpleNamespace(node="A")
    assert alone.look(360, "A", "B")[1:] == ["C is still to be replaced"]
    assert alone.wishes() == {"p": ("B", "A")}
    assert alone.look(370, "A", "B")[2:] == []


def test_who_cannot_be_replaced_where_it_is_disabled_is_replaced_once_it_is_enabled(alone: Alone) -> None:
    """Nothing else changes then, so the definitions are to be looked at."""
    alone.tree.create("rebalanced/test", b'{"nodes":["A","B","C"]}')
    alone.members.me = SimpleNamespace(node="A")
    off = {"A": PartitionDefinition(("A", "B", "C"), 1, DISABLED)}
    alone.put(kit.table(name="p", policy="test", configured=("B", "C"), definitions=off))
    alone.look(0, "A", "B")
    alone.look(310, "A", "B")
    alone.look(320, "A", "B")
    assert alone.wishes() == {}
    alone.put(kit.table(name="p", policy="test", configured=("B", "C")))
    alone.look(330, "A", "B")
    assert set(alone.wishes()["p"]) == {"A", "B"}


def test_a_node_cancelled_for_is_not_replaced_and_an_operators_wish_is_not_given_up(alone: Alone) -> None:
    alone.members.me = SimpleNamespace(node="A")
    alone.tree.create("rebalanced/test", b'{"nodes":["A","B"]}')
    alone.put(kit.table(name="p", policy="test", configured=("B", "A"), target=Target(("B", "C"), 1)))
    assert alone.look(0, "A", "B") == []
    alone.put(kit.table(name="p", policy="test", configured=("B", "C"), config_version=1))
    stopped = plans.Plan("x", 0, (), cancelled=True, made_for="test")
    alone.tree.create("plan", stopped.to_bytes())
    assert alone.look(10, "A", "B") == []
    alone.tree.delete("plan")
    assert alone.look(20, "A", "B") == ["C is still to be replaced"]


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_plan_that_was_cancelled_is_not_carried_out(alone: Alone, cancelled: bool) -> None:
    alone.members.me = SimpleNamespace(node="A")
    alone.tree.create("rebalanced/test", b'{"nodes":["A","B","C"]}')
    alone.put(kit.table(name="p", policy="test", configured=("B", "A")))
    moves = (plans.PlannedMove("p", ("B", "A"), Target(("B", "C"), 1), 0, ""),)
    alone.tree.create("plan", plans.Plan("x", 0, moves, cancelled=cancelled, made_for="test").to_bytes())
    alone.look(0, "A", "B", "C")
    assert alone.wishes() == ({} if cancelled else {"p": ("B", "C")})


def test_a_move_of_their_own_to_a_node_that_is_gone_is_planned_again(alone: Alone) -> None:
    alone.members.me = SimpleNamespace(node="A")
    alone.tree.create("rebalanced/test", b'{"nodes":["A","B"]}')
    target = Target(("B", "C"), 1)
    alone.put(kit.table(name="p", policy="test", configured=("B",), target=target, config_version=1))
    moves = (plans.PlannedMove("p", ("B",), target, 0, ""),)
    alone.tree.create("plan", plans.Plan("x", 0, moves, made_for="test").to_bytes())
    assert alone.look(0, "A", "B") == ["C is still to be replaced"]
    assert alone.wishes() == {"p": ("B", "A")}


def test_an_operators_plan_that_nobody_applies_is_overtaken_in_the_end(alone: Alone) -> None:
    """From when this node saw it; one that has begun is the operator's for ever."""
    alone.members.me = SimpleNamespace(node="A")
    alone.put(kit.table(name="p", policy="test", configured=("B", "C")))
    alone.put(kit.table(name="q", policy="test", configured=("A", "B")))
    alone.tree.create("rebalanced/test", b'{"nodes":["A","B"]}')
    looked = plans.Plan("looked", 0, (plans.PlannedMove("q", ("A", "B"), Target(("B", "A"), 1), 0, ""),))
    alone.tree.create("plan", looked.to_bytes())
    assert alone.look(1_000, "A", "B") == []
    assert alone.look(1_299, "A", "B") == []
    alone.put(kit.table(name="q", policy="test", configured=("A", "B"), target=looked.moves[0].target))
    assert alone.look(1_310, "A", "B") == [], "its first move is under way"
    alone.put(kit.table(name="q", policy="test", configured=("A", "B")))
    assert alone.look(1_320, "A", "B") == ["C is still to be replaced"]
    assert alone.wishes() == {"p": ("B", "A")}
    with pytest.raises(RefusedError, match="plan looked was replaced by another one"):
        plans._check_current(alone.tree, looked)


def test_another_plan_of_the_operators_is_given_as_long_again(alone: Alone) -> None:
    alone.members.me = SimpleNamespace(node="A")
    alone.put(kit.table(name="p", policy="test", configured=("B", "C")))
    alone.tree.create("rebalanced/test", b'{"nodes":["A","B"]}')
    move = (plans.PlannedMove("p", ("B", "C"), Target(("C", "B"), 1), 0, ""),)
    plans.store(alone.tree, plans.Plan("one", 0, move), [])
    assert alone.look(0, "A", "B") == []
    plans.store(alone.tree, plans.Plan("two", 0, move), [])
    assert alone.look(290, "A", "B") == []
    assert alone.look(400, "A", "B") == []
    assert alone.look(600, "A", "B") == ["C is still to be replaced"]


@pytest.mark.feature("P3", "P13")
def test_a_version_that_places_partitions_otherwise_moves_those_of_a_static_policy(alone: Alone) -> None:
    """Nobody moves them before, nor once more afterwards, whatever an operator does with them."""
    alone.members.me = SimpleNamespace(node="A")
    alone.by_hand(p=("A", "B"), q=("B", "C"))
    alone.put(kit.table(name="p", policy="test", configured=("C", "B")))
    alone.put(kit.table(name="q", policy="test", configured=("B", "C")))
    assert alone.look(0, "A", "B", "C") == []
    assert alone.look(1_000, "A", "B", "C") == []
    alone.activate(alone.config)
    assert alone.look(1_010, "A", "B", "C") == [], "it is placed as before"
    alone.activate(alone.by_hand(p=("A", "B"), q=("C", "A")))
    assert alone.look(1_020, "A", "B", "C") == ["version 2 of the configuration places it otherwise"]
    assert alone.wishes() == {"p": ("A", "B"), "q": ("C", "A")}
    alone.put(kit.table(name="q", policy="test", configured=("B", "A"), config_version=7))
    assert len(alone.look(1_030, "A", "B", "C")) == 1
    assert "q" not in alone.wishes()


@pytest.mark.feature("P3", "P13")
def test_members_that_come_or_go_move_nothing_of_a_static_policy(alone: Alone) -> None:
    """What an operator has placed elsewhere stays there, too, until the file is activated anew."""
    alone.members.me = SimpleNamespace(node="A")
    alone.by_hand(p=("A", "C"), q=("A", "C"))
    alone.put(kit.table(name="p", policy="test", configured=("A", "C")))
    alone.put(kit.table(name="q", policy="test", configured=("B", "A")))
    assert alone.look(0, "A", "B") == []
    assert alone.look(5_000, "A", "B") == []
    for now in (9_000, 9_500, 10_000):
        assert alone.look(now, "A", "B", "C") == []
    for now in (11_000, 12_000):
        assert alone.look(now, "A", "C") == []
    assert alone.wishes() == {}


def test_what_a_version_asks_for_is_done_as_soon_as_it_is_possible(alone: Alone) -> None:
    """C is down, and gets its copy when it is back; what an operator moves stays until that has ended."""
    alone.members.me = SimpleNamespace(node="A")
    alone.put(kit.table(name="p", policy="test", configured=("A", "B")))
    alone.put(kit.table(name="q", policy="test", configured=("B",), target=Target(("B", "A"), 1), config_version=1))
    alone.members.registered = {"C": None}
    alone.tree.create("rebalanced/test", b'{"nodes":["A","B","C"]}')
    assert alone.look(0, "A", "B") == [], "what an older halog wrote has no mark: it is as it is now"
    alone.activate(alone.copies(3))
    assert alone.look(10, "A", "B") == ["version 1 of the configuration places it otherwise"]
    assert alone.look(20, "A", "B")[1:] == []
    assert set(alone.look(30, "A", "B", "C")[1:]) == {"version 1 of the configuration goes on"}
    assert alone.wishes() == {"p": ("A", "B", "C"), "q": ("B", "A")}
    alone.put(kit.table(name="p", policy="test", configured=("A", "B", "C"), config_version=2))
    alone.put(kit.table(name="q", policy="test", configured=("B", "A"), config_version=2))
    alone.look(40, "A", "B", "C")
    assert alone.wishes() == {"q": ("B", "A", "C")}
    alone.put(kit.table(name="q", policy="test", configured=("B", "A", "C"), config_version=4))
    done = len(alone.look(50, "A", "B", "C"))
    alone.put(kit.table(name="p", policy="test", configured=("A",), sync=0, config_version=5))
    assert len(alone.look(60, "A", "B", "C")) == done, "an operator's moves are not undone"


@pytest.mark.feature("X10")
@pytest.mark.parametrize("rolled", [("p",), ("p", "q")])
def test_what_an_operator_has_rolled_back_does_not_go_forth_again_by_itself(
    alone: Alone, rolled: tuple[str, ...]
) -> None:
    """A version asks for three copies, and C is down: p has gone to B meanwhile, and is left to get the third. What
    was not rolled back, in whichever plan of several, goes on when C is there."""
    alone.members.me = SimpleNamespace(node="A")
    alone.members.registered = {"C": None}
    alone.tree.create("rebalanced/test", b'{"nodes":["A","B","C"]}')
    alone.put(kit.table(name="p", policy="test", configured=("A",), sync=0))
    alone.put(kit.table(name="q", policy="test", configured=("B",), sync=0))
    alone.look(0, "A", "B")
    alone.activate(alone.copies(3))
    assert alone.look(10, "A", "B") == ["version 1 of the configuration places it otherwise"]
    assert alone.wishes() == {"p": ("A", "B"), "q": ("B", "A")}
    for name, nodes in alone.wishes().items():
        there: dict[str, Any] = {"configured": nodes, "config_version": 1, "active": Member(nodes[0], 1)}
        alone.put(kit.table(name=name, policy="test", **there))
    alone.look(20, "A", "B")
    undone = plans.read(alone.tree)
    assert undone is not None
    for number, name in enumerate(rolled, 1):
        was = alone.tables[name][1].configured
        back = plans.PlannedMove(name, was, Target(was[:1], 0), 1, "", sync=1)
        plan = msgspec.structs.replace(plans.new((back,), {}, undoes=undone.id), made_ms=undone.made_ms + number)
        plans.store(alone.tree, plan, [t for _, t in alone.tables.values()])
        there = {"configured": was[:1], "config_version": 2, "active": Member(was[0], 1)}
        alone.put(kit.table(name=name, policy="test", sync=0, **there))
    for now in (30, 40, 50):
        alone.look(now, "A", "B", *("C" if now > 30 else ""))
    assert alone.wishes() == ({"q": ("B", "A", "C")} if rolled == ("p",) else {})


def test_a_node_that_has_not_heard_of_the_version_does_not_plan_for_the_one_before(alone: Alone) -> None:
    """It is the first one now, cut off from what was activated."""
    alone.members.me = SimpleNamespace(node="A")
    alone.put(kit.table(name="p", policy="test", configured=("A", "B")))
    before = alone.config
    alone.look(0, "A", "B", "C")
    alone.activate(alone.copies(3))
    assert len(alone.look(10, "A", "B", "C")) == 1
    alone.put(kit.table(name="p", policy="test", configured=("A", "B", "C"), sync=2, config_version=3))
    later, alone.config, alone.versions.active = alone.config, before, 0
    assert len(alone.look(20, "A", "B", "C")) == 1
    alone.config, alone.versions.active = later, 1
    assert len(alone.look(30, "A", "B", "C")) == 1
    assert alone.wishes() == {}


def test_an_operators_plan_is_done_before_a_version_is_planned_for(alone: Alone) -> None:
    alone.members.me = SimpleNamespace(node="A")
    alone.put(kit.table(name="p", policy="test", configured=("A", "B")))
    alone.look(0, "A", "B", "C")
    mine = plans.Plan("mine", 0, (plans.PlannedMove("p", ("A", "B"), Target(("B", "A"), 1), 0, ""),))
    alone.tree.create("plan", mine.to_bytes())
    alone.activate(alone.copies(3))
    assert alone.look(10, "A", "B", "C") == []
    plans.cancel(alone.tree)
    assert alone.look(20, "A", "B", "C") == ["version 1 of the configuration places it otherwise"]
    assert alone.wishes() == {"p": ("A", "B", "C")}


@pytest.mark.parametrize("kind", ["zone", "domains", "backup"])
def test_what_else_of_a_version_says_where_copies_are(alone: Alone, kind: str) -> None:
    config = alone.config
    policy, nodes, zone = config.policies["test"], config.nodes, config.zones["test"]
    other: dict[str, dict[str, Any]] = {
        "zone": {"zones": {"test": dataclasses.replace(zone, nodes=("A", "B"))}},
        "domains": {"nodes": {n: dataclasses.replace(c, failure_domain="r1") for n, c in nodes.items()}},
        "backup": {"policies": {"test": dataclasses.replace(policy, backup=("C",))}},
    }
    votes = {n: dataclasses.replace(c, votes=2) for n, c in nodes.items()}
    mark = rebalancing.placement(config, "test")
    assert rebalancing.placement(dataclasses.replace(config, **other[kind]), "test") != mark
    assert rebalancing.placement(dataclasses.replace(config, nodes=votes), "test") == mark
