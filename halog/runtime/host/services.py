"""A host and the features of its node are given this before there is a host."""

from __future__ import annotations

import threading

from halog.core import effects as fx, events as ev
from halog.core.ids import Member
from halog.core.table.table import PartitionTable
from halog.ports import Coordinator
from halog.runtime.replica.driver import Copy
from halog.runtime.rpc.router import Router


class NodeContext:
    """Says which node this is, at which site, with which coordinator, and whether it closes."""

    def __init__(self, me: Member, site: str, coordinator: Coordinator) -> None:
        self.me = me
        self.site = site
        self.coordinator = coordinator
        self.closing = threading.Event()

    def pause(self, seconds: float) -> bool:
        """Wait, unless the node closes; say whether it does."""
        return self.closing.wait(seconds)


class TableFeed:
    """Brings what is read of partition tables to the router, to the copies hosted here, and to whoever places them."""

    def __init__(self, router: Router, copies: dict[str, Copy]) -> None:
        self.router = router
        self.copies = copies
        self.stirred = threading.Event()
        """Set whenever a table was read; whoever places copies clears it."""

    def seen(self, name: str, version: int, table: PartitionTable) -> None:
        """Take a table that was read or announced to whoever goes by it."""
        self.router.table_seen(name, version, table)
        copy = self.copies.get(name)
        if copy is not None:
            copy.post(ev.TableSeen(version, table))
        self.stirred.set()


class CopyRequests:
    """Takes what copies ask of features. This one is of a node that has none of them."""

    def ask_vote(self, copy: Copy, effect: fx.AskVote) -> None:
        """Ask for the vote of a site; this node asks no site."""

    def merge_due(self, copy: Copy, effect: fx.MergeDue) -> None:
        """Open an epoch with a merge; nothing in this node asks for one."""
