"""Makes a site that mirrors one which serves no more go on with the one that does (M5, P5).

With two sites there is nothing to do: the site that is taken over from is told. A third one, kept for disasters, learns
it in two ways. The log that it mirrors ends with the record that it was given away. Or the other site does not answer,
and another one says that it serves this very history. What that one lacks of what this one has is found before this
one's log is given to it, as always; then the histories have parted (`halog.runtime.sites.relinquish`).
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
from halog.runtime.sites.site_paces import PACES, SitePaces
from halog.runtime.support.adapters import SiteAccess

if TYPE_CHECKING:
    from halog.runtime.host.host import Host
    from halog.runtime.replica.driver import Copy

logger = logging.getLogger("halog.mirror")

AGAIN_S = 30.0
"""Pause between looks whether another site serves; each may wait for a site that does not answer either."""


class OwnerTracker:
    """An `OwnerTracker` finds who serves in the place of one site, called `site`, which this one mirrors."""

    def __init__(
        self,
        host: Host,
        site: str,
        reach: Callable[[str], SiteAccess],
        others: Collection[str],
        paces: SitePaces = PACES,
    ) -> None:
        self.site = site
        self.reach = reach
        self._host = host
        self._paces = paces
        self._others = [other for other in others if other != site]
        self._there = self._looked_at = time.monotonic()
        self._asked_at: dict[str, float] = {}

    def answers(self) -> None:
        """Note that the other site answers, or is not asked for anything."""
        self._there = time.monotonic()

    def is_silent(self, partitions: Collection[str]) -> None:
        """Note that it does not answer. If that lasts, other sites are asked whether they serve these partitions."""
        now, looked_at = time.monotonic(), self._looked_at
        if now - self._there < self._paces.gone_s or (looked_at > self._there and now - looked_at < AGAIN_S):
            return
        for other in self._others:
            with suppress(HalogError):
                self._ask(other, partitions, f"site {self.site} cannot be reached")
        self._looked_at = time.monotonic()

    def is_given(self, copy: Copy, to: str) -> bool:
        """Follow site `to`, which the other site's log was given to, if it serves; return whether it does."""
        now, pause_s = time.monotonic(), self._paces.served_s
        if to not in self._others or now - self._asked_at.get(copy.name, -pause_s) < pause_s:
            return False
        self._asked_at[copy.name] = now
        try:
            return self._ask(to, [copy.name], f"site {self.site} has given its log to that one")
        except HalogError as e:
            logger.warning("partition %s belongs to site %s, which cannot be mirrored yet: %s", copy.name, to, e)
            return False

    def _ask(self, other: str, partitions: Collection[str], why: str) -> bool:
        """Follow site `other` in those partitions that it serves; return whether there are any."""
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
