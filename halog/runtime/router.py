"""Who is active for a partition, and how to reach it: waits, retries and follows hand-overs until a deadline (R5).

The router knows the partition tables (watched in the coordinator) and the registered nodes' addresses. A request that
got no answer is repeated only where repeating is harmless: every request is, since commits carry their transaction id.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from halog.core.table import PartitionTable
from halog.errors import (
    AvailabilityError,
    ClosedError,
    DeadlineError,
    HalogError,
    NotActiveError,
    OutcomeUnknownError,
    PartitionUnavailableError,
    UnreachableError,
    ZoneQuorumError,
)
from halog.ports import Channel
from halog.runtime import frames
from halog.runtime.failures import from_frame
from halog.runtime.members import NodeInfo
from halog.runtime.results import closed_meanwhile, no_quorum, perhaps_done

RETRY_S = 0.01
"""Pause between attempts when nothing tells us of a change: an election takes a few tens of ms."""


class Router:
    """Shared by all threads of a node."""

    def __init__(self, me: str, channel: Channel, attempt_s: float) -> None:
        self.me, self.channel, self.attempt_s = me, channel, attempt_s
        self.changed = threading.Condition()
        self.tables: dict[str, tuple[int, PartitionTable]] = {}
        self.nodes: dict[str, NodeInfo] = {}
        self._last: dict[str, NodeInfo] = {}
        """The last registration of every node, also of those whose session ended: they may serve on."""
        self.seen: Callable[[str, int, PartitionTable], None] = lambda name, version, table: None
        """Told of every table that is not older than the one before."""
        self.offline: Callable[[], str] = lambda: ""
        """Why this very node is offline, if it is (Q1): then nothing is asked for in its name."""

    # --- knowledge ---

    def table_seen(self, name: str, version: int, table: PartitionTable) -> None:
        """A partition's znode was read: requests waiting at an active node that was found dead fail now, long before
        its session ends (a stopped process keeps its connections open)."""
        dead: NodeInfo | None = None
        with self.changed:
            known = self.tables.get(name)
            if known is None or version >= known[0]:
                self.tables[name] = (version, table)
                self.seen(name, version, table)
                if known is not None and known[1].active not in (None, table.active):
                    dead = self._dropped(known[1], table)
                self.changed.notify_all()
        if dead is not None:
            self.channel.drop(dead.address)

    def _dropped(self, before: PartitionTable, now: PartitionTable) -> NodeInfo | None:
        """The former active node, if it is not in the node list any more: after a hand-over it would be."""
        assert before.active is not None
        return None if before.active.node in now.node_list else self.nodes.get(before.active.node)

    def nodes_seen(self, nodes: dict[str, NodeInfo]) -> None:
        """The registered nodes changed: requests waiting at one that is gone fail now."""
        with self.changed:
            gone = {i.address for i in self.nodes.values()} - {i.address for i in nodes.values()}
            self.nodes = nodes
            self._last.update(nodes)
            self.changed.notify_all()
        for address in gone:
            self.channel.drop(address)

    def nudge(self) -> None:
        """Something that waiting callers should look at has changed."""
        with self.changed:
            self.changed.notify_all()

    def active(self, partition: str) -> str | None:
        """The name of the node that should be active."""
        known = self.tables.get(partition)
        if known is None or known[1].active is None:
            return None
        return known[1].active.node

    # --- asking ---

    def ask(self, partition: str, frame: frames.Request, deadline_s: float, local: Callable[[], bool]) -> frames.Reply:
        """Send `frame` to the active node until one answers it; raises what the node answered, or when time is up.
        Raises LocalError as soon as `local()` says this very node is active; OutcomeUnknownError if an earlier attempt
        may have been acted on and there will be no other, because the node is closed. Where a refusal came behind an
        attempt that may have been, or may still be acted on, its evidence says `asked_before`."""
        until = time.monotonic() + deadline_s
        hint: str | None = None
        unknown: HalogError | None = None
        refused: float | None = None
        while True:
            self._check_online(partition, unknown)
            if local():
                raise LocalError("this node is active itself")
            target = hint or self.active(partition)
            seen = self._stamp(partition)
            try:
                return self._attempt(target, self._current(partition, frame), until, before=unknown is not None)
            except NotActiveError as e:
                hint = self._fresh_hint(e, target)
            except OutcomeUnknownError as e:
                if e.evidence.get("expired"):  # nobody will ever know more
                    raise
                hint, unknown = None, e
            except ZoneQuorumError as e:
                hint, refused = None, self._refused(partition, refused, e, unknown)
            except (UnreachableError, DeadlineError, ClosedError) as e:
                hint, unknown = None, self._unanswered(partition, e, unknown)
            if time.monotonic() >= until:
                raise self._too_late(partition, deadline_s, unknown)
            if hint is None:
                self._pause(partition, seen, until)

    def _unanswered(self, partition: str, error: HalogError, unknown: HalogError | None) -> HalogError | None:
        """Why it may have been acted on, if so. Raises if there will be no other attempt."""
        if not isinstance(error, ClosedError):
            return error if error.evidence.get("sent", True) else unknown
        if unknown is None:
            raise error
        raise closed_meanwhile(partition) from error

    def _check_online(self, partition: str, unknown: HalogError | None) -> None:
        if why := self.offline():
            error = no_quorum(self.me, why)
            raise error if unknown is None else perhaps_done(partition, error)
        known = self.tables.get(partition)
        if known is not None and known[1].owner and known[1].active is None and unknown is None:
            raise PartitionUnavailableError(
                f"partition {partition} is served by site {known[1].owner}, and only mirrored here: use it there, read "
                'it here with read="local", or take it over with `halog site promote`',
                partition=partition,
                site=known[1].owner,
            )

    def _refused(
        self, partition: str, first: float | None, error: ZoneQuorumError, unknown: HalogError | None
    ) -> float:
        """The active node is offline, and said so at `first`. Others may be about to take over, in less than an
        attempt's time; if nobody has in twice that, nobody will."""
        now = time.monotonic()
        if first is not None and now - first >= 2 * self.attempt_s:
            raise error if unknown is None else perhaps_done(partition, error)
        return now if first is None else first

    def epoch(self, partition: str) -> int:
        """The highest epoch number known of a partition."""
        known = self.tables.get(partition)
        return 0 if known is None else known[1].epoch.number

    def _current(self, partition: str, frame: frames.Request) -> frames.Request:
        """A commit says what its sender knows: an active node that was replaced must not judge a second attempt."""
        if isinstance(frame, frames.Submit | frames.Prepare):
            frame.epoch = self.epoch(partition)
        return frame

    def _fresh_hint(self, e: NotActiveError, asked: str | None) -> str | None:
        hint = e.evidence.get("active")
        return hint if isinstance(hint, str) and hint != asked and hint in self.nodes else None

    def _stamp(self, partition: str) -> int:
        known = self.tables.get(partition)
        return -1 if known is None else known[0]

    def _pause(self, partition: str, seen: int, until: float) -> None:
        """Wait for a newer table, but not for long."""
        with self.changed:
            left = min(RETRY_S, until - time.monotonic())
            self.changed.wait_for(lambda: self._stamp(partition) != seen, max(0.0, left))

    def _attempt(self, target: str | None, frame: frames.Request, until: float, *, before: bool) -> frames.Reply:
        try:
            return self._once(target, frames.encode(frame), until)
        except HalogError as error:
            if before:
                error.evidence["asked_before"] = True
            raise

    def _once(self, target: str | None, data: bytes, until: float) -> frames.Reply:
        if target is None or target == self.me:
            raise NotActiveError("no other node is known to be active")
        info = self._last.get(target)
        if info is None:
            raise UnreachableError(f"node {target} was never registered", sent=False)
        timeout = max(0.001, min(self.attempt_s, until - time.monotonic()))
        reply = frames.decode_reply(self.channel.request(info.address, data, timeout))
        if isinstance(reply, frames.Failed):
            raise from_frame(reply)
        return reply

    def _too_late(self, partition: str, deadline_s: float, unknown: HalogError | None) -> HalogError:
        if unknown is not None:
            return OutcomeUnknownError(
                f"partition {partition} gave no answer within {deadline_s:g} s; ask again with the same transaction id",
                partition=partition,
            )
        return PartitionUnavailableError(
            f"no node became active for partition {partition} within {deadline_s:g} s; see `halog partition show`",
            partition=partition,
            active=self.active(partition),
        )

    def request(self, node: str, frame: frames.Request, timeout_s: float) -> frames.Reply:
        """Ask one named node, once."""
        info = self.nodes.get(node)
        if info is None:
            raise UnreachableError(f"node {node} is not registered; see `halog node list`", node=node, sent=False)
        reply = frames.decode_reply(self.channel.request(info.address, frames.encode(frame), timeout_s))
        if isinstance(reply, frames.Failed):
            raise from_frame(reply)
        return reply


class LocalError(AvailabilityError):
    """Not an error: the caller's own node is active; do it here."""
