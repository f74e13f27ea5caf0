"""Several policies whose objects go round, and types of one key space in them: each has a key directory of its own."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from pathlib import Path

import pytest

import halog
from halog.core.keys.directory import is_entry, object_key, unpacked
from halog.errors import ConflictError, CrossPartitionError, RefusedError, UnknownTypeError
from halog.runtime.node.open import RunningNode
from halog.schema import Registry
from tests.unit.cli.conftest import TOML, Cluster, running

pytestmark = pytest.mark.feature("P6")

TYPES = Registry()

POLICIES = """
[policies.sea]
zone = "home"
partitions = 3
mapper = "round_robin"
[policies.land]
zone = "home"
partitions = 3
mapper = "round_robin"
[bindings]
Boat = "sea"
Ship = "land"
Job = "land"
Buoy = "sea"
Oak = "sea"
"""


@halog.managed(key="name", registry=TYPES)
class Boat:
    name: str
    miles: int = 0

    def hire(self, number: int) -> None:
        halog.current().create(Job(number))

    def mark(self, number: int) -> None:
        halog.current().create(Buoy(number))


@halog.managed(registry=TYPES)
class Ship(Boat):
    crew: int = 0


@halog.managed(key="number", registry=TYPES)
class Job:
    number: int


@halog.managed(key="number", registry=TYPES)
class Buoy:
    number: int


@halog.managed(key=("wood", "number"), partition_by="wood", registry=TYPES)
class Tree:
    wood: str
    number: int

    def sees(self, number: int) -> bool:
        return halog.current().find(Tree, self.wood, number) is not None


@halog.managed(registry=TYPES)
class Oak(Tree):
    acorns: int = 0


class Ports(Cluster):
    """Nodes with these types."""

    def start(self, name: str, registry: Registry | None = None) -> RunningNode:
        return super().start(name, registry or TYPES)


@pytest.fixture
def ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ports]:
    made = Ports(tmp_path, TOML.replace("[bindings]\n", POLICIES))
    with running(made, monkeypatch):
        yield made


@pytest.fixture
def node(ports: Ports) -> RunningNode:
    return ports.nodes["A"]


def check(node: RunningNode) -> int:
    """Every object has one entry, in a partition of its own policy, and is in that policy; how many there are."""
    homes: set[tuple[str, bytes, str]] = set()
    listed: set[tuple[str, bytes, str]] = set()
    for policy in ("sea", "land"):
        for at in (f"{policy}-{i}" for i in range(3)):
            for found in node.runtime.scan(at, b""):
                known, says = (listed, unpacked(found.value).partition) if is_entry(found.key) else (homes, at)
                assert (policy, object_key(found.key)) not in {(p, k) for p, k, _ in known}
                known.add((policy, object_key(found.key), says))
                assert says.startswith(policy)
    assert homes == listed
    return len(homes)


def elsewhere(node: RunningNode, obj: object) -> None:
    def create() -> None:
        with node.transaction() as tx:
            tx.create(obj)

    contextvars.Context().run(create)


def test_a_method_creates_nothing_of_another_policy(node: RunningNode) -> None:
    with node.transaction() as tx:
        tx.create(Boat("b"))
    for i in range(3):
        with node.transaction() as tx, pytest.raises(CrossPartitionError):
            tx.get(Boat, "b").hire(i)
    assert check(node) == 1
    with node.transaction() as tx:
        tx.create(Job(1))
    with node.transaction() as tx:
        assert tx.get(Job, 1).number == 1


def test_a_process_that_does_not_know_what_a_method_has_created_is_refused(ports: Ports) -> None:
    """It cannot say where the entry belongs, so nothing is created that nobody would find."""
    little = Registry()

    @halog.managed(key="name", registry=little)
    class Boat:
        name: str
        miles: int = 0

        def mark(self, number: int) -> None:
            raise AssertionError("it runs where the boat is")

    node, client = ports.nodes["A"], ports.start("client-1", little)
    with node.transaction() as tx:
        tx.create(TYPES.by_name["Boat"].cls(name="b"))
    before = check(node)
    for number in range(3):
        with pytest.raises(UnknownTypeError, match="not declared here"), client.transaction() as tx:
            tx.get(Boat, "b").mark(number)
    assert check(node) == before == 1
    for number in range(3):
        with node.transaction() as tx:
            tx.get(TYPES.by_name["Boat"].cls, "b").mark(number)
        with node.transaction() as tx:
            assert tx.get(Buoy, number).number == number
    assert check(node) == 4


def test_the_same_key_is_one_object_for_each_policy(node: RunningNode) -> None:
    with node.transaction() as tx:
        tx.create(Boat("b", 1))
    with node.transaction() as tx:
        tx.create(Ship("b", 2))
    assert check(node) == 2
    for _ in range(2):  # known to the process by then
        with node.transaction() as tx:
            assert tx.get(Boat, "b").miles == 1
        with node.transaction() as tx:
            assert tx.get(Ship, "b").miles == 2
        with node.transaction() as tx:
            assert tx.get(Boat, "b").miles == 1
            with pytest.raises(RefusedError, match="binding of its own"):
                tx.find(Ship, "b")


def test_deleting_and_creating_by_two_policies_is_refused(node: RunningNode) -> None:
    with node.transaction() as tx:
        tx.create(Boat("b", 1))
    with node.transaction() as tx:
        tx.delete(tx.get(Boat, "b"))
        with pytest.raises(RefusedError, match="binding of its own"):
            tx.create(Ship("b", 2))
    assert check(node) == 0
    with node.transaction() as tx:
        tx.create(Ship("b", 2))
    with node.transaction() as tx:
        assert tx.get(Ship, "b").miles == 2
    assert check(node) == 1


def test_what_is_absent_in_one_policy_is_found_in_the_other(node: RunningNode) -> None:
    with node.transaction() as tx:
        tx.create(Boat("b", 1))
        tx.create(Tree("oak", 1))
    with node.transaction() as tx:
        assert tx.find(Ship, "b") is None
        assert [b.miles for b in tx.extent(Boat)] == [1]
        assert tx.get(Boat, "b").miles == 1
    with node.transaction() as tx:
        assert tx.find(Oak, "oak", 1) is None
        assert [t.number for t in tx.extent(Tree)] == [1]


def test_that_the_own_policy_has_none_is_checked_though_that_of_a_child_has_none_either(node: RunningNode) -> None:
    with node.transaction() as tx:
        tx.create(Job(1))
    with pytest.raises(ConflictError, match="Boat 'b'"), node.transaction() as tx:
        assert tx.find(Boat, "b") is None
        elsewhere(node, Boat("b"))
        tx.create(Job(2))


def test_a_method_of_a_hashed_base_is_told_that_there_is_none(node: RunningNode) -> None:
    """Its partition is the one to ask, as where no child goes round."""
    with node.transaction() as tx:
        tx.create(Tree("oak", 1))
        tx.create(Tree("oak", 2))
    with node.transaction() as tx:
        tree = tx.get(Tree, "oak", 1)
        assert tree.sees(2)
        assert not tree.sees(3)


def test_a_hashed_base_that_was_absent_stays_so_though_a_child_goes_round(node: RunningNode) -> None:
    with pytest.raises(ConflictError, match="Tree 'oak', 1"), node.transaction() as tx:
        assert tx.find(Tree, "oak", 1) is None
        elsewhere(node, Tree("oak", 1))
        assert tx.find(Tree, "oak", 1) is None
        tx.create(Job(1))
