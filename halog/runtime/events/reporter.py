"""This module reports what a node knows of itself, of its copies and of the others, in the words of `halog.events`.

A copy has many roles; operators know four of them: active, replica, offline, failed. Only a change between those is
reported. Nothing is decided here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from halog.core.roles import LEADING, Role
from halog.core.table.changes import migration_asked
from halog.core.table.group import could_fork
from halog.core.table.tell import Tell
from halog.events import (
    CREATED,
    INTRUDER,
    JOINED,
    LEFT,
    LINE_CUT,
    LINE_WHOLE,
    MIGRATION,
    ROLE,
    STORE_ASIDE,
    UNAUTHORIZED,
    Kind,
)
from halog.runtime.events.history import History

if TYPE_CHECKING:
    from halog.core.partition import Partition
    from halog.core.table.table import PartitionTable

INTRUDER_S = 60.0
"""A process that is refused tries again and again: it is reported once in this time."""

INTRUDERS = 20
"""So many are reported in that time, whatever names they give themselves. The others are counted."""

_LEADS = {role.value for role in LEADING}
_SHOWN = {**dict.fromkeys(_LEADS, "active"), Role.FAILED.value: "failed", Role.OFFLINE.value: "offline"}
REPLICA = "replica"


def migration_told(history: History, before: PartitionTable, now: PartitionTable, cause: str = "") -> None:
    """Report that this node, or its application, asked to move a partition. `cause` says why, if the tables do not."""
    for told in migration_asked(before, now):
        why = cause if cause and told.kind is MIGRATION else told.cause
        history.tell(told.kind, why, more=told.more, partition=now.name, epoch=now.epoch.number)


class ReportedCopy(Protocol):
    """What is told of a copy comes from its core."""

    @property
    def name(self) -> str: ...

    @property
    def core(self) -> Partition: ...


class EventReporter:
    """A node's `EventReporter` tells the event history what happens in one run of it. `clock` counts seconds."""

    def __init__(self, history: History, clock: Callable[[], float] = time.monotonic) -> None:
        self.history = history
        self._clock = clock
        self._roles: dict[str, str] = {}
        self._refused: dict[tuple[Kind, str], float] = {}
        self._cut: set[str] = set()
        """Nodes to which the connection was reported as cut."""
        self._untold = 0
        self._lock = threading.Lock()

    # --- copies ---

    def told(self, copy: ReportedCopy, e: Tell) -> None:
        """Something the core knows."""
        s = copy.core.state.chain.state
        self.history.tell(
            e.kind,
            e.cause,
            node=e.node,
            more=e.more,
            partition=copy.name,
            epoch=s.epoch.number,
            lsn=s.lsn,
            once=e.once,
            logged=e.logged,
        )

    def role_changed(self, copy: ReportedCopy, role: str, why: str) -> None:
        """Tell a copy's role, if operators know the difference."""
        now = _SHOWN.get(role, REPLICA)
        was = self._roles.get(copy.name, REPLICA)
        if now == "offline" and was == REPLICA:
            return  # the loss of the quorum is reported for the zone, not for every copy
        self._roles[copy.name] = now
        if now != was:
            s, table = copy.core.state.chain.state, copy.core.state.table
            more: dict[str, object] = {"role": now, "was": was}
            if role in _LEADS and could_fork(table, table.group.required):
                more["may_fork"] = True
            self.history.tell(ROLE, why, more=more, partition=copy.name, epoch=s.epoch.number, lsn=s.lsn)

    def of_log(self, kind: Kind, cause: str, more: Mapping[str, Any]) -> None:
        """Report that the log is away, or back, as this node finds it."""
        self.history.tell(kind, cause, more=more)

    def created(self, partition: str) -> None:
        """Report that this node wrote the partition's table."""
        self.history.tell(CREATED, "it is configured and did not exist", partition=partition)

    # --- nodes ---

    def joined(self, address: str, pid: int, partitions: int) -> None:
        """Report that this node takes part."""
        more = {"address": address, "pid": pid, "partitions": partitions}
        self.history.tell(JOINED, f"started as pid {pid} at {address}, hosting {partitions} partitions", more=more)

    def store_replaced(self, why: str, aside: str) -> None:
        """Report a new store in place of a damaged one. `aside` is where the damaged one is now; "" if it is gone."""
        self.history.tell(STORE_ASIDE, why, more={"aside": aside or "gone"})

    def left(self) -> None:
        """Report that this node leaves on purpose."""
        self.history.tell(LEFT, "it was closed")

    def noticed(self, node: str, up: bool, why: str) -> None:
        """Report that another node is up again, or no more, as this one sees it."""
        self.history.tell(JOINED if up else LEFT, why, node=node)

    def line(self, node: str, whole: bool, why: str) -> None:
        """Report that the connection between this node and another one that lives is cut, or whole again. Of the two,
        the first by name tells the history; the other one hears of it by the challenges."""
        with self._lock:
            if whole is (node not in self._cut):
                return
            (self._cut.discard if whole else self._cut.add)(node)
        more = {"to": node}
        self.history.tell(LINE_WHOLE if whole else LINE_CUT, why, more=more, logged=node < self.history.node)

    @property
    def intruders(self) -> int:
        """Return how many names of intruders are kept: those of the minute before the last one came."""
        return len(self._refused)

    def intruder(self, name: str, why: str) -> None:
        """Report that somebody was refused. `name` is short, since it is kept."""
        self._tell_refusal(INTRUDER, name, why)

    def unauthorized(self, name: str, why: str) -> None:
        """Report that somebody who is known was refused a request."""
        self._tell_refusal(UNAUTHORIZED, name, why)

    def _tell_refusal(self, kind: Kind, name: str, why: str) -> None:
        now = self._clock()
        with self._lock:
            self._refused = {n: at for n, at in self._refused.items() if now - at < INTRUDER_S}
            if (kind, name) in self._refused:
                return
            if len(self._refused) >= INTRUDERS:
                self._untold += 1
                return
            self._refused[kind, name] = now
            untold = self._untold
            self._untold = 0
        self.history.tell(kind, why, node=name, more={"untold": untold} if untold else None)
