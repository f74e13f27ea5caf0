"""Gives a node that starts the tables of partitions that began at another site, or that another site has taken over
(M5)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import msgspec

from halog.config import Config
from halog.core.ids import Member
from halog.core.table.table import PartitionTable
from halog.errors import CoordinatorError, HalogError, UnreachableError, VersionMismatchError
from halog.metadata.nodes import running
from halog.metadata.partition_tables import change_table, serves, table_of
from halog.metadata.site_ownership import given_up
from halog.ports import Coordinator
from halog.runtime.sites.site_paces import PACES, SitePaces
from halog.runtime.support.adapters import SiteAccess

logger = logging.getLogger("halog.mirror")


SAY_S = 5.0
"""Pause between log lines that they are waited for."""

LOOK_S = 0.1


class HomeTables:
    """Reads tables of partitions whose home is another site. They name that site's history, and no node here is to
    serve them. The home is asked only while this site has no table yet, so later this site starts without it."""

    def __init__(self, config: Config, reach: Callable[[str], SiteAccess], paces: SitePaces = PACES) -> None:
        self._config = config
        self._reach = reach
        self._open: dict[str, SiteAccess] = {}
        self._until = time.monotonic() + paces.home_s

    def of(self, table: PartitionTable) -> PartitionTable:
        """Return the table for this site; it stays as it is if its home is here. CoordinatorError if the home site does
        not have the partition in time, or cannot be reached."""
        if not self._config.mirrored(table.policy):
            return table
        site = self._config.home_of(table.policy)
        home = self._at_home(site, table.name)
        return msgspec.structs.replace(table, log_id=home.log_id, home=site, owner=site)

    def _at_home(self, site: str, partition: str) -> PartitionTable:
        """Wait for the home site's table: two sites may each be the home of something, and start at the same time."""
        said_at = 0.0
        while True:
            try:
                if site not in self._open:
                    self._open[site] = self._reach(site)
                return table_of(self._open[site].coordinator, partition)
            except (CoordinatorError, UnreachableError) as e:
                said = f"site {site} is the home of partition {partition}, and {e}: start a node there"
                now = time.monotonic()
                if now >= self._until:
                    raise CoordinatorError(said, partition=partition, site=site) from None
                if now - said_at >= SAY_S:
                    said_at = now
                    logger.warning("%s; this node waits for it", said)
                time.sleep(LOOK_S)

    def __enter__(self) -> HomeTables:
        return self

    def __exit__(self, *exc: object) -> None:
        for remote in self._open.values():
            remote.close()


def returned(
    config: Config,
    coordinator: Coordinator,
    reach: Callable[[str], SiteAccess],
    tables: dict[str, tuple[int, PartitionTable]],
    me: Member,
) -> dict[str, tuple[int, PartitionTable]]:
    """Return the tables as a node that starts is to know them. A partition that nobody serves here, and that another
    site has taken over meanwhile, is that site's from now on. This is noted before a node of this site opens an epoch
    that the other one never saw (F3). Sites that cannot be reached are passed over: each goes on, unless a quorum says
    otherwise. VersionMismatchError for one whose level this halog does not know."""
    up = running(coordinator) - {me}
    homes = {name for name, policy in config.policies.items() if policy.home}
    now = dict(tables)
    for site in config.other_sites:
        mine = [t for _, t in now.values() if not t.owner and t.policy in homes and t.active not in up]
        if not mine:
            continue
        try:
            remote = reach(site)
        except VersionMismatchError:
            raise
        except HalogError as e:
            logger.warning("it is not known whether site %s has taken anything over: %s", site, e)
            continue
        try:
            taken = [t.name for t in mine if serves(remote.coordinator, t)]
        finally:
            remote.close()
        for name in taken:
            logger.warning("partition %s: site %s has taken it over", name, site)
            now[name] = _given(coordinator, name, site)
    return now


def _given(coordinator: Coordinator, partition: str, site: str) -> tuple[int, PartitionTable]:
    change_table(coordinator, partition, lambda now: now if now.owner else given_up(now, site))
    found = coordinator.get(f"partitions/{partition}")
    assert found is not None, partition
    return found.version, PartitionTable.from_bytes(found.data)
