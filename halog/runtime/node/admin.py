"""This module does what an operator asks of a node; it is the command line's side of the runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from halog.config import Config
from halog.config.multi_site import check_nodes
from halog.core import results as res
from halog.core.table.table import PartitionTable
from halog.errors import NothingToDoError, RefusedError, UnknownNameError
from halog.metadata.nodes import read_nodes
from halog.ports import Coordinator
from halog.runtime.client.caller import Asker
from halog.runtime.client.outcomes import OutcomeQuery
from halog.runtime.client.reads import Reads
from halog.runtime.events.history import History
from halog.runtime.events.reporter import migration_told
from halog.runtime.keys.key_owners import Places
from halog.runtime.node.live_config import LiveConfig
from halog.runtime.placement.migration import migrate, wait_until_there
from halog.runtime.remap import remap_request as wishes
from halog.runtime.rpc import frames
from halog.runtime.rpc.result_errors import to_error


class Operators:
    """Serves the operators of a running node."""

    def __init__(
        self,
        asker: Asker,
        configured: LiveConfig,
        coordinator: Coordinator,
        reads: Reads,
        places: Places,
        history: History,
        afterwards: OutcomeQuery,
    ) -> None:
        self._afterwards = afterwards
        self._asker = asker
        self._configured = configured
        self._coordinator = coordinator
        self._reads = reads
        self._places = places
        self._history = history

    @property
    def config(self) -> Config:
        """Return the configuration in force."""
        return self._configured.config

    def check_open(self) -> None:
        """Raise ClosedError if the node is closed, ForkedError in a child of the process that opened it,
        VersionMismatchError if this halog does not know the cluster's level any more."""
        self._asker.check_open()
        self._asker.check_level()

    def check_forked(self) -> None:
        """Raise ForkedError, as `check_open` does; what a closed node knew may still be looked at."""
        self._asker.check_forked()

    @property
    def up(self) -> list[str]:
        """Return the registered nodes that host partitions, as the coordinator has them. A node that has just started
        knows no others yet, and applications enable partitions then."""
        self.check_open()
        names = self._coordinator.children("nodes")
        return [info.name for info in read_nodes(self._coordinator, names).values() if info.hosts]

    def told(self, before: PartitionTable, now: PartitionTable) -> None:
        """Tell the event history where this process has wished a partition."""
        migration_told(self._history, before, now)

    def outcome(self, partition: str, tx: bytes, attempt: int) -> str:
        """What became of a transaction attempted under epoch number `attempt`, asked once: "happened", "did not
        happen", "expired" or "unknown"; see `halog.Node.outcome`."""
        return self._afterwards.one(partition, tx, attempt)

    def hand_over(self, partition: str, to: str) -> None:
        """Make `to` active for a partition (Q5). RefusedError says why not; NothingToDoError: it is active already."""
        self.check_open()
        known = self._asker.router.tables.get(partition)
        if known is None:
            raise UnknownNameError.of("partition", partition, self._asker.router.tables)
        check_nodes(self.config, (to,))
        if to not in known[1].configured:
            raise RefusedError(f"{to} is not in the node list of {partition}: {', '.join(known[1].configured)}")
        reply = self._asker.ask(partition, frames.HandOverRequest(partition, to))
        if reply is None:
            copy = self._asker.copies[partition]
            if copy.node.me.node == to:  # it has come here meanwhile
                raise NothingToDoError(f"{to} is active for {partition} already")
            result = self._asker.wait(partition, lambda answer: copy.hand_over(to, answer, "asked for on this node"))
            if not isinstance(result, res.Success):
                raise to_error(result, partition)

    def rebalance(self, policy: str, config: Config | None = None, *, wait_s: float = 0.0) -> int:
        """Move objects to other partitions under traffic (P13, T8): change where a policy has keys to what `config`
        says (without one: what this node's says). Returns the version of the mapping that comes of it.

        Returns once the change is begun; the nodes do the rest by themselves. With `wait_s`, seconds, once it is done:
        DeadlineError if it is not by then. RefusedError names what speaks against it, and changes nothing.
        """
        self.check_open()
        config = config or self.config
        version = wishes.begin(self._coordinator, self._asker.router, config, policy)
        if wait_s > 0:
            wishes.wait_until_done(self._coordinator, policy, version, wishes.wished(config, policy), wait_s)
        return version

    def turn_back(self, policy: str) -> int:
        """Give up the change under way: what has moved moves back (T8). The version of the mapping that comes of it.
        RefusedError if there is none."""
        self.check_open()
        return wishes.turn_back(self._coordinator, policy)

    def moves(self, policy: str, config: Config | None = None) -> Mapping[tuple[str, str], int]:
        """Return how many objects a `rebalance` with this configuration would move from which partition to which. It
        reads all of the policy, and moves nothing."""
        self.check_open()
        scan = partial(self._reads.scan, prefix=b"")
        router = self._asker.router
        return wishes.preview(self._coordinator, router, self._places, config or self.config, policy, scan)

    def migrate(
        self,
        partition: str,
        nodes: Sequence[str],
        sync_replicas: int | None = None,
        *,
        replace: bool = False,
        copy_rate: int | None = None,
        wait_s: float = 0.0,
    ) -> None:
        """Move a partition to `nodes`, the preferred one first, while it works (P12). Without `sync_replicas` as many
        as now, if there are nodes enough; `replace` gives up a migration under way for this one. `copy_rate`: bytes a
        second that a new node reads to make its copy, 0 for no limit, without it as the policy says.

        Returns once the wish is set; the nodes do the rest by themselves. With `wait_s`, seconds, once it is done:
        DeadlineError if it is not by then. RefusedError names what speaks against it, and changes nothing.
        """
        self.check_open()
        wished, target = migrate(
            self._coordinator,
            self.config,
            self.up,
            partition,
            nodes,
            sync_replicas,
            told=self.told,
            replace=replace,
            copy_rate=copy_rate,
        )
        if wait_s > 0:
            wait_until_there(self._asker.router, wished, target, wait_s)
