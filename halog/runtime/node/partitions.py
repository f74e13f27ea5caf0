"""An application sees and changes partitions by `node.partitions["eu"]` (P7, P8, P9, P12).

    eu = node.partitions["eu"]
    eu.define(("A", "B"))        # this node says where it is to be; nothing moves yet
    eu.enable()                  # now it goes there
    print(eu.state, eu.status, eu.node_list)

Nothing here decides anything: `halog.runtime.placement.definitions` checks and sets, the nodes do the rest by
themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from halog.config.multi_site import check_nodes
from halog.core.table.definitions import listed
from halog.core.table.table import PartitionTable
from halog.errors import ForkedError, RefusedError, UnknownNameError
from halog.runtime.events.partition_states import Notifier
from halog.runtime.placement import definitions as defining
from halog.runtime.placement.migration import wait_until_there

if TYPE_CHECKING:
    from halog.runtime.node.node import Runtime


def _ours(runtime: Runtime) -> Runtime:
    """Return the runtime; raise ForkedError in a child of the process that opened the node: it hears of nothing
    there."""
    runtime.operators.check_forked()
    return runtime


class PartitionHandle:
    """A `PartitionHandle` shows one partition as this node knows it now. It holds nothing: every look is a new one."""

    def __init__(self, runtime: Runtime, name: str) -> None:
        self._of = runtime
        self.name = name

    @property
    def _runtime(self) -> Runtime:
        return _ours(self._of)

    def __repr__(self) -> str:
        try:
            self._of.operators.check_forked()
        except ForkedError:
            return f"<partition {self.name} of a parent process>"
        return f"<partition {self.name}: {self.state} on {', '.join(self.node_list) or 'no node'}>"

    # --- what is known; also of a foreign partition (P9) ---

    @property
    def state(self) -> str:
        """Return its state: Initial, Active, Migrating, Replicating, Updating or Unavailable (P8)."""
        return self._runtime.lives.state(self.name).value

    @property
    def status(self) -> str:
        """Return its status: LocalDefined, LocalEnabled, LocalDisabled, RemoteDefined or RemoteEnabled; Undefined: the
        configuration names it, and nobody has defined it yet (P8)."""
        return self._runtime.lives.status(self.name).value

    @property
    def active(self) -> str | None:
        """Return the node that is active for it; None: none is."""
        return self._runtime.router.active(self.name)

    @property
    def node_list(self) -> tuple[str, ...]:
        """Return the active node, then its replicas, as they are now (P10)."""
        return self._table.node_list

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return where it is to be, in priority order; empty: nobody has placed it yet."""
        return listed(self._table)

    @property
    def foreign(self) -> bool:
        """Is this node none of its nodes?"""
        return self._runtime.name not in {*self.nodes, *self.node_list}

    def _of_a_node(self) -> Runtime:
        r = self._runtime
        r.operators.check_open()
        if r.name not in r.config.all_sites.nodes:
            raise RefusedError(
                f"{r.name} is none of [nodes] ({', '.join(r.config.nodes)}): a client knows every partition without "
                "defining it",
                partition=self.name,
            )
        return r

    @property
    def _table(self) -> PartitionTable:
        return self._runtime.router.tables[self.name][1]

    # --- what this node says of it ---

    def define(self, nodes: Sequence[str], sync_replicas: int | None = None) -> None:
        """Say where it is to be, the preferred node first (P7); `enable` puts that into effect. May be done again at
        any time. Without `sync_replicas` as many as now, at first as the policy says. If this node is none of `nodes`
        the partition is foreign here, and they are to be the cluster's (P9).

        RefusedError names what is wrong, and nothing was changed; with other nodes for a foreign partition it names
        both lists (P10)."""
        r = self._of_a_node()
        defining.define(r.adapters.coordinator, r.config, self.name, r.name, nodes, sync_replicas)

    def enable(self, *, replace: bool = False, wait_s: float = 0.0) -> None:
        """Put this node's definition into effect (P7): the partition goes where it says, under traffic. Where it is
        there already, nothing happens. `replace`: give up a migration under way for it.

        Returns once that is set; the nodes do the rest by themselves. With `wait_s`, seconds, once it is done:
        DeadlineError if it is not by then. RefusedError names what speaks against it, and nothing was changed."""
        r = self._of_a_node()
        c, o = r.adapters.coordinator, r.operators
        asked = defining.enable(c, r.config, o.up, self.name, r.name, told=o.told, replace=replace)
        self._wait(asked, wait_s)

    def disable(self, *, wait_s: float = 0.0) -> None:
        """Stop hosting it here (P7): this node leaves the node list everywhere, hands over if it is active, and deletes
        its copy. If it is the only node it keeps the objects: they can be read, and nothing new is taken. `wait_s` and
        errors are as for `enable`."""
        r = self._of_a_node()
        c, o = r.adapters.coordinator, r.operators
        self._wait(defining.disable(c, r.config, o.up, self.name, r.name, told=o.told), wait_s)

    def replicate(self, nodes: Sequence[str] = (), *, wait_s: float = 0.0) -> None:
        """Have these replicas, or all, copied anew from the log, one after the other; commits go on (P12). `wait_s` and
        errors as for `enable`."""
        r = self._runtime
        r.operators.check_open()
        check_nodes(r.config, nodes)
        table = defining.replicate(r.adapters.coordinator, self.name, nodes)
        if wait_s > 0:
            defining.wait_until_replicated(r.router, table, wait_s)

    def _wait(self, asked: defining.DefinitionResult, wait_s: float) -> None:
        if wait_s > 0 and asked.target is not None:
            wait_until_there(self._runtime.router, asked.table, asked.target, wait_s)


class Partitions(Mapping[str, PartitionHandle]):
    """All partitions by name, those of other nodes included."""

    def __init__(self, runtime: Runtime) -> None:
        self._of = runtime

    @property
    def _runtime(self) -> Runtime:
        return _ours(self._of)

    def __getitem__(self, name: str) -> PartitionHandle:
        if name not in self._runtime.router.tables:
            raise UnknownNameError.of("partition", name, self._runtime.router.tables)
        return PartitionHandle(self._runtime, name)

    def __contains__(self, name: object) -> bool:
        return name in self._runtime.router.tables

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._runtime.router.tables))

    def __len__(self) -> int:
        return len(self._runtime.router.tables)

    def notify(self, notifier: Notifier, *partitions: str) -> Callable[[], None]:
        """Call `notifier(change)` when one of these partitions (without any: any of all) enters or leaves a transient
        state, wherever that happens, if it is defined and enabled here; and when one goes from Active to Unavailable on
        this node (P8). Calls come one after the other, in order, on a thread of their own, behind the change, and
        outside of any transaction; an exception is logged. Returns what takes the notifier away again."""
        return self._runtime.lives.notify(notifier, partitions)
