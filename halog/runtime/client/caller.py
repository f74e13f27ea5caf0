"""Reaches the active copy of a partition for a node: its own copy, or another node's by asking it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar

from halog.config import Config
from halog.core import results as res
from halog.core.roles import INCOMPLETE
from halog.errors import ClosedError, LockedError
from halog.runtime.replica.driver import Copy
from halog.runtime.rpc import frames
from halog.runtime.rpc.request import LocalError, OpenCommit
from halog.runtime.rpc.router import Router
from halog.transactions.context import forked_error

T = TypeVar("T")

LOCKED_S = 0.003
"""Pause before a read tries again what a transaction in doubt holds: most are decided within it."""


_BEGINNING: Final = frozenset(
    (
        frames.Fetch,
        frames.LeasedFetch,
        frames.Scan,
        frames.Count,
        frames.MomentFetch,
        frames.MomentScan,
        frames.Reach,
        frames.Barrier,
        frames.Validate,
    )
)
"""Requests that leave nothing open, whatever becomes of them."""


class Limits(NamedTuple):
    """Says how long a policy's partitions are waited for, in seconds (P4). None: as long as for all policies."""

    call_s: float | None = None
    locked_s: float | None = None


NO_LIMITS: Final[Mapping[str, Limits]] = {}


def limits_of(config: Config) -> dict[str, Limits]:
    """Return the limits by policy, of those policies that set any."""
    made = {}
    for name, policy in config.policies.items():
        call_ms, doubt_ms = policy.call_deadline_ms, policy.doubt_timeout_ms
        if call_ms is not None or doubt_ms is not None:
            made[name] = Limits(
                None if call_ms is None else call_ms / 1000, None if doubt_ms is None else 2 * doubt_ms / 1000
            )
    return made


class Asker:
    """An `Asker` is shared by everything that a node offers its application: it asks the active node of a partition."""

    def __init__(
        self,
        name: str,
        router: Router,
        copies: Mapping[str, Copy],
        call_s: float,
        locked_s: float = 0.0,
        of_policies: Mapping[str, Limits] = NO_LIMITS,
    ) -> None:
        self.name = name
        self.router = router
        self.copies = copies
        self.call_s = call_s
        self.locked_s = locked_s
        """A commit waits so long for what a transaction in doubt holds; in ordinary cases it is decided by then."""
        self._of_policies = of_policies
        """By policy: the limits that replace the two above."""
        self.closed = False
        self._pid = os.getpid()

    def call_of(self, partition: str) -> float:
        """Return how long an answer of this partition is waited for, in seconds."""
        own = self._own(partition)
        return self.call_s if own is None or own.call_s is None else own.call_s

    def locked_of(self, partition: str) -> float:
        """Return how long a commit waits for what a transaction in doubt holds in this partition, in seconds."""
        own = self._own(partition)
        return self.locked_s if own is None or own.locked_s is None else own.locked_s

    def read_of(self, partition: str) -> float:
        """Return how long a read waits for what a transaction in doubt holds there. A read holds nothing itself, so it
        waits as long as a living initiator may."""
        return max(self.call_of(partition), self.locked_of(partition))

    def doubt_of(self, partition: str, usual_s: float) -> float:
        """Return how long a participant there waits for an initiator that it hears nothing of."""
        own = self._own(partition)
        return usual_s if own is None or own.locked_s is None else own.locked_s / 2

    def shortest_doubt(self, usual_s: float) -> float:
        """Return the shortest of these times over all partitions."""
        return min([usual_s, *(own.locked_s / 2 for own in self._of_policies.values() if own.locked_s is not None)])

    def _own(self, partition: str) -> Limits | None:
        known = self.router.tables.get(partition) if self._of_policies else None
        return None if known is None else self._of_policies.get(known[1].policy)

    def close(self) -> None:
        """Ask nothing any more."""
        self.closed = True

    def check_open(self) -> None:
        """Raise ClosedError once the node is closed; ForkedError in a child of the process that opened it."""
        self.check_forked()
        if self.closed:
            raise ClosedError(f"node {self.name} is closed")

    def check_level(self) -> None:
        """Raise VersionMismatchError once this halog does not know the cluster's level (U1): nothing new is begun. What
        was begun before is settled, so commits, votes and decisions that go on are not asked."""
        self.router.own.check_level()

    def check_forked(self) -> None:
        """Raise ForkedError in a child of the process that opened the node: what it knows is as of the fork, and its
        connections are the parent's."""
        if os.getpid() != self._pid:
            raise forked_error()

    def serving(self, partition: str) -> Copy | None:
        """Return this node's copy if it is active and the node is not offline (Q1). The node is asked too, because its
        copies hear of that one by one."""
        copy = self.copies.get(partition)
        return copy if copy is not None and copy.serving and not self.router.offline() else None

    def epoch(self, partition: str) -> int:
        """Return the highest epoch that is known here: by the table, or by this node's copy, which may be ahead of the
        table."""
        copy, known = self.copies.get(partition), self.router.epoch(partition)
        return (
            known
            if copy is None
            else max(known, copy.core.state.chain.state.led, copy.core.state.chain.state.epoch.number)
        )

    def readable(self, partition: str) -> Copy | None:
        """Return this node's copy, active or not, if it may be read: it has read all that the log had when it came
        (back), it has no error, and the node is not offline (Q1, P11)."""
        copy = self.copies.get(partition)
        if copy is None or copy.error is not None or copy.core.state.role in INCOMPLETE or self.router.offline():
            return None
        return copy

    def ask(
        self,
        partition: str,
        frame: frames.Request,
        until: float | None = None,
        site: str | None = None,
        open_: OpenCommit | None = None,
    ) -> frames.Reply | None:
        """Ask the active node; None if that is this very node by now. `site`, `open_`: see `Router.ask`."""
        self.check_open()
        if type(frame) in _BEGINNING:
            self.check_level()
        deadline = self.call_of(partition) if until is None else max(0.0, until - time.monotonic())
        try:
            return self.router.ask(partition, frame, deadline, lambda: self.serving(partition) is not None, site, open_)
        except LocalError:
            return None

    def patiently(self, partition: str, attempt: Callable[[], T]) -> T:
        """Return the result of `attempt`; it is called again while it meets objects that a transaction in doubt holds
        there."""
        until = time.monotonic() + self.read_of(partition)
        while True:
            try:
                return attempt()
            except LockedError:
                if time.monotonic() >= until or self.closed:
                    raise
                time.sleep(LOCKED_S)

    def wait(self, partition: str, begin: Callable[[Waiter], object]) -> res.Result:
        """Begin something that a partition answers once, and wait for the answer."""
        waiter = Waiter()
        begin(waiter)
        return waiter.wait(self.call_of(partition)) or res.Unknown("no answer in time")


class Waiter:
    """A `Waiter` waits on the calling thread for one result."""

    __slots__ = ("_lock", "result")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self.result: res.Result | None = None

    def __call__(self, result: res.Result) -> None:
        self.result = result
        self._lock.release()

    def settled(self) -> bool:
        """Has the result come?"""
        return self.result is not None

    def wait(self, timeout_s: float) -> res.Result | None:
        """Return the result, or None if it did not come in time."""
        if self.result is None:
            self._lock.acquire(timeout=max(0.0, timeout_s))
        return self.result
