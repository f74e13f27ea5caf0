"""Copies that went offline with their node are restored once it is back in the quorums of its zones (Q1)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from halog.core.roles import Role
from halog.errors import HalogError

if TYPE_CHECKING:
    from halog.runtime.host.host import Host
    from halog.runtime.replica.driver import Copy

logger = logging.getLogger("halog.zones")


class OfflineCopies:
    """`OfflineCopies` restores those of one host. `offline` says why the node is offline; "": it is not."""

    def __init__(self, host: Host, offline: Callable[[], str]) -> None:
        self._host = host
        self._offline = offline
        self._rebuilt: list[Copy] = []
        """Copies that others are to take the place of."""

    def restore(self) -> None:
        """Look at all copies once, and restore those that are offline though their node is not."""
        host = self._host
        self._rebuilt = [copy for copy in self._rebuilt if host.copies.get(copy.name) is copy]
        for copy in list(host.copies.values()):
            if copy.core.state.role is Role.OFFLINE and copy not in self._rebuilt and not self._offline():
                try:
                    self._restore(copy)
                except HalogError as e:
                    logger.warning("partition %s cannot be restored yet: %s", copy.name, e)
                except Exception:
                    logger.exception("partition %s cannot be restored yet", copy.name)

    def _restore(self, copy: Copy) -> None:
        """Restore it from where it stood; from a snapshot, if it was offline for longer than the log is kept."""
        start, end = self._host.log.bounds(copy.tp)
        if start <= copy.core.state.next_offset:
            copy.restore(end)
        else:
            self._rebuilt.append(copy)
            self._host.lost(copy, f"the log was trimmed to {start} while this node was offline")
