"""Two sites in one process, and what tests ask of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from halog.core.chain import ChainState
from halog.runtime.sites import Standing, standing
from halog.testing.cluster import Cluster, wait_until
from tests.unit.sites.model import Flight, registry


@pytest.fixture
def west() -> Iterator[Cluster]:
    with Cluster(2, partitions=3, registry=registry, site="west", others=("east",)) as cluster:
        yield cluster


@pytest.fixture
def east(west: Cluster) -> Iterator[Cluster]:
    with Cluster(2, partitions=3, registry=registry, site="east", home=west) as cluster:
        yield cluster


def fly(cluster: Cluster, *numbers: int) -> None:
    node = cluster.node(cluster.names[0])
    for number in numbers:
        with node.transaction() as tx:
            tx.create(Flight(number))


def flights(cluster: Cluster) -> set[int]:
    node = cluster.node(cluster.names[0])
    with node.transaction(read="local") as tx:
        return {f.number for f in tx.extent(Flight)}


def states(cluster: Cluster) -> dict[str, ChainState]:
    """Of the copies of a cluster's first node, by partition."""
    return {n: c.core.chain.state for n, c in cluster.node(cluster.names[0]).runtime.copies.items()}


def heads(cluster: Cluster) -> dict[str, tuple[int, bytes, object]]:
    return {name: (s.lsn, s.hash, s.lineage) for name, s in states(cluster).items()}


def level(one: Cluster, other: Cluster) -> None:
    wait_until(lambda: heads(one) == heads(other), f"{heads(one)} is not {heads(other)}")


def stands(cluster: Cluster, partition: str = "test-0") -> Standing | None:
    return standing(cluster.node(cluster.names[0]).runtime.adapters.coordinator, partition)
