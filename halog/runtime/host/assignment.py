"""This module decides which partitions this node has a copy of: it opens them, rebuilds them, and lets go of those that
moved away (P12).

The partition tables say it (`PartitionTable.hosts`), and they change while the node runs. A copy is dropped, with its
data, only when the newest table known here names this node no more: the log has what the others need. A copy that
stopped with an error is kept as it is, since it may hold what the log has lost. This module decides nothing else.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from halog.core import events as ev
from halog.core.log.chain import ChainState
from halog.core.log.outcomes import Outcomes
from halog.core.roles import CLAIMANT, Role
from halog.core.state.tail import Tail
from halog.core.table import resync
from halog.core.table.migration import copy_rate
from halog.core.table.table import PartitionTable
from halog.errors import DivergedError, LaterRecordError, LogError
from halog.metadata.partition_tables import change_table
from halog.runtime.host.throttle import NotWantedError
from halog.runtime.replica.driver import Copy
from halog.runtime.replica.host_port import CopyPolicy
from halog.runtime.replica.recovery import confirmed, lost
from halog.runtime.store.object_table import StoredPosition

if TYPE_CHECKING:
    from halog.runtime.host.host import Host

logger = logging.getLogger("halog.host")

NEVER = 1 << 62
"""An end no log reaches: a copy that is not to be loaded waits for it."""

REBUILD_S = 0.2
"""Before a copy is rebuilt, or opened again, and between attempts."""

_KEPT = CLAIMANT | {Role.FAILED}
"""What a copy does that is not let go of now: it is about to lead, or its rebuild decides what becomes of it."""
_UNSETTLED = (Role.LOADING, Role.FAILED)

LOOK_S = 0.5
"""How often all tables are looked at, if nothing tells of a change: a copy that is still leading, or could not be
opened, is met again."""


def is_host(table: PartitionTable, node: str) -> bool:
    """Does the table name this node, for now or for later?"""
    return node in table.hosts or node in table.node_list


def may_host(table: PartitionTable, node: str) -> bool:
    """Is it to have a copy now? Not where the application places the partition and this run of the node has not
    enabled it (P8), and not while its copy is to be dropped and made anew (P12)."""
    return is_host(table, node) and node != table.away and (table.admitted is None or node in table.admitted)


class CopyPlacement:
    """A host's `CopyPlacement` opens its copies, and lets go of them."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._stirred = host.tables.stirred
        self._begun = threading.Event()
        self._lost_at: dict[str, int] = {}
        """Partition → the offset its copy was rebuilt for last."""
        self._let_go_at: dict[str, float] = {}
        """Partition → when its copy was dropped, because it moved away."""
        self._rebuilt: set[str] = set()
        """Partitions whose copy is being rebuilt, or made slowly, on a thread of its own."""

    # --- all of them ---

    def begin(self, tables: Sequence[tuple[int, PartitionTable]]) -> None:
        """Begin to host what these tables place here, and delete what is left of copies that they do not."""
        me = self._host.me.node
        self._open_all([vt for vt in tables if may_host(vt[1], me)])
        for version, table in tables:
            if not is_host(table, me):
                self._delete_left(version, table)
        self._begun.set()

    def _open_all(self, tables: Sequence[tuple[int, PartitionTable]]) -> None:
        """Open several at a time, of each policy as many as it says (P4): each waits for the log's answers more than it
        works. One that may take its time keeps none of the others waiting."""
        slow = [vt for vt in tables if copy_rate(vt[1], self._host.me.node)]
        for version, table in slow:
            self._rebuilt.add(table.name)
            self._host.spawn(f"copy-{table.name}", partial(self._open_slowly, version, table))
        by_policy: dict[str, list[tuple[int, PartitionTable]]] = {}
        for vt in tables:
            if vt not in slow:
                by_policy.setdefault(vt[1].policy, []).append(vt)
        with ExitStack() as pools:
            opened = []
            for policy, its in by_policy.items():
                threads = self._host.policies.get(policy, CopyPolicy()).copy_threads
                pool = pools.enter_context(ThreadPoolExecutor(threads, thread_name_prefix=f"halog-host-{policy}"))
                opened += [pool.submit(self._open, *vt) for vt in its]
            for copy in opened:
                copy.result()

    def _open_slowly(self, version: int, table: PartitionTable) -> None:
        """Open one on a thread of its own, until the copy follows the log like any other. What fails is begun anew
        later."""
        host = self._host
        try:
            with host.pacing.held(table, Copy(host, version, table)):
                copy = self._open(version, table, slowly=True)
                self._rebuilt.discard(table.name)  # from here on it is hosted, and may be let go of
                if copy is not None:
                    host.pacing.wait_until_fast(copy)
        except NotWantedError as e:
            logger.info("partition %s: %s", table.name, e)
        except Exception as e:
            logger.warning("partition %s cannot be copied yet: %s", table.name, e)
            host.pause(REBUILD_S)
        finally:
            self._rebuilt.discard(table.name)

    def _delete_left(self, version: int, table: PartitionTable) -> None:
        """The partition moved away while this node was down. A copy of what the log has lost is kept, and told."""
        copy = Copy(self._host, version, table)
        stored = copy.objects.load_position()
        if stored is None:
            return
        if (error := lost(self._host.log, copy, stored, table.log_id)) is not None:
            logger.error("partition %s: hosted here no more, and its copy is kept: %s", table.name, error)
            return
        logger.info("partition %s: hosted here no more; its copy is deleted", table.name)
        copy.objects.drop()

    def unsettled(self) -> bool:
        """Is any copy still being read, made or rebuilt, so that nobody knows what becomes of it? One that has failed
        is about to be rebuilt, or to say why it is not."""
        copies = list(self._host.copies.values())
        return bool(self._rebuilt) or any(c.error is None and c.core.state.role in _UNSETTLED for c in copies)

    def stir(self) -> None:
        """Look soon: a table changed."""
        self._stirred.set()

    def turn(self, closing: threading.Event) -> None:
        """Take one look at all tables."""
        self._stirred.wait(LOOK_S)
        self._stirred.clear()
        if closing.is_set() or not self._begun.is_set():
            return
        host, missing = self._host, []
        me = host.me.node
        for name, (version, table) in list(host.router.tables.items()):
            copy = host.copies.get(name)
            if may_host(table, me):
                if copy is None and name not in self._rebuilt and self._is_quiet(name):
                    missing.append((version, table))
            elif table.away == me and name not in self._rebuilt:
                self._empty(copy, version, table)
            elif copy is not None and not is_host(table, me):
                self._let_go(copy, version)
        self._open_all(missing)

    def _is_quiet(self, name: str) -> bool:
        """Nobody handles what was read for a copy dropped before: a new one of the partition may follow the log."""
        return time.monotonic() - self._let_go_at.get(name, -REBUILD_S) >= REBUILD_S

    # --- one of them ---

    def _open(
        self, version: int, table: PartitionTable, *, slowly: bool = False, tail: Tail | None = None
    ) -> Copy | None:
        """Begin to host a partition: warm from the store, else from the state topic, then the log. None: it is kept as
        it is. `tail`: what a copy before it held, in this run of the node; this one is made anew, whatever the store
        has."""
        copy = Copy(self._host, version, table)
        stored = copy.objects.load_position()
        if stored is not None and (error := lost(self._host.log, copy, stored, table.log_id)) is not None:
            self._keep_as_it_is(copy, table, stored, error, tail)
            return None
        try:
            return self._begin(copy, table, slowly=slowly, tail=tail)
        except LaterRecordError as later:  # nothing is damaged, and no other attempt of this version reads more
            self._host.by_tp.pop(copy.tp, None)
            self._keep_as_it_is(copy, table, copy.objects.load_position(), later, tail)
            return None

    def _begin(self, copy: Copy, table: PartitionTable, *, slowly: bool, tail: Tail | None) -> Copy:
        """Begin to host it with this copy. LaterRecordError if a later version of halog wrote what it needs."""
        host = self._host
        state, next_offset, outcomes, last_offset = self._position(copy, table, anew=tail is not None)
        end = host.log.bounds(copy.tp)[1]
        if slowly:
            host.pacing.follow_slowly(copy)
        host.by_tp[copy.tp] = copy
        copy.start(state, next_offset, outcomes, last_offset, end, tail)
        host.copies[copy.name] = copy
        with copy.lock:  # whoever publishes another view meanwhile posts it behind this one
            copy.post(ev.AliveChanged(host.members.alive, "", host.members.answering))
        known = host.router.tables.get(copy.name)
        if known is not None:
            copy.post(ev.TableSeen(*known))
        host.levels.tell(copy)
        return copy

    def _keep_as_it_is(
        self, copy: Copy, table: PartitionTable, stored: StoredPosition | None, error: LogError, tail: Tail | None
    ) -> None:
        """Keep it as it is: it is hosted, but takes no part in anything, and its status has the reason. What a copy
        before it held may be nowhere else."""
        later = isinstance(error, LaterRecordError)
        if stored is None:
            copy.start(table.beginning(self._host.site), 0, Outcomes(), -1, NEVER, tail, unread=later)
        else:
            outcomes = copy.objects.load_outcomes()
            copy.start(stored.state, stored.next_offset, outcomes, stored.last_offset, NEVER, tail, unread=later)
        self._host.copies[copy.name] = copy
        copy.fail(error)

    def _position(self, copy: Copy, table: PartitionTable, *, anew: bool) -> tuple[ChainState, int, Outcomes, int]:
        """Return where to go on: the store's position if the log still confirms it, and the copy is not made `anew`;
        else what a snapshot holds. What the store had is dropped then, once that can be read."""
        host, stored = self._host, copy.objects.load_position()
        if stored is not None and not anew and confirmed(host.log, copy.tp, stored):
            return stored.state, stored.next_offset, copy.objects.load_outcomes(), stored.last_offset
        if stored is not None and not anew:
            logger.warning("partition %s: the local store is not of this log; rebuilding it", copy.name)
        empty = table.beginning(host.site)
        return host.snapshots.restore(copy, table.policy, empty, partial(host.pacing.rows, copy.name))

    def _let_go(self, copy: Copy, version: int) -> None:
        """Let go of it: the table names this node no more."""
        if self._drop(copy, version, lambda table: not is_host(table, self._host.me.node)):
            logger.info("partition %s: hosted here no more; its copy is deleted", copy.name)

    def _empty(self, copy: Copy | None, version: int, table: PartitionTable) -> None:
        """This copy is to be made anew: it is dropped, then the znode says so, then it is opened like any other."""
        host, me = self._host, self._host.me.node
        if copy is None:  # this node was restarted meanwhile, or did not get further
            Copy(host, version, table).objects.drop()
        elif not self._drop(copy, version, lambda now: now.away == me):
            return
        set_ = change_table(host.coordinator, table.name, lambda now: resync.emptied(now, me))
        logger.info("partition %s: its copy is made anew (%s)", table.name, set_.resync)
        self._stirred.set()

    def _drop(self, copy: Copy, version: int, still: Callable[[PartitionTable], bool]) -> bool:
        """Delete a copy with its data, unless the newest table says otherwise. An epoch of its own that is still under
        way ends first. Says whether it was dropped."""
        host = self._host
        with copy.lock:
            core = copy.core
            if (
                copy.error is not None
                or core.leading is not None
                or core.state.role in _KEPT
                or core.state.version < version
            ):
                return False
            if not still(core.state.table):  # wished otherwise since that look at the tables
                return False
            copy.ended = True
            host.copies.pop(copy.name, None)
            host.by_tp.pop(copy.tp, None)
            host.unfollow(copy.tp)
            copy.objects.drop()
        copy.leave()
        self._lost_at.pop(copy.name, None)
        self._let_go_at[copy.name] = time.monotonic()
        return True

    # --- one that cannot go on ---

    def lost(self, copy: Copy, why: str) -> None:
        """The copy cannot go on from what it holds: drop it and rebuild it from the state topic and the log. If that
        led to the same place before, the log is what is wrong."""
        at = copy.core.state.next_offset
        if self._lost_at.get(copy.name) == at:
            copy.error = DivergedError(f"at offset {at}, also when rebuilt: {why}", partition=copy.name, offset=at)
            logger.error("partition %s stops: %s", copy.name, copy.error)
            return
        self._lost_at[copy.name] = at
        self._rebuilt.add(copy.name)
        self._host.spawn(f"rebuild-{copy.name}", lambda: self._rebuild(copy))

    def _rebuild(self, copy: Copy) -> None:
        """Rebuild it until it is there again: log or coordinator may be away for now."""
        while not self._host.pause(REBUILD_S):
            try:
                if self._rebuild_once(copy):
                    break
            except Exception as e:
                logger.warning("partition %s cannot be rebuilt yet: %s", copy.name, e)
        self._rebuilt.discard(copy.name)

    def _rebuild_once(self, copy: Copy) -> bool:
        host = self._host
        copy.save()
        if (error := lost(host.log, copy, copy.objects.load_position(), copy.core.state.table.log_id)) is not None:
            copy.fail(error)
            return True
        with copy.lock:
            host.copies.pop(copy.name, None)
            host.by_tp.pop(copy.tp, None)
            copy.objects.let_go()
        version, table = host.router.tables[copy.name]
        if may_host(table, host.me.node):
            self._open(version, table, tail=copy.core.state.tail)  # drops what is stored once it has loaded the rest
        else:
            copy.objects.drop()
        return True
