"""Finishes a planned switch whose command died: this site was given a partition, and nobody takes it (M5).

The site that served has said so in its table, for good: its nodes end their epoch, and wait for this site. The node
that mirrors does the rest of the command, catching up and serving, once it has waited longer than a command takes.
Nothing is lost by it, and nothing parts: it is `halog site promote` without `--may-fork`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from halog.core.table.tell import Tell
from halog.errors import HalogError
from halog.events import SITE_TAKEN_OVER
from halog.metadata.mirrors import standing
from halog.metadata.partition_tables import its_table
from halog.ports import UnknownResult
from halog.runtime.sites.site_paces import PACES, SitePaces
from halog.runtime.sites.switchover import Switchover, SwitchResult
from halog.runtime.support.adapters import SiteAccess

if TYPE_CHECKING:
    from halog.runtime.host.host import Host
    from halog.runtime.replica.driver import Copy
    from halog.runtime.sites.mirror_assignment import MirrorDuties

logger = logging.getLogger("halog.mirror")

LEVEL_S: Final = 60.0
"""All partitions together have so long; what is not level by then is tried again later."""


class SwitchoverRecovery:
    """A `SwitchoverRecovery` is one host's, and has one thread."""

    def __init__(
        self,
        host: Host,
        assignments: MirrorDuties,
        reach: Callable[[str], SiteAccess],
        homes: Collection[str],
        paces: SitePaces = PACES,
    ) -> None:
        """Take `homes`: the policies that have one."""
        self._host = host
        self._assignments = assignments
        self._reach = reach
        self._homes = homes
        self._paces = paces
        self._since: dict[str, float] = {}
        """By partition: since when it has been given to this site, as far as this node has seen."""

    def turn(self) -> None:
        """Look once at what is mirrored here."""
        mine = [c for c in list(self._host.copies.values()) if c.core.state.table.policy in self._homes]
        mine = [c for c in mine if self._assignments.is_wanted(c)]
        for name in self._since.keys() - {c.name for c in mine}:
            del self._since[name]
        for site in dict.fromkeys(c.core.state.table.owner for c in mine):
            try:
                self._look(site, [c for c in mine if c.core.state.table.owner == site])
            except (HalogError, UnknownResult) as e:
                logger.debug("it is not known whether site %s has given anything to this one: %s", site, e)
        self._host.pause(self._paces.given_look_s)

    def _look(self, site: str, copies: list[Copy]) -> None:
        remote, now = self._reach(site), time.monotonic()
        try:
            tables = {c.name: its_table(remote.coordinator, c.core.state.table) for c in copies}
        finally:
            remote.close()
        due = {}
        for copy in copies:
            there = tables[copy.name]
            if there is None or there.owner != self._host.site or self._has_parted(copy):
                self._since.pop(copy.name, None)
            elif now - self._since.setdefault(copy.name, now) >= self._paces.given_s:
                self._since[copy.name] = now
                due[copy.name] = copy
        if due:
            self.take(due)

    def _has_parted(self, copy: Copy) -> bool:
        """Has the partition parted? Then there is nothing to catch up with: an operator decides."""
        now = standing(self._host.coordinator, copy.name)
        return now is not None and bool(now.parted) and now.site == copy.core.state.table.owner

    def take(self, due: dict[str, Copy]) -> None:
        """Serve them here, once this site has all of them."""

        def done(switch: SwitchResult) -> None:
            if switch.taken_over_from:
                why = "it was given to this site, and whoever asked for that did not end it"
                more = {"site": switch.taken_over_from, "lacks": switch.lacks}
                self._host.telling.told(due[switch.partition], Tell(SITE_TAKEN_OVER, "", why, more))

        logger.warning("partitions %s were given to this site, and nobody took them: this node does so now", list(due))
        try:
            host = self._host
            Switchover(host.coordinator, host.site, self._reach, LEVEL_S, host.pause).promote(
                due, asks=False, done=done
            )
        except (HalogError, UnknownResult) as e:
            logger.warning("partitions %s are not taken yet: %s", list(due), e)
