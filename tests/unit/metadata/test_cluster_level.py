"""A cluster says what may be written there; who does not know that level does nothing (U1)."""

from __future__ import annotations

import json

import pytest

from halog.adapters.memory import MemoryCoordinator
from halog.errors import CoordinatorError, VersionMismatchError
from halog.metadata.cluster_level import LEVEL, ClusterLevel, check_level, read_level
from halog.release import RELEASE
from halog.schema import Registry
from halog.testing.cluster import Cluster


def connected() -> MemoryCoordinator:
    coordinator = MemoryCoordinator()
    coordinator.connect(lambda state: None)
    return coordinator


def at(level: int, **more: object) -> MemoryCoordinator:
    coordinator = connected()
    coordinator.create("level", json.dumps({"level": level, **more}).encode())
    return coordinator


@pytest.mark.feature("U1")
def test_a_cluster_that_says_none_is_at_the_first_level() -> None:
    coordinator = connected()
    assert read_level(coordinator) == ClusterLevel(level=1)
    check_level(coordinator, "ops")


@pytest.mark.feature("U1")
def test_a_level_that_is_known_is_no_obstacle_whatever_a_later_version_says_with_it() -> None:
    coordinator = at(LEVEL, floor=1, since_ms=7, by="me@here", later={"of": [9]})
    assert read_level(coordinator).by == "me@here"
    check_level(coordinator, "ops")


@pytest.mark.feature("U1")
def test_a_level_that_is_not_known_is_told_with_what_is() -> None:
    with pytest.raises(VersionMismatchError) as caught:
        check_level(at(LEVEL + 1, by="me@here"), "ops")
    assert str(caught.value) == (
        f"cluster ops is at level {LEVEL + 1} (raised by me@here); this process runs halog {RELEASE}, which knows "
        f"levels up to {LEVEL}; nothing was done: it needs a later halog"
    )
    assert caught.value.evidence == {"level": LEVEL + 1, "known": LEVEL, "release": RELEASE}


@pytest.mark.feature("U1")
def test_a_level_that_cannot_be_read_is_named() -> None:
    coordinator = connected()
    coordinator.create("level", b'{"floor": 1}')
    with pytest.raises(CoordinatorError, match="znode level is no level"):
        check_level(coordinator, "ops")


@pytest.mark.feature("U1")
def test_a_process_that_does_not_know_the_level_leaves_no_trace() -> None:
    with Cluster(2, partitions=1, registry=Registry()) as cluster:
        cluster.kill("B")
        tree = cluster.tree
        tree.create("level", json.dumps({"level": LEVEL + 1}).encode(), 0)
        before = tree.children("nodes"), tree.get("partitions/test-0")
        for begin in (cluster.start, cluster.client):
            with pytest.raises(VersionMismatchError, match=f"cluster test is at level {LEVEL + 1}"):
                begin()
        assert (tree.children("nodes"), tree.get("partitions/test-0")) == before
