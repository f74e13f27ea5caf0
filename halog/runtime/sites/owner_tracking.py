"""A site that mirrors one which serves no more goes on with the one that does (M5, P5).

With two sites there is nothing to do: whoever is taken over from is told. A third one, kept for disasters, learns it in
two ways: the log that it mirrors says, where it ends, that it was given away; or nobody answers at the other site, and
another one says that it serves this very history. What that one lacks of what this one has is found before this one's
log is given to it, as ever, and then the histories have parted (`halog.runtime.sites.relinquish`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from halog.core.table.table import PartitionTable
from halog.errors import HalogError
from halog.metadata.partition_tables import change_table, serves
from halog.runtime.support.adapters import Remote

if TYPE_CHECKING:
    from halog.runtime.host.host import Host
    from halog.runtime.replica.driver import Copy

logger = logging.getLogger("halog.mirror")

GONE_S = 10.0
"""For a site that does not answer: servers that are started again do by then."""

AGAIN_S = 30.0
"""Between looks whether anybody else serves; each may wait for a site that does not answer either."""


SOON_S = 2.0
"""Between questions whether the site that a log was given to serves by now: it does in about a second."""


class Succession:
    """To one site, called `site`, as one that mirrors it knows it."""

    def __init__(self, host: Host, site: str, reach: Callable[[str], Remote], others: Collection[str]) -> None:
        self.site = site
        self.reach = reach
        self._host = host
        self._others = [other for other in others if other != site]
        self._there = self._looked_at = time.monotonic()
        self._asked_at: dict[str, float] = {}

    def answers(self) -> None:
        """The other site is there, or is not asked for anything."""
        self._there = time.monotonic()

    def is_silent(self, partitions: Collection[str]) -> None:
        """It is not. When that has been so for long, others are asked whether they serve these."""
        now = time.monotonic()
        if now - self._there < GONE_S or (self._looked_at > self._there and now - self._looked_at < AGAIN_S):
            return
        for other in self._others:
            with suppress(HalogError):
                self._ask(other, partitions, f"site {self.site} cannot be reached")
        self._looked_at = time.monotonic()

    def is_given(self, copy: Copy, to: str) -> bool:
        """The other site's log ends with being given to that one, which is mirrored from now on if it serves."""
        now = time.monotonic()
        if to not in self._others or now - self._asked_at.get(copy.name, -SOON_S) < SOON_S:
            return False
        self._asked_at[copy.name] = now
        try:
            return self._ask(to, [copy.name], f"site {self.site} has given its log to that one")
        except HalogError as e:
            logger.warning("partition %s is site %s's, which cannot be mirrored from yet: %s", copy.name, to, e)
            return False

    def _ask(self, other: str, partitions: Collection[str], why: str) -> bool:
        """Is any of them followed?"""
        remote = self.reach(other)
        try:
            copies = [c for name in partitions if (c := self._host.copies.get(name)) is not None]
            served = [c for c in copies if serves(remote.coordinator, c.core.state.table)]
        finally:
            remote.close()
        for copy in served:
            change_table(self._host.coordinator, copy.name, lambda table: self._following(table, other))
            logger.warning("partition %s is mirrored from site %s from now on: %s", copy.name, other, why)
        return bool(served)

    def _following(self, table: PartitionTable, other: str) -> PartitionTable:
        return msgspec.structs.replace(table, owner=other) if table.owner == self.site else table
