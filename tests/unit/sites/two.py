"""Two sites in one process, and what tests ask of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from halog.core.log.chain import ChainState
from halog.errors import ConflictError, HalogError
from halog.metadata.mirrors import MirrorStatus, standing
from halog.runtime.node.paces import Paces
from halog.runtime.replica.hash_server import told
from halog.testing.cluster import WAIT_S, Cluster, wait_until
from tests.unit.sites.model import Flight, registry


@pytest.fixture
def west(paces: Paces) -> Iterator[Cluster]:
    with Cluster(2, partitions=3, registry=registry, site="west", others=("east",), paces=paces) as cluster:
        yield cluster


@pytest.fixture
def east(west: Cluster, paces: Paces) -> Iterator[Cluster]:
    with Cluster(2, partitions=3, registry=registry, site="east", home=west, paces=paces) as cluster:
        yield cluster


@contextmanager
def both_started(one: Cluster, other: Cluster) -> Iterator[None]:
    """At the same time: each needs the other one's partitions."""
    starting = threading.Thread(target=one.start)
    starting.start()
    try:
        with other:
            starting.join()
            yield
    finally:
        starting.join()
        one.close()


def fly(cluster: Cluster, *numbers: int) -> None:
    """Create these flights, and wait until the first node's copies have them, too: `flights` looks there."""
    node = cluster.node(cluster.names[0])
    tokens = []
    for number in numbers:
        with node.transaction() as tx:
            tx.create(Flight(number))
        tokens.append(tx.token)

    def seen() -> bool:
        try:
            with node.transaction(read="local", after=tokens) as tx:
                return all(tx.get(Flight, number) for number in numbers)
        except ConflictError:  # of several partitions one had decided, and this one began too early
            return False

    wait_until(seen, f"{cluster.names[0]} has flights {numbers}")


def flights(cluster: Cluster) -> set[int]:
    node = cluster.node(cluster.names[0])
    with node.transaction(read="local") as tx:
        return {f.number for f in tx.extent(Flight)}


def states(cluster: Cluster) -> dict[str, ChainState]:
    """Of the copies of a cluster's first node, by partition."""
    return {n: c.core.state.chain.state for n, c in cluster.node(cluster.names[0]).runtime.copies.items()}


def heads(cluster: Cluster) -> dict[str, tuple[int, bytes, object]]:
    return {name: (s.lsn, s.hash, s.lineage) for name, s in states(cluster).items()}


def level(*clusters: Cluster) -> None:
    """Every copy of a partition at every site is the same history, and nothing in it is in doubt. A first node alone
    may lag behind who serves, and then looks like one of another site that lags too; and of a transaction over several
    partitions all may have the vote, and none the decision."""

    def apart() -> dict[str, set[tuple[object, ...]]]:
        found: dict[str, set[tuple[object, ...]]] = {}
        for cluster in clusters:
            for name in cluster.running:
                for partition, copy in list(cluster.node(name).runtime.copies.items()):
                    state, doubts = copy.core.state.chain.state, len(copy.core.state.ledger.undecided)
                    found.setdefault(partition, set()).add((state.lsn, state.hash, state.lineage, doubts))
        return {partition: heads for partition, heads in found.items() if len(heads) > 1 or any(h[-1] for h in heads)}

    try:
        wait_until(lambda: not apart(), "level")
    except AssertionError:
        raise AssertionError(f"not one history within {WAIT_S:g} s: {apart()}") from None
    same_objects(*clusters)


def same_objects(*clusters: Cluster) -> None:
    """All copies at a lsn, at whichever site, have the same hash of their objects, and it is that of what they have
    stored (U1). Those that cannot say are left out."""
    found: dict[tuple[str, int], dict[str, bytes]] = {}
    for cluster in clusters:
        for name in cluster.running:
            for partition, copy in list(cluster.node(name).runtime.copies.items()):
                with suppress(HalogError):
                    said = told(copy, threading.Lock(), scan=True)
                    assert said.hash == said.scanned, f"{partition} on {name} is not stored as the log has it"
                    found.setdefault((partition, said.lsn), {})[name] = said.hash
    assert found, "no copy says anything"
    for (partition, lsn), hashes in found.items():
        assert len(set(hashes.values())) == 1, f"other objects of {partition} at lsn {lsn}: {hashes}"


def stands(cluster: Cluster, partition: str = "test-0") -> MirrorStatus | None:
    return standing(cluster.node(cluster.names[0]).runtime.adapters.coordinator, partition)
