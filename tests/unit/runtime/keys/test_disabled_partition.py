"""A partition disabled on its only node stays readable; creates work again, elsewhere, once its mapper is removed."""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Iterator
from dataclasses import replace

import pytest

from halog.config import PolicyConfig
from halog.config.static import StaticPartition
from halog.errors import DuplicateKeyError, RefusedError
from halog.testing.cluster import Cluster, wait_until
from halog.transactions.node import Node
from tests.unit.runtime.keys import at_create, by_letter
from tests.unit.runtime.keys.remapped import (
    POLICY,
    TYPES,
    Counter,
    begin,
    check,
    cluster_of,
    configured,
    mapping,
    wait_done,
    where,
)

pytestmark = [pytest.mark.feature("P7", "P13"), pytest.mark.timeout(60)]

THERE = {f"s{i}": i for i in range(20)}
"""What the partition has when it is disabled."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Partition `shut` is on A alone, and is disabled there; `open` is on B and A. The application maps by the key."""
    made = Cluster(2, partitions=1, registry=TYPES, modules=(by_letter.MODULE,))
    lists = {"shut": StaticPartition(("A",)), "open": StaticPartition(("B", "A"))}
    static = PolicyConfig(POLICY, kind="static", mapper=f"{by_letter.MODULE}:by_letter", static=lists)
    made.config = replace(made.config, policies={POLICY: static}).validate()
    with made:
        made.settle()
        made.client().load([Counter(name, value) for name, value in {**THERE, "other": 0}.items()])
        disable(made, "shut")
        yield made


def disable(cluster: Cluster, partition: str) -> None:
    cluster.node("A").partitions[partition].disable(wait_s=10)
    wait_until(lambda: cluster.node("B").partitions[partition].state == "Unavailable", "B is not told")


def create(node: Node, name: str) -> None:
    with node.transaction():
        node.create(Counter(name))


def is_readable(node: Node) -> None:
    """By key, whether a key is free, and as an extent."""
    with node.transaction():
        assert {name: node.get(Counter, name).value for name in THERE} == THERE
        assert node.find(Counter, "s-none") is None
        assert THERE.items() <= {c.name: c.value for c in node.extent(Counter)}.items()
    with pytest.raises(DuplicateKeyError):
        create(node, "s3")


def takes_nothing(node: Node) -> None:
    """Of what it has nothing is changed or deleted."""
    with pytest.raises(RefusedError, match="shut is disabled on A, the only node it has"), node.transaction():
        node.get(Counter, "s3").up()
    with pytest.raises(RefusedError, match="takes nothing new"), node.transaction():
        node.delete(node.get(Counter, "s4"))


def test_its_mapper_removed_creates_go_elsewhere_and_what_it_has_is_read(cluster: Cluster) -> None:
    """On its node, on another one, and after that node's restart. Once it is enabled what it has goes there, too."""
    nodes = {name: cluster.node(name) for name in "BA"}
    for node in nodes.values():
        with pytest.raises(RefusedError, match="takes nothing new"):
            create(node, "s-new")
        takes_nothing(node)
    begin(cluster, mapper=f"{by_letter.MODULE}:without")
    for name, node in nodes.items():
        wait_until(lambda here=node: here.space.route(Counter, ("s-new",)).partition == "open", f"{name} does not know")  # type: ignore[misc]
        create(node, f"s-by-{name}")
        is_readable(node)
        takes_nothing(node)
        with node.transaction():
            node.get(Counter, "other").up()
    assert mapping(cluster).changing is not None, "what it has cannot leave it"
    cluster.kill("A")
    cluster.restart("A")
    node = cluster.node("B")
    wait_until(lambda: cluster.node("A").runtime.copies["shut"].serving, "A does not serve it")
    create(node, "s-later")
    is_readable(node)
    takes_nothing(node)
    assert {where(cluster)[key][0][0] for key in keys("s-by-A", "s-by-B", "s-later")} == {"open"}
    cluster.node("A").partitions["shut"].enable()
    wait_done(cluster, 1)
    check(cluster, cluster.config)
    is_readable(node)


def keys(*names: str) -> list[str]:
    info = TYPES.info(Counter)
    return [info.index_key((name,)).hex() for name in names]


def test_of_a_key_directory_only_the_entries_of_the_keys_hinder_a_create() -> None:
    """The mapper is asked at create and never says the partition; but it may be the one that the ring has for the
    entry of a key."""
    last = f"at_create:{at_create.MODULE}:last"
    with configured(cluster_of(2, modules=(at_create.MODULE,)), mapper=last) as cluster:
        cluster.settle()
        cluster.node("A").runtime.operators.migrate("test-0", ("A",), wait_s=10)
        client, names = cluster.client(), [f"c{i}" for i in range(24)]
        disable(cluster, "test-0")
        ended: Count[str] = Count()
        for name in names:
            entry = client.space.route(Counter, (name,)).partition
            try:
                create(client, name)
            except RefusedError:
                ended[f"refused, {entry == 'test-0'}"] += 1
            else:
                ended[f"created, {entry == 'test-0'}"] += 1
        assert set(ended) == {"refused, True", "created, False"}, ended
        with client.transaction():
            assert len(list(client.extent(Counter))) == ended["created, False"]
