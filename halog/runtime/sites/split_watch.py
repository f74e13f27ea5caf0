"""Have two sites both gone on with a partition? Looked at by whoever is active here, or mirrors it, told, and left as
it is (M1).

parted/<partition>   JSON: `Parted`, in the coordinator of each of the sites that see it, as long as it is so

Where both serve it, or the other one has stopped and keeps what this one lacks, the active node tells it; where this
one has stopped, whoever would mirror (`halog.runtime.sites.mirror_link`). What each side has done is counted by
`halog.runtime.sites.divergence_count`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from halog.core.table.table import PartitionTable
from halog.core.table.tell import Tell
from halog.errors import HalogError, VersionError
from halog.events import PARTED
from halog.metadata import branch_holds
from halog.metadata.mirrors import followed, standing
from halog.metadata.partition_tables import its_table
from halog.ports import Coordinator, UnknownResult
from halog.runtime.support.adapters import Remote

if TYPE_CHECKING:
    from halog.runtime.host.host import Host
    from halog.runtime.replica.driver import Copy

logger = logging.getLogger("halog.mirror")

WATCH_S = 5.0
"""How often the other site's tables are read: a split lasts until somebody decides, so seconds do not matter."""


class Fork(msgspec.Struct, frozen=True):
    """The last record of both histories: the epoch that wrote it, by number and site, and its lsn."""

    epoch: int
    site: str
    lsn: int


class Branch(msgspec.Struct, frozen=True):
    """What one site has done behind the fork, up to `lsn`, as it was known at `at_ms` (since 1970)."""

    objects: int
    """That it has touched."""
    at_least: bool
    """There is more than is counted."""
    lsn: int
    at_ms: int


class Parted(msgspec.Struct, frozen=True):
    """What is told of a partition that another site has gone on with, too. `fork`, `here` and `there` are known a
    moment later, all together."""

    site: str
    by: str
    since_ms: int
    fork: Fork | None = None
    here: Branch | None = None
    there: Branch | None = None
    why: str = ""
    """Why what is said of the branches is not, or no more, renewed."""


def parted(coordinator: Coordinator, tables: Iterable[PartitionTable]) -> dict[str, Parted]:
    """Partitions whose history has parted from another site's: both serve it, or only one of them still does, and the
    other one has what that one lacks."""
    found, named = {}, set(coordinator.children("parted"))
    for table in tables:
        now = told(coordinator, table.name) if table.name in named else None
        if not table.owner:
            if now is not None:
                found[table.name] = now
            continue
        stands = standing(coordinator, table.name)  # what was told while it served is over
        if stands is not None and stands.parted and stands.site == table.owner:
            known = now is not None and now.site == stands.site
            found[table.name] = now if known and now else Parted(stands.site, stands.by, stands.at_ms)
    return found


def told(coordinator: Coordinator, partition: str) -> Parted | None:
    """What is told of a partition; None: nothing, or nothing that can be read."""
    return told_at(coordinator, partition)[0]


def told_at(coordinator: Coordinator, partition: str) -> tuple[Parted | None, int]:
    """With the znode's version; -1: there is none."""
    found = coordinator.get(f"parted/{partition}")
    if found is None:
        return None, -1
    try:
        return _DECODER.decode(found.data), found.version
    except msgspec.MsgspecError as e:
        logger.warning("znode parted/%s says nothing of a parting: %s", partition, e)
        return None, found.version


def tell(coordinator: Coordinator, partition: str, site: str, by: str) -> bool:
    """Say that a partition has parted from that site, and hold this site's branch; was it not said before? What is
    known of it stays."""
    path, fresh = f"parted/{partition}", Parted(site, by, time.time_ns() // 1_000_000)
    before = told(coordinator, partition)
    if before is None or before.site != site:  # first, since it is prolonged by who finds it told
        branch_holds.begin(coordinator, partition, site)
    now, version = None, -1
    while version < 0:  # somebody may say at this moment that it is over
        if coordinator.create(path, msgspec.json.encode(fresh)):
            return True
        now, version = told_at(coordinator, partition)
    if now is not None and (now.site, now.by) == (site, by):
        return False
    known = now is not None and now.site == site
    with suppress(VersionError):  # whoever was quicker says the same
        renewed = msgspec.structs.replace(now, by=by) if known and now else fresh
        coordinator.set(path, msgspec.json.encode(renewed), version)
    return not known


def forget(coordinator: Coordinator, partition: str, site: str) -> None:
    """It has not parted from that site any more."""
    now, version = told_at(coordinator, partition)
    if now is not None and now.site == site:
        coordinator.delete(f"parted/{partition}", version)


def joined(coordinator: Coordinator, partition: str, site: str) -> None:
    """The history of that site has this one's in it: what was held for the merge is let go of."""
    now = told(coordinator, partition)
    if now is not None and now.site == site:
        branch_holds.merged(coordinator, partition, site)
        forget(coordinator, partition, site)


_DECODER = msgspec.json.Decoder(Parted)


class Watching:
    """Of one host. One thread."""

    def __init__(
        self, host: Host, reach: Callable[[str], Remote], sites: Collection[str], homes: Collection[str]
    ) -> None:
        """`homes`: the policies that have one."""
        self._host = host
        self._reach = reach
        self._sites = sites
        self._homes = homes
        self._told: dict[str, str] = {}
        """Partition → the site that has gone on with it, too; of several the first one, until that is over."""

    def turn(self) -> None:
        """One look at the other sites."""
        copies = list(self._host.copies.values())
        mine = [c for c in copies if c.serving and c.core.state.table.policy in self._homes]
        for name in self._told.keys() - {c.name for c in mine}:
            del self._told[name]  # whoever serves it now tells it
        for site in self._sites if mine else ():
            try:
                self._look(site, mine)
            except (HalogError, UnknownResult) as e:
                logger.debug("what site %s serves is not known: %s", site, e)
                for name in [name for name, told in self._told.items() if told == site]:
                    del self._told[name]  # others may tell
        self._host.pause(WATCH_S)

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

    def _has_gone_on(self, remote: Remote, table: PartitionTable, *, named: bool) -> bool | None:
        """The other site serves it, too, or has stopped, and has what this one lacks; that is looked for where one of
        them tells of a parting. None: it has stopped, and does not say what it has: nobody there has compared it since.
        By the number of its epoch, and no clock: theirs is another one."""
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
