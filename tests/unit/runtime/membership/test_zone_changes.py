"""A running node is given other zones: they count from then on, and what it was goes on (P11, Q1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from halog.adapters.memory import MemoryCoordinator, MemoryTree
from halog.core.table.zones import NodeContacts, Zone
from halog.errors import UnreachableError
from halog.metadata.zone_switches import ZoneSwitch, set_switch
from halog.ports import Versioned
from halog.runtime.membership.node_quorum import NodeQuorum

pytestmark = pytest.mark.feature("P11", "Q1")

VOTES = {"A": 1, "B": 1, "C": 1}
FREE = Zone("home", VOTES)
TWO = Zone("home", VOTES, minimum_votes=2)
ALONE = NodeContacts(frozenset("BC"), frozenset(), frozenset())
PAIR = NodeContacts(frozenset("BC"), frozenset("B"), frozenset("B"))


class Told:
    """Stands for the history."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def tell(self, kind: Any, cause: str, **more: Any) -> None:
        self.names.append(kind.name)


class Node:
    """Zoning as a node has it: it is judged anew whenever something changed."""

    def __init__(
        self,
        tree: MemoryTree,
        zones: list[Zone],
        sight: NodeContacts,
        coordinator: Callable[[MemoryTree], MemoryCoordinator] = MemoryCoordinator,
    ) -> None:
        self.coordinator = coordinator(tree)
        self.coordinator.connect(lambda state: None)
        self.told = Told()
        self.sight = sight
        self.why = ""
        self.zoning = NodeQuorum("A", zones, self.told)  # type: ignore[arg-type]
        self.zoning.watch(self.coordinator, self.look)
        self.look()

    def look(self) -> None:
        self.why = self.zoning.judge(self.sight)

    @property
    def state(self) -> dict[str, object]:
        return {str(z["zone"]): z["state"] for z in self.zoning.view()}


@pytest.fixture
def tree() -> MemoryTree:
    return MemoryTree()


@pytest.fixture
def node(tree: MemoryTree) -> Iterator[Node]:
    made = Node(tree, [FREE], PAIR)
    yield made
    made.zoning.close()
    made.coordinator.close()


class Prompt(MemoryCoordinator):
    """Tells of a watched znode before the next one is watched."""

    def watch(self, path: str, changed: Callable[[str, Versioned | None], None]) -> None:
        changed(path, self.get(path))


def test_nothing_is_judged_until_all_switches_are_known(tree: MemoryTree) -> None:
    """The watch of the first zone's switch tells of it while the second zone's is not known yet."""
    made = Node(tree, [TWO, Zone("other", VOTES, minimum_votes=2)], PAIR, Prompt)
    try:
        assert (made.why, made.state) == ("", {"home": "partial", "other": "partial"})
        assert made.told.names == ["zone quorum restored"] * 2, "each zone is told of once"
    finally:
        made.zoning.close()
        made.coordinator.close()


def test_a_quorum_that_holds_disturbs_nobody(node: Node) -> None:
    node.zoning.configure([TWO])
    assert (node.why, node.state, node.told.names) == ("", {"home": "partial"}, [])


def test_a_quorum_that_does_not_hold_takes_the_node_offline_and_back(node: Node) -> None:
    node.sight = ALONE
    node.zoning.configure([TWO])
    assert node.why == "zone home has no quorum here: 1 votes, 2 needed"
    node.zoning.configure([Zone("home", {**VOTES, "A": 2}, minimum_votes=2)])
    assert (node.why, node.state) == ("", {"home": "partial"})
    assert node.told.names == ["zone quorum lost", "zone quorum restored"]
    node.zoning.configure([TWO])
    node.zoning.configure([FREE])
    assert node.why == "", "no quorum, nothing to lose"


def test_a_zone_that_is_no_more_holds_nobody_back(node: Node) -> None:
    node.sight = ALONE
    node.zoning.configure([TWO])
    node.zoning.configure([Zone("other", VOTES)])
    assert (node.why, node.state) == ("", {"other": "partial"})
    node.zoning.configure([])
    assert (node.why, node.state) == ("", {})


@pytest.mark.parametrize("zones", [[FREE], []], ids=["had no quorum", "was in no zone"])
def test_a_quorum_that_is_switched_off_stays_so(tree: MemoryTree, zones: list[Zone]) -> None:
    """The switch was set before this node had anything to do with it."""
    made = Node(tree, zones, ALONE)
    try:
        set_switch(made.coordinator, "home", ZoneSwitch(off=True, reason="burnt down"))
        made.zoning.configure([TWO])
        assert made.why == ""
        made.zoning.configure([])
        set_switch(made.coordinator, "home", ZoneSwitch(off=False))
        made.zoning.configure([TWO])
        assert made.why, "as it stands when the node is in the zone again"
    finally:
        made.zoning.close()
        made.coordinator.close()


def test_a_switch_that_cannot_be_read_is_on(node: Node) -> None:
    node.coordinator.faults.fail("get", UnreachableError("away"))
    node.sight = ALONE
    node.zoning.configure([TWO])
    assert node.why
