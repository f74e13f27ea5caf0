"""This module is the pytest plugin (X5): `halog_node`, one node in memory, and `halog_cluster`, several nodes in
memory.

    def test_landing(halog_node):
        with halog_node.transaction():
            halog_node.create(Aircraft(tail="N1"))

    @pytest.mark.halog(remote=True)           # every method call crosses the wire, as in a cluster
    def test_landing_from_elsewhere(halog_node): ...

    def test_nothing_is_lost(halog_cluster):
        cluster = halog_cluster(nodes=3)
        cluster.kill(cluster.active_for(Aircraft, "N1"))

pytest loads it in every test run where halog is installed, so it imports nothing until a fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from halog.schema import Registry
    from halog.testing.cluster import Cluster
    from halog.testing.nodes import MemoryNode

_MARK = (
    "halog(partitions=12, remote=False, modules=None): how `halog_node` is made; remote: active for nothing, so that "
    "every method call crosses the wire; modules: those whose exceptions may, by default those that declare classes"
)


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line("markers", _MARK)


@pytest.fixture
def halog_registry() -> Registry:
    """Return the declared types; override it where classes are declared with a registry of their own."""
    from halog.schema import DEFAULT

    return DEFAULT


@pytest.fixture
def halog_node(request: pytest.FixtureRequest, halog_registry: Registry) -> Iterator[MemoryNode]:
    """Yield a node on an empty cluster in memory, ready in milliseconds; `state_hash()` shows whether anything
    changed."""
    from halog.testing.memory import MemoryCluster
    from halog.testing.nodes import MemoryNode

    mark = request.node.get_closest_marker("halog")
    options = dict(mark.kwargs) if mark is not None else {}
    cluster = MemoryCluster(partitions=options.pop("partitions", 12))
    remote, modules = options.pop("remote", False), options.pop("modules", None)
    if options or (mark is not None and mark.args):
        raise pytest.UsageError(f"pytest.mark.halog takes partitions, remote and modules, not {options or mark.args}")
    named = _Declaring(halog_registry) if modules is None else modules
    with MemoryNode(cluster, halog_registry, remote=remote, application_modules=named) as node:
        yield node


class _Declaring(Collection[str]):
    """Names the modules where the application's classes are, those that a test declares included: what `[application]
    modules` names in an application's configuration."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def __iter__(self) -> Iterator[str]:
        return iter({info.module for info in self._registry.by_name.values()})

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in list(iter(self))


@pytest.fixture
def halog_cluster(halog_registry: Registry) -> Iterator[Callable[..., Cluster]]:
    """Yield a function that starts a cluster of real nodes over memory adapters: `halog_cluster(nodes=3)`; see
    `Cluster`. `modules`: modules whose exceptions may cross nodes, by default those that declare classes. Every cluster
    is closed after the test."""
    from halog.testing.cluster import Cluster

    made: list[Cluster] = []

    def start(
        nodes: int = 3, *, partitions: int = 12, sync_replicas: int = 1, modules: tuple[str, ...] | None = None
    ) -> Cluster:
        named = tuple(sorted(_Declaring(halog_registry))) if modules is None else modules
        cluster = Cluster(
            nodes, partitions=partitions, sync_replicas=sync_replicas, registry=halog_registry, modules=named
        )
        made.append(cluster)
        return cluster.start()

    try:
        yield start
    finally:
        for cluster in made:
            cluster.close()
