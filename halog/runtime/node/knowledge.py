"""This module makes what a node knows of its cluster: partition tables, nodes, mappings, and the states of
partitions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from halog.config import Config
from halog.core.table.table import PartitionTable
from halog.errors import HalogError
from halog.ports import Versioned
from halog.runtime.client.node_asks import NodeAsks
from halog.runtime.events.history import History
from halog.runtime.events.node_states import NodeStates
from halog.runtime.events.partition_states import PartitionStates
from halog.runtime.host.services import TableFeed
from halog.runtime.keys.mapping_cache import MappingCache
from halog.runtime.node.assembly import homes_of, make_afar
from halog.runtime.node.node_run import NodeRun
from halog.runtime.replica.driver import Copy
from halog.runtime.rpc import versions
from halog.runtime.rpc.missing_server import log_missing
from halog.runtime.rpc.own_state import OwnState
from halog.runtime.rpc.remote_sites import RemotePaces
from halog.runtime.rpc.router import Router
from halog.runtime.support.adapters import Adapters


def _known_otherwise(node: str) -> None:
    """Nobody is asked: a node that hosts partitions knows by its own connections who is up."""


class Knowledge:
    """A node's `Knowledge` holds the parts that know the cluster, and tells one of what another has learned."""

    def __init__(
        self,
        config: Config,
        adapters: Adapters,
        run: NodeRun,
        history: History,
        copies: dict[str, Copy],
        far: RemotePaces,
        named: Callable[[], Iterable[str]],
    ) -> None:
        """Make the parts; `copies` are those hosted here, by partition, which hear of tables, too. `named` returns the
        names of the configured nodes."""
        self._coordinator = adapters.coordinator
        self.own = OwnState()
        self.mapping_changed = threading.Event()
        """Set whenever a mapping has changed; whoever waits for that clears it."""
        self.mappings = MappingCache(adapters.coordinator, homes_of(config), self._mapping_changed)
        self.lives = PartitionStates(run.name, history, lambda partition: partition in self.mappings.now.updating)
        self.nodes = NodeStates(run.name, history, named)
        timing, greeting = config.timing, versions.greeting(config.cluster.name, run.member, "client")
        patience_s = timing.non_response_timeout_ms / 1000
        self.asks = (
            NodeAsks(adapters.channel, greeting, self.nodes.seen, patience_s) if adapters.store is None else None
        )
        """What asks nodes whether they are up; None: this node knows by itself."""
        self.afar = make_afar(config, adapters, far)
        self.router = Router(
            run.name,
            adapters.channel,
            config.timing.attempt_timeout_ms / 1000,
            config.site.name,
            afar=self.afar,
            own=self.own,
            seen=self.lives.table_seen,
            served=self.mappings.served,
            look=self._look,
            missing=partial(log_missing, adapters.log),
            silent=_known_otherwise if self.asks is None else self.asks.doubted,
        )
        self.router.configure(config.discovery)
        self.tables = TableFeed(self.router, copies)

    def table_changed(self, path: str, found: Versioned | None) -> None:
        """Take what a partition's znode holds by now."""
        if found is not None:
            table = PartitionTable.from_bytes(found.data)
            self.tables.seen(table.name, found.version, table)

    def _look(self, partition: str) -> None:
        with suppress(HalogError):  # what is known stays
            self.table_changed("", self._coordinator.get(f"partitions/{partition}"))

    def _mapping_changed(self) -> None:
        self.lives.look()
        self.mapping_changed.set()
