"""Partitions placed by hand and a mapper of the application's, with real processes."""

from __future__ import annotations

import sys

import pytest

from halog.errors import MapperError
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.processes import wait

pytestmark = pytest.mark.timeout(600)

MODULE = "placed_by_region"
APP = """
import mappers
from halog.schema import managed

@managed(key="id")
class RegionalOrder:
    id: str
    amount: int = 0

@mappers.versioned({version})
def by_region(type_name, key):
    return key[0].partition("-")[0]
"""
POLICY = f"""
[policies.fixed]
kind = "static"
zone = "home"
mapper = "{MODULE}:by_region"
[policies.fixed.partitions]
eu = ["A", "B"]
us = ["B", "C"]
[bindings]
RegionalOrder = "fixed"
"""
PLACES = {"eu": ("A", "B"), "us": ("B", "C")}


def write_app(cluster: Cluster, version: int) -> None:
    told_apart = "#" * version  # by its size: Python looks at that and the second it was changed in
    (cluster.directory / f"{MODULE}.py").write_text(APP.format(version=version) + told_apart)


@pytest.fixture
def placed(make: Make, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Nodes A, B, C with two partitions placed by hand, not started yet; this process has the application, too."""
    cluster = make(partitions=2, module=MODULE)
    cluster.toml.write_text(cluster.toml.read_text().replace("[bindings]", POLICY))
    write_app(cluster, 1)
    monkeypatch.syspath_prepend(str(cluster.directory))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    return cluster


def where(cluster: Cluster) -> dict[str, tuple[str, ...]]:
    return {p: cluster.table(p).configured for p in PLACES}


def active(cluster: Cluster, partition: str) -> str:
    member = cluster.table(partition).active
    return "" if member is None else member.node


def whole(cluster: Cluster) -> None:
    wait(lambda: all(cluster.complete(cluster.table(p)) for p in PLACES), "both node lists are complete")


@pytest.mark.feature("P3", "P6", "P10")
def test_objects_are_where_mapper_and_file_say_and_stay_there(placed: Cluster) -> None:
    """Each object is in the partition its mapper names, on the nodes the file names; the next of the list takes over
    from a killed one; leaves and joins move nothing. A node with another version of the mapper is refused by name."""
    cluster = placed
    cluster.start()
    whole(cluster)
    node = cluster.client()
    order = sys.modules[MODULE].RegionalOrder
    with node.transaction():
        for i in range(20):
            node.create(order(id=f"eu-{i}", amount=i))
            node.create(order(id=f"us-{i}", amount=i))
    with (
        pytest.raises(MapperError, match=r"by_region .* said 'asia', which is no partition: eu, us"),
        node.transaction(),
    ):
        node.create(order(id="eu-20"))
        node.create(order(id="asia-1"))
    assert where(cluster) == PLACES
    # Who is up first may be active first; half a minute later the role is where the file has it.
    wait(lambda: (active(cluster, "eu"), active(cluster, "us")) == ("A", "B"), "the first ones are active", 90)
    for partition, hosts in PLACES.items():
        for host in hosts:
            wait(lambda p=partition, h=host: len(stored(cluster, h, p)) == 20, f"{host} has all of {partition}")  # type: ignore[misc]
            assert all(tail.startswith(partition) for tail in stored(cluster, host, partition))

    cluster.kill("A")
    wait(lambda: active(cluster, "eu") == "B", "the next of the node list is active", 60)
    with node.transaction():
        node.get(order, "eu-7").amount = 700
    assert where(cluster) == PLACES, "a leave moves nothing"
    cluster.start(["A"])
    whole(cluster)
    assert where(cluster) == PLACES, "nor does a join"

    assert cluster.processes["C"].terminate() == 0
    write_app(cluster, 2)
    refused = cluster.launch("C")
    assert refused.exit_code(60) == 2
    assert "mapper_version is 2 here, 1 there" in refused.last_words(3_000)
    write_app(cluster, 1)
    cluster.start(["C"])
    whole(cluster)
    with node.transaction():
        assert node.get(order, "eu-7").amount == 700
        assert sum(o.amount for o in node.extent(order)) == 2 * sum(range(20)) + 693
    assert where(cluster) == PLACES


def stored(cluster: Cluster, node: str, partition: str) -> list[str]:
    """The ids of a node's own copy."""
    space = cluster.client().space
    return [str(space.decoded(found, partition).values["id"]) for found in cluster.stored(node, partition)]
