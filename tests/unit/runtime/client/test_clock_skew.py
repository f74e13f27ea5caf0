"""Transaction ids carry a clock's stamp; a node whose clock is behind must not be shut out."""

from __future__ import annotations

import time

import pytest

from halog.errors import ConflictError
from halog.schema import Registry, managed
from halog.testing.cluster import Cluster

REGISTRY = Registry()


@managed(key="name", registry=REGISTRY)
class Counter:
    name: str
    value: int = 0


HOUR_NS = 3_600 * 10**9


@pytest.mark.feature("R5")
@pytest.mark.parametrize("behind", ["A", "a client"])
def test_a_node_whose_clock_is_behind_catches_up_at_its_first_commit(behind: str) -> None:
    """After outcomes stamped by a clock an hour ahead were forgotten, a commit of another node is refused once, as a
    conflict that changed nothing; run again, it happens, and so do all later ones."""
    with Cluster(1, partitions=1, registry=REGISTRY) as cluster:
        active = cluster.node("A")
        (copy,) = active.runtime.copies.values()
        copy.core.state.outcomes.horizon = (time.time_ns() + HOUR_NS).to_bytes(8, "big")
        node = active if behind == "A" else cluster.client()
        with pytest.raises(ConflictError, match="clock is behind"), node.transaction():
            node.create(Counter(name="a"))
        for name in "ab":
            with node.transaction():
                node.create(Counter(name=name))
        with node.transaction():
            assert [node.get(Counter, name).value for name in "ab"] == [0, 0]
