"""Applications' classes that misbehave: an `__eq__` of their own, and code of theirs that raises while a value is
encoded in the middle of a commit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

import halog.aio
from halog.errors import ConflictError, FieldTypeError, HalogError, NoTransactionError
from halog.schema import Registry, managed
from halog.testing.cluster import Cluster
from halog.transactions.node import Node as Verbs

pytestmark = pytest.mark.feature("D1", "D4")

REGISTRY = Registry()


class Broken(Exception):
    """Of the application."""


class Shy:
    """What shows an attribute as long as nobody is to know of it."""

    broken = ""
    refusals: ClassVar[list[HalogError]] = []
    """Raised first."""


@dataclass(repr=False)
class Box(Shy):
    inside: int = 0


@managed(key="name", registry=REGISTRY)
class Crate(Shy):
    name: str
    box: Box
    more: list[Box]
    weight: int = 0

    def fill(self, n: int) -> Box:
        self.box.inside += n
        return self.box


@managed(key="name", registry=REGISTRY)
class Angry:
    name: str
    value: int = 0

    def __eq__(self, other: object) -> bool:
        raise Broken("nobody compares me")

    __hash__ = object.__hash__

    def add(self, n: int) -> int:
        self.value += n
        return self.value


@managed(key="name", registry=REGISTRY)
class Vague:
    name: str
    value: int = 0

    def __eq__(self, other: object) -> Any:
        return Undecided()

    __hash__ = object.__hash__

    def add(self, n: int) -> int:
        self.value += n
        return self.value


def shown(self: Shy, name: str) -> Any:
    """Show an attribute, or raise."""
    if name == type(self).broken:
        if type(self).refusals:
            raise type(self).refusals.pop()
        raise Broken(f"{name} is not to be read")
    return object.__getattribute__(self, name)


class Undecided:
    """No bool, and it will not be one."""

    def __bool__(self) -> bool:
        raise Broken("neither true nor false")


@pytest.fixture(autouse=True)
def whole() -> Iterator[None]:
    yield
    Crate.broken = Box.broken = ""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(2, partitions=1, registry=REGISTRY) as cluster:
        cluster.settle()
        crate(cluster.client())
        with cluster.client().transaction() as tx:
            tx.get(Crate, "c").fill(0)
        Shy.__getattribute__ = shown  # type: ignore[method-assign, assignment]  # what has it at first is refused
        yield cluster


@pytest.fixture(params=["active", "replica", "client"])
def node(cluster: Cluster, request: pytest.FixtureRequest) -> Verbs:
    active = cluster.active_for(Crate, "c")
    if request.param == "client":
        return cluster.client()
    return cluster.node(next(n for n in cluster.names if (n == active) == (request.param == "active")))


@pytest.mark.parametrize("cls", [Angry, Vague])
def test_objects_are_never_compared_by_their_own_eq(node: Verbs, cls: type[Any]) -> None:
    """What has changed is told by bytes: create, change, call, read again, delete."""
    with node.transaction() as tx:
        tx.create(cls("a"))
        tx.create(cls("b", 7))
    with node.transaction() as tx:
        tx.get(cls, "a").value = 1
        assert tx.get(cls, "b").value == 7
    with node.transaction() as tx:
        assert tx.get(cls, "a").add(2) == 3
    with node.transaction() as tx:
        assert {o.name: o.value for o in tx.extent(cls)} == {"a": 3, "b": 7}
        for name in ("a", "b"):
            tx.delete(tx.get(cls, name))
    with node.transaction() as tx:
        assert tx.find(cls, "a") is None


def crate(node: Verbs) -> None:
    with node.transaction() as tx:
        if tx.find(Crate, "c") is None:
            tx.create(Crate("c", Box(), [], 0))
    with node.transaction() as tx:
        one = tx.get(Crate, "c")
        one.box.inside, one.more, one.weight = 1, [Box(), Box()], 1


def as_it_was(node: Verbs) -> None:
    """Nothing has changed, and the node goes on."""
    Crate.broken = Box.broken = ""
    with node.transaction() as tx:
        one = tx.get(Crate, "c")
        assert (one.box.inside, len(one.more), one.weight) == (1, 2, 1)
        one.weight = 2
    with node.transaction() as tx:
        assert tx.get(Crate, "c").weight == 2


@pytest.mark.parametrize(
    ("broken", "field"),
    [((Box, "inside"), r"Crate\.box"), ((Crate, "weight"), r"Crate\.weight"), ((Crate, "more"), r"Crate\.more")],
    ids=["part", "field", "list"],
)
def test_what_raises_while_it_is_encoded_changes_nothing_and_names_the_field(
    node: Verbs, broken: tuple[type[Shy], str], field: str
) -> None:
    crate(node)
    tx = node.transaction()
    with pytest.raises(FieldTypeError, match=field + ": expected .* raises no Broken") as caught, tx:
        one = tx.get(Crate, "c")
        one.weight += 5
        one.box.inside += 5
        broken[0].broken = broken[1]
    assert caught.value.evidence["type"] == "Crate"
    assert isinstance(caught.value.__cause__, Broken)
    assert tx.outcome == "rolled back"
    as_it_was(node)


@pytest.mark.parametrize(("cls", "name"), [(Box, "inside"), (Crate, "weight")], ids=["part", "field"])
def test_what_halog_refuses_to_such_code_stays_what_it_is(node: Verbs, cls: type[Shy], name: str) -> None:
    """A transaction is tried again for a conflict, whoever met it."""
    crate(node)
    tries = 0

    @node.transactional(retries=1)
    def change() -> None:
        nonlocal tries
        tries += 1
        cls.broken = ""
        one = node.get(Crate, "c")
        one.weight, one.box.inside = 8, 8
        if tries == 1:
            cls.broken, Shy.refusals = name, [ConflictError("met by code of the application")]

    change()
    assert tries == 2
    with node.transaction() as tx:
        assert tx.get(Crate, "c").weight == 8


def test_what_is_interrupted_while_it_is_encoded_is_rolled_back(node: Verbs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has been presented to anybody; the transaction is over."""
    crate(node)
    monkeypatch.setattr(f"{__name__}.Broken", KeyboardInterrupt)
    tx = node.transaction()
    with pytest.raises(KeyboardInterrupt), tx:
        one = tx.get(Crate, "c")
        one.weight += 5
        Box.broken = "inside"
    assert tx.outcome == "rolled back"
    with pytest.raises(NoTransactionError):
        one.weight = 6
    as_it_was(node)


