"""This module makes nodes in memory for tests, ready in about a millisecond."""

from __future__ import annotations

from collections.abc import Collection

from halog.schema.registry import DEFAULT, Registry
from halog.testing.memory import MemoryBackend, MemoryCluster
from halog.transactions.execute import Executor
from halog.transactions.node import Node
from halog.transactions.space import Space


class MemoryNode(Node):
    """A `MemoryNode` is a node whose cluster is in memory.

    `remote=True`: it is active for nothing, so every method call crosses the wire (arguments and results must then be
    annotated, as they must be in a real cluster). `listed=True`: its mapper is no function of the key; then this holds
    at all nodes of the cluster (P6).
    """

    backend: MemoryBackend

    def __init__(
        self,
        cluster: MemoryCluster | None = None,
        registry: Registry = DEFAULT,
        *,
        remote: bool = False,
        application_modules: Collection[str] = (),
        listed: bool = False,
    ) -> None:
        self.cluster = cluster or MemoryCluster()
        backend = MemoryBackend(self.cluster, active=not remote, listed=listed)
        super().__init__(backend, registry, application_modules=application_modules)
        if self.cluster.execute is None:
            self.cluster.execute = self._serving(application_modules, listed) if remote else self.executor

    def _serving(self, application_modules: Collection[str], listed: bool) -> Executor:
        """Return the executor of the other node, which is active."""
        backend = MemoryBackend(self.cluster, name="memory-active", listed=listed)
        return Executor(Space(backend, self.space.registry, application_modules=application_modules))

    def state_hash(self) -> str:
        """See `MemoryCluster.state_hash`."""
        return self.cluster.state_hash()
