"""Reports that two sites have both gone on with a partition, and changes nothing (M1). The node that is active here, or
mirrors the partition, looks for it.

    parted/<partition>   JSON: `Split`, in the coordinator of each of the sites that see it, as long as it lasts

The active node reports it if both sites serve the partition, or if the other one has stopped and keeps what this one
lacks. If this site has stopped, the node that would mirror reports it (`halog.runtime.sites.mirror_link`). What each
side has done is counted by `halog.runtime.sites.divergence_count`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from halog.core import tolerant
from halog.core.table.table import PartitionTable
from halog.core.table.tell import Tell
from halog.core.tolerant import TolerantDecoder, TolerantStruct, carrying
from halog.errors import HalogError, VersionError
from halog.events import PARTED
from halog.metadata import branch_holds
from halog.metadata.mirrors import followed, standing
from halog.metadata.partition_tables import its_table
from halog.metadata.znode_format import ZnodeFormat
from halog.ports import Coordinator, UnknownResult
from halog.runtime.sites.site_paces import PACES, SitePaces
from halog.runtime.support.adapters import SiteAccess

if TYPE_CHECKING:
    from halog.runtime.host.host import Host
    from halog.runtime.replica.driver import Copy

logger = logging.getLogger("halog.mirror")


class ForkPoint(TolerantStruct, frozen=True):
    """A `ForkPoint` is the last record of both histories: the epoch that wrote it, by number and site, and its lsn."""

    epoch: int
    site: str
    lsn: int


class BranchCount(TolerantStruct, frozen=True):
    """A `BranchCount` says what one site has done behind the fork, up to `lsn`, as it was known at `at_ms` (since
    1970)."""

    objects: int
    """How many objects it has touched."""
    at_least: bool
    """Is there more than is counted?"""
    lsn: int
    at_ms: int


class Split(TolerantStruct, frozen=True):
    """A `Split` is what is reported of a partition that another site has gone on with, too. `fork`, `here` and `there`
    are known a moment later, all together."""

    site: str
    by: str
    since_ms: int
    fork: ForkPoint | None = None
    here: BranchCount | None = None
    there: BranchCount | None = None
    why: str = ""
    """Says why the counts of the branches are missing, or are not renewed any more."""


def parted(coordinator: Coordinator, tables: Iterable[PartitionTable]) -> dict[str, Split]:
    """Return the partitions whose history has parted from another site's, each with its report. Both sites serve them,
    or only one still does, and the other one has what that one lacks."""
    found, named = {}, set(coordinator.children("parted"))
    for table in tables:
        now = told(coordinator, table.name) if table.name in named else None
        if not table.owner:
            if now is not None:
                found[table.name] = now
            continue
        stands = standing(coordinator, table.name)  # what was reported while this site served is over
        if stands is not None and stands.parted and stands.site == table.owner:
            known = now is not None and now.site == stands.site
            found[table.name] = now if known and now else Split(stands.site, stands.by, stands.at_ms)
    return found


def told(coordinator: Coordinator, partition: str) -> Split | None:
    """Return what is reported of a partition; None if nothing is, or nothing that can be read."""
    return _SPLIT.read_or_none(coordinator, f"parted/{partition}", logger)


def told_at(coordinator: Coordinator, partition: str) -> tuple[Split | None, int]:
    """Return the report with the znode's version; -1 if there is none."""
    path = f"parted/{partition}"
    found = coordinator.get(path)
    return (None, -1) if found is None else (_SPLIT.decode_or_none(path, found.data, logger), found.version)