def test_a_create_that_raises_while_it_is_encoded_makes_nothing(node: Verbs) -> None:
    crate(node)
    with pytest.raises(FieldTypeError, match=r"Crate\.box"), node.transaction() as tx:
        tx.create(Crate("new", Box(), []))
        tx.get(Crate, "c").weight = 9
        Box.broken = "inside"
    as_it_was(node)
    with node.transaction() as tx:
        assert tx.find(Crate, "new") is None


def test_a_call_whose_object_raises_while_it_is_encoded(node: Verbs) -> None:
    """Wherever the method runs."""
    crate(node)
    with pytest.raises(FieldTypeError, match=r"Crate"), node.transaction() as tx:
        one = tx.get(Crate, "c")
        Crate.broken = "weight"
        one.fill(4)
    as_it_was(node)


def test_on_a_loop_it_is_the_same(node: Verbs) -> None:
    crate(node)

    async def main() -> None:
        on_loop = halog.aio.Node(node)
        try:
            with pytest.raises(FieldTypeError, match=r"Crate\.box"):
                async with on_loop.transaction() as tx:
                    (await tx.get(Crate, "c")).box.inside += 5
                    Box.broken = "inside"
        finally:
            on_loop.pool.shutdown()

    asyncio.run(main())
    as_it_was(node)


def test_a_load_names_it_too(node: Verbs) -> None:
    Box.broken = "inside"
    with pytest.raises(FieldTypeError, match=r"Crate\.box"):
        node.load([Crate("loaded", Box(), [])])
    Box.broken = ""
    with node.transaction() as tx:
        assert tx.find(Crate, "loaded") is None
