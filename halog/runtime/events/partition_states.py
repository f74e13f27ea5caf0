"""This module keeps the states of all partitions as this node knows them (P8), and calls notifiers when they change.

One thread looks whenever a table, the members or a copy's role changes; `halog.core.table.states` says what that means.
A change that all nodes see is told to the event history by one of them. Another thread calls the notifiers, one after
the other in the order of the changes. So a slow notifier delays nobody but notifiers, and an error in one harms nobody.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, overload

from halog.core.ids import Member
from halog.core.roles import Role
from halog.core.table.definitions import IN_USE, Status, status
from halog.core.table.group import as_of
from halog.core.table.states import TRANSIENT, PartitionSight, State, StateChange, StateTracker, teller
from halog.core.table.table import ENABLED, PartitionTable
from halog.errors import ClosedError
from halog.events import DEFINITION, REPLICATION, STATE, UNAVAILABLE
from halog.runtime.events.history import History
from halog.runtime.support.clock import wall_ms
from halog.schema.registry import DEFAULT, Registry

logger = logging.getLogger("halog.lives")

LOOK_S = 1.0
"""How often all partitions are looked at, if nothing tells of a change."""

MAX_WAITING = 10_000
"""Changes that may wait for notifiers: minutes of a busy cluster. Further ones are logged, and no notifier is
called."""

CLOSE_S = 5.0
"""How long a notifier that runs when its node closes may take."""


@dataclass(frozen=True)
class PartitionChange:
    """A partition entered or left a transient state, as `node` saw it (P8). `before` and `now` are states by name:
    Initial, Active, Migrating, Replicating, Updating, Unavailable; `happening` is the row of the state table."""

    partition: str
    node: str
    before: str
    now: str
    happening: str
    active: str | None
    """The active node, if there is one."""
    node_list: tuple[str, ...]
    """The active node and its replicas, in order."""


_HANDING = (Role.DRAINING.value, Role.HANDING.value)

Notifier = Callable[[PartitionChange], object]

Entry = tuple[Notifier, frozenset[str]]
"""A notifier, and the partitions it is called for; none: all."""


Declared = TypeVar("Declared", bound=Notifier)


@overload
def partition_notifier(notifier: Declared, /) -> Declared: ...


@overload
def partition_notifier(*partitions: str, registry: Registry = DEFAULT) -> Callable[[Declared], Declared]: ...


def partition_notifier(*given: Any, registry: Registry = DEFAULT) -> Any:
    """Register a notifier: `@halog.partition_notifier`, `@halog.partition_notifier("eu", "us")`. The function is called
    with a PartitionChange on every node that is opened afterwards with this registry (P8); see `Partitions.notify`."""
    if len(given) == 1 and callable(given[0]):
        registry.notifiers.append((given[0], ()))
        return given[0]

    def declare(notifier: Declared) -> Declared:
        registry.notifiers.append((notifier, given))
        return notifier

    return declare


class PartitionStates:
    """Keeps the states for one run of a node. `updating` says whether objects go from or to a partition. `max_waiting`,
    `close_s`: see MAX_WAITING and CLOSE_S."""

    def __init__(
        self,
        me: str,
        history: History,
        updating: Callable[[str], bool] = lambda name: False,
        *,
        max_waiting: int = MAX_WAITING,
        close_s: float = CLOSE_S,
    ) -> None:
        self._me = me
        self._history = history
        self._updating = updating
        self._max_waiting = max_waiting
        self._close_s = close_s
        self._lives: dict[str, StateTracker] = {}
        self._untold: dict[str, StateChange] = {}
        """By partition: the step into its transient state, where another node seemed to be the one to report it."""
        self._up: frozenset[Member] = frozenset()
        self._offline = ""
        self._handing = set[str]()
        self._news: queue.SimpleQueue[Callable[[], Iterable[str]] | None] = queue.SimpleQueue()
        self._notifiers: list[Entry] = []
        self._calls: deque[tuple[Entry, PartitionChange]] = deque()
        self._lock = threading.Condition()
        """Over notifiers, their calls, and whether it is closed; notified when either of the last two changes."""
        self._closed = False
        self._tables: dict[str, tuple[int, PartitionTable]] = {}
        self._thread = threading.Thread(target=self._work, name="halog-lives", daemon=True)
        self._caller: threading.Thread | None = None

    def begin(self) -> None:
        """Start the thread that looks."""
        self._thread.start()

    def close(self) -> None:
        """Stop looking, and call no notifier any more. Waits for a notifier that runs, unless that one closes the
        node."""
        with self._lock:
            self._closed = True
            caller = self._caller
            self._notifiers = []
            self._calls.clear()
            self._lock.notify_all()
        self._news.put(None)
        if self._thread.is_alive():
            self._thread.join(self._close_s)
        if caller is not None and caller is not threading.current_thread():
            caller.join(self._close_s)

    # --- what may have changed; any thread, never waits ---

    def table_seen(self, name: str, version: int, table: PartitionTable) -> None:
        """Take the table of a partition whose znode was read."""
        self._news.put(partial(self._take_table, name, version, table))

    def members_seen(self, members: frozenset[Member], offline: str) -> None:
        """Take the members that are up. `offline` says why this node itself is offline; "" if it is not."""
        self._news.put(partial(self._take_members, members, offline))

    def role_seen(self, name: str, role: str) -> None:
        """Take the new role of the copy here."""
        self._news.put(partial(self._take_role, name, role))

    def look(self, *names: str) -> None:
        """Look at these partitions; without any, at all."""
        self._news.put(lambda: names or tuple(self._tables))

    def _take_table(self, name: str, version: int, table: PartitionTable) -> Iterable[str]:
        known = self._tables.get(name)
        if known is not None and version <= known[0]:
            return ()
        self._tables[name] = version, table
        if table.active is None or table.active.node != self._me:
            self._handing.discard(name)
        if known is not None:
            self._tell_said(known[1], table)
        return (name,)

    def _take_members(self, members: frozenset[Member], offline: str) -> Iterable[str]:
        self._up = members
        self._offline = offline
        return tuple(self._tables)

    def _take_role(self, name: str, role: str) -> Iterable[str]:
        """Keep a hand-over in mind until the table names another node, or until it is called off."""
        if role in _HANDING:
            self._handing.add(name)
        elif role == Role.ACTIVE.value:
            self._handing.discard(name)
        return (name,)

    # --- the thread ---

    def _work(self) -> None:
        while True:
            try:
                news = self._news.get(timeout=LOOK_S)
            except queue.Empty:
                news = self._all
            if news is None:
                return
            try:
                for name in news():
                    self._look_at(name)
            except Exception:
                logger.exception("the states of partitions are looked at again after an error")

    def _all(self) -> Iterable[str]:
        return tuple(self._tables)

    def _look_at(self, name: str) -> None:
        known = self._tables.get(name)
        if known is None:
            return
        table, life = as_of(known[1], wall_ms()), self._lives.setdefault(name, StateTracker())
        led = life.table is not None and life.table.active is not None and life.table.active.node == self._me
        sight = PartitionSight(
            self._me, table, self._up, bool(self._offline), name in self._handing, self._updating(name)
        )
        for step in life.look(sight):
            self._report_if_ours(table, step)
            if step.transient or (step.now is State.UNAVAILABLE and led):
                self._notify(table, step)

    def _report_if_ours(self, table: PartitionTable, step: StateChange) -> None:
        """Report a step, if this node is the one that reports it.

        Whoever reports the end of a transient state reports its beginning, too, unless it has done so. The node that
        was to report the beginning may have seen both at once, and taken another one for the reporter of both. Twice in
        the history is better than not at all.
        """
        began = self._untold.pop(table.name, None)
        if teller(table, self._up) == self._me:
            for happened in (began, step):
                if happened is not None:
                    self._tell(table, happened)
        elif step.now in TRANSIENT:
            self._untold[table.name] = step

    def _tell(self, table: PartitionTable, step: StateChange) -> None:
        more = {"was": step.before.value, "state": step.now.value}
        kind = UNAVAILABLE if step.now is State.UNAVAILABLE else STATE
        self._history.tell(kind, step.happening, more=more, partition=table.name, epoch=table.epoch.number)

    def _tell_said(self, before: PartitionTable, now: PartitionTable) -> None:
        """Report what a node said of a partition. That node reports it itself, if it is up: it sees both tables.
        Replicas that are copied anew are reported like a state."""
        first, up = teller(now, self._up), {m.node for m in self._up}
        for node, d in now.definitions.items():
            was = before.definitions.get(node)
            if (node if node in up else first) != self._me:
                continue
            if was is None or was.said != d.said or (d.said != ENABLED and was.nodes != d.nodes):
                more = {"said": d.said, "nodes": ", ".join(d.nodes), "sync": d.sync_replicas}
                self._history.tell(DEFINITION, "asked for there", node=node, more=more, partition=now.name)
        for resync, what in ((now.resync, "are to be"), (before.resync, "were")):
            if first == self._me and resync is not None and None in (before.resync, now.resync):
                more = {"nodes": ", ".join(resync.nodes), "what": what}
                self._history.tell(REPLICATION, "an operator's command", more=more, partition=now.name)

    # --- notifiers ---

    def notify(self, notifier: Notifier, partitions: Sequence[str] = ()) -> Callable[[], None]:
        """Call `notifier` with every PartitionChange of these partitions on this node, where they are defined and
        enabled; without any: of all partitions. Returns a function that ends this: no call begins after that, or after
        the node was closed. Raises ClosedError if the node is closed."""
        entry = notifier, frozenset(partitions)
        with self._lock:
            if self._closed:
                raise ClosedError(f"node {self._me} is closed: it calls no notifier any more")
            self._notifiers.append(entry)
            if self._caller is None:
                self._caller = threading.Thread(target=self._call, name="halog-notifiers", daemon=True)
                self._caller.start()

        def remove() -> None:
            with self._lock:
                self._notifiers = [e for e in self._notifiers if e is not entry]

        return remove

    def _notify(self, table: PartitionTable, step: StateChange) -> None:
        if status(table, self._me) not in IN_USE:
            return
        active = None if table.active is None else table.active.node
        change = PartitionChange(
            table.name, self._me, step.before.value, step.now.value, step.happening, active, table.node_list
        )
        with self._lock:
            wanted = [e for e in self._notifiers if not e[1] or table.name in e[1]]
            taken = wanted[: max(0, self._max_waiting - len(self._calls))]
            self._calls.extend((e, change) for e in taken)
            self._lock.notify_all()
        for notifier, _ in wanted[len(taken) :]:
            logger.error(
                "notifiers are %d changes behind: %s is not called with %s", self._max_waiting, notifier, change
            )

    def _call(self) -> None:
        while (due := self._next_call()) is not None:
            _called(*due)

    def _next_call(self) -> tuple[Notifier, PartitionChange] | None:
        """Return the next call of a notifier that is still wanted; waits for one. None: this is closed."""
        with self._lock:
            while not self._closed:
                while self._calls:
                    entry, change = self._calls.popleft()
                    if any(e is entry for e in self._notifiers):
                        return entry[0], change
                self._lock.wait()
        return None

    # --- what is known ---

    def state(self, name: str) -> State:
        """Return the state of a partition as this node knows it; INITIAL before the first look."""
        life = self._lives.get(name)
        return State.INITIAL if life is None else life.state

    def status(self, name: str) -> Status:
        """Return the status of a partition on this node."""
        known = self._tables.get(name)
        return Status.UNDEFINED if known is None else status(known[1], self._me)

    def view(self) -> Mapping[str, str]:
        """Return the states as plain values: partition → state."""
        return {name: life.state.value for name, life in sorted(self._lives.copy().items())}


def _called(notifier: Notifier, change: PartitionChange) -> None:
    try:
        notifier(change)
    except BaseException:  # also what ends a task or a process: in this thread it would end all notifiers
        name = getattr(notifier, "__qualname__", repr(notifier))
        logger.exception("notifier %s failed on %s: %s → %s", name, change.partition, change.before, change.now)