def tell(coordinator: Coordinator, partition: str, site: str, by: str) -> bool:
    """Report that a partition has parted from that site, and hold this site's branch. Return whether this is new. What
    is known of the split stays."""
    path, fresh = f"parted/{partition}", Split(site, by, time.time_ns() // 1_000_000)
    before = told(coordinator, partition)
    if before is None or before.site != site:  # done first, since a node that finds the report only renews the hold
        branch_holds.begin(coordinator, partition, site)
    now, version = None, -1
    while version < 0:  # somebody may report at this moment that it is over
        if coordinator.create(path, tolerant.encode(fresh)):
            return True
        now, version = told_at(coordinator, partition)
    if now is not None and (now.site, now.by) == (site, by):
        return False
    known = now is not None and now.site == site
    with suppress(VersionError):  # another node that was quicker says the same
        renewed = msgspec.structs.replace(now, by=by) if known and now else fresh
        write(coordinator, partition, renewed, version)
    return not known


def counted(now: Split, fork: ForkPoint, here: BranchCount, there: BranchCount) -> Split:
    """Return the report with these counts in place of those it has."""
    return msgspec.structs.replace(
        now, fork=carrying(fork, now.fork), here=carrying(here, now.here), there=carrying(there, now.there)
    )


def write(coordinator: Coordinator, partition: str, now: Split, version: int) -> None:
    """Write a report in place of the one that had this version. VersionError if it is another one by now."""
    coordinator.set(f"parted/{partition}", tolerant.encode(now), version)


def forget(coordinator: Coordinator, partition: str, site: str) -> None:
    """Delete the report that a partition has parted from that site."""
    now, version = told_at(coordinator, partition)
    if now is not None and now.site == site:
        coordinator.delete(f"parted/{partition}", version)


def joined(coordinator: Coordinator, partition: str, site: str) -> None:
    """Note that the history of that site contains this one's: release what was held for the merge, and delete the
    report."""
    now = told(coordinator, partition)
    if now is not None and now.site == site:
        branch_holds.merged(coordinator, partition, site)
        forget(coordinator, partition, site)


_SPLIT = ZnodeFormat(TolerantDecoder(Split).decode, "cannot be read")


class SplitWatch:
    """A `SplitWatch` looks for splits of what one host serves, on one thread."""

    def __init__(
        self,
        host: Host,
        reach: Callable[[str], SiteAccess],
        sites: Collection[str],
        homes: Collection[str],
        paces: SitePaces = PACES,
    ) -> None:
        """Take `homes`: the policies that have one."""
        self._host = host
        self._reach = reach
        self._sites = sites
        self._homes = homes
        self._watch_s = paces.watch_s
        self._told: dict[str, str] = {}
        """By partition: the site that has gone on with it, too. Of several the first one counts, until that is over."""

    def turn(self) -> None:
        """Look once at the other sites."""
        copies = list(self._host.copies.values())
        mine = [c for c in copies if c.serving and c.core.state.table.policy in self._homes]
        for name in self._told.keys() - {c.name for c in mine}:
            del self._told[name]  # the node that serves it now reports it
        for site in self._sites if mine else ():
            try:
                self._look(site, mine)
            except (HalogError, UnknownResult) as e:
                logger.debug("it is not known what site %s serves: %s", site, e)
                for name in [name for name, told in self._told.items() if told == site]:
                    del self._told[name]  # other nodes may report it
        self._host.pause(self._watch_s)

    def _look(self, site: str, mine: list[Copy]) -> None:
        told = set(self._host.coordinator.children("parted"))
        remote = self._reach(site)
        try:
            named = told | set(remote.coordinator.children("parted"))
            found = {c.name: self._has_gone_on(remote, c.core.state.table, named=c.name in named) for c in mine}
        finally:
            remote.close()
        for copy in mine:
            if found[copy.name] and copy.name not in self._told:
                self._tell(copy, site)
                self._told[copy.name] = site
            elif found[copy.name] is False:
                self._end(copy, site, told=copy.name in told)

    def _has_gone_on(self, remote: SiteAccess, table: PartitionTable, *, named: bool) -> bool | None:
        """Return whether the other site serves the partition, too, or has stopped and has what this one lacks. The
        latter is looked for if one of the two sites reports a split. None: the other site has stopped, and does not say
        what it has, as nobody there has compared it since. This compares epoch numbers, not clocks: the clocks of two
        sites differ."""
        theirs = its_table(remote.coordinator, table)
        if theirs is None or theirs.owner not in ("", self._host.site):
            return False
        if not theirs.owner or not named:
            return not theirs.owner
        now = standing(remote.coordinator, table.name)
        if now is not None and now.site == self._host.site and now.parted:
            return True
        return None if followed(remote.coordinator, theirs, self._host.site) is None else False

    def _tell(self, copy: Copy, site: str) -> None:
        if tell(self._host.coordinator, copy.name, site, self._host.me.node):
            more = {"site": site, "at": copy.core.state.chain.state.lsn}
            self._host.telling.told(copy, Tell(PARTED, "", "both sites have served it", more))

    def _end(self, copy: Copy, site: str, *, told: bool) -> None:
        if self._told.get(copy.name) == site:
            del self._told[copy.name]
        if told:
            forget(self._host.coordinator, copy.name, site)
