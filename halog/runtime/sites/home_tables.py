"""Other sites, as this one reaches them, and what it knows of mirroring them (M5).

mirrors/<partition>   JSON: `Standing`, in the coordinator of the site that mirrors
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import msgspec

from halog.config import Config
from halog.core.ids import Member
from halog.core.sites.mirror import Checkpoint
from halog.core.table.table import PartitionTable
from halog.errors import CoordinatorError, HalogError, UnreachableError
from halog.metadata.cas import put
from halog.metadata.groups import change_table
from halog.metadata.site_ownership import given_up
from halog.ports import Coordinator
from halog.runtime.placement.bootstrap import read_nodes
from halog.runtime.support.adapters import Remote

logger = logging.getLogger("halog.mirror")

HOLD_MS = 7 * 24 * 3_600_000
"""How long a log is held for another site that does not come back: what both did since then can be merged; while it is
told that both have gone on, from each moment of that. A week of working days; who has not the room for that lets go of
it earlier (`halog log release`)."""


COMPARES = "this site's log is compared with the other one's, before it is given away"
"""What a standing says as long as a node is at that."""

HOME_S = 30.0
"""For the nodes of a home site that start at the same time: each of them is up in some seconds."""

SAY_S = 5.0
"""Between words that they are waited for."""

LOOK_S = 0.1


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How a mirror stands, as the coordinator holds it."""

    site: str
    """The other one."""
    by: str
    """The node that mirrors."""
    at_ms: int
    """When it was written, in ms since 1970."""
    checkpoint: Checkpoint
    behind: int = 0
    """Entries of the other log that are not dealt with yet."""
    lag_ms: int = 0
    """The longest that a record took from there to here since the last time, or waits by now."""
    error: str = ""
    """Why nothing is mirrored."""
    parted: bool = False
    """That is because both sites have gone on."""
    epoch: int | None = None
    """The number of the epoch in this site's table as it was mirrored: what this site served later has a higher one,
    and so has the fence behind that. -1: it is not mirrored now; None: of a node that does not say it."""

    @property
    def level(self) -> bool:
        """Was everything of the other log here when this was written?"""
        return not self.error and not self.behind


def standing(coordinator: Coordinator, partition: str) -> Standing | None:
    """How the mirror of a partition stood last; None before the first, and for what cannot be read, of another version
    perhaps: then it is begun anew, which does no harm."""
    found = coordinator.get(f"mirrors/{partition}")
    if found is None:
        return None
    try:
        return _STANDING.decode(found.data)
    except msgspec.MsgspecError as e:
        logger.warning("znode mirrors/%s is no standing of a mirror: %s", partition, e)
        return None


def followed(coordinator: Coordinator, table: PartitionTable, site: str) -> Standing | None:
    """How this site stands with that one, if it mirrors it now: what was told before this site served by itself, or
    fenced its log, is over. `table`: as it is now."""
    now = standing(coordinator, table.name)
    if now is None or now.site != site or now.error or table.owner != site:
        return None
    return now if now.epoch in (None, table.epoch.number) else None


def table_of(coordinator: Coordinator, partition: str) -> PartitionTable:
    """As the site of this coordinator has it. CoordinatorError if it has none."""
    found = coordinator.get(f"partitions/{partition}")
    if found is None:
        raise CoordinatorError(f"there is no partition {partition}", partition=partition)
    return PartitionTable.from_bytes(found.data)


def write(coordinator: Coordinator, partition: str, now: Standing) -> None:
    """Say how the mirror stands; what another node says at the same moment is as true."""
    data = msgspec.json.encode(now)
    put(coordinator, f"mirrors/{partition}", lambda before: data)


_STANDING = msgspec.json.Decoder(Standing)


class Originals:
    """Tables of partitions whose home is another site: they name that site's history, and nobody here is to serve
    them. Asked for only where this site has none yet, so that it starts without the other one later."""

    def __init__(self, config: Config, reach: Callable[[str], Remote]) -> None:
        self._config, self._reach = config, reach
        self._open: dict[str, Remote] = {}
        self._until = time.monotonic() + HOME_S

    def of(self, table: PartitionTable) -> PartitionTable:
        """The table for this site; as it is if its home is here. CoordinatorError if the home site does not have the
        partition in time, or cannot be reached."""
        if not self._config.mirrored(table.policy):
            return table
        site = self._config.home_of(table.policy)
        home = self._at_home(site, table.name)
        return msgspec.structs.replace(table, log_id=home.log_id, home=site, owner=site)

    def _at_home(self, site: str, partition: str) -> PartitionTable:
        """Two sites may each be the home of something, and start at the same time."""
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
                    logger.warning("%s; it is waited for", said)
                time.sleep(LOOK_S)

    def __enter__(self) -> Originals:
        return self

    def __exit__(self, *exc: object) -> None:
        for remote in self._open.values():
            remote.close()


def returned(
    config: Config,
    coordinator: Coordinator,
    reach: Callable[[str], Remote],
    tables: dict[str, tuple[int, PartitionTable]],
    me: Member,
) -> dict[str, tuple[int, PartitionTable]]:
    """The tables, as a node that starts is to know them. What nobody serves here, and another site has taken over
    meanwhile, is that site's from now on, before anybody of this one opens an epoch that it never saw (F3). Sites that
    cannot be reached are passed over: each goes on, unless a quorum says otherwise."""
    up = running(coordinator) - {me}
    homes = {name for name, policy in config.policies.items() if policy.home}
    now = dict(tables)
    for site in config.other_sites:
        mine = [t for _, t in now.values() if not t.owner and t.policy in homes and t.active not in up]
        if not mine:
            continue
        try:
            remote = reach(site)
        except HalogError as e:
            logger.warning("whether site %s has taken anything over is not known: %s", site, e)
            continue
        try:
            taken = [t.name for t in mine if serves(remote.coordinator, t)]
        finally:
            remote.close()
        for name in taken:
            logger.warning("partition %s: site %s has taken it over", name, site)
            now[name] = _given(coordinator, name, site)
    return now


def running(coordinator: Coordinator) -> set[Member]:
    """The runs of nodes that are registered: a node that was restarted serves nothing that its last run did."""
    nodes = read_nodes(coordinator, coordinator.children("nodes"))
    return {Member(info.name, info.incarnation) for info in nodes.values()}


def serves(there: Coordinator, table: PartitionTable) -> bool:
    """Is the other site to serve this very history, by its own word? (One set up anew has another one of this name.)"""
    theirs = its_table(there, table)
    return theirs is not None and not theirs.owner


def its_table(there: Coordinator, table: PartitionTable) -> PartitionTable | None:
    """What the other site has of this very history."""
    found = there.get(f"partitions/{table.name}")
    theirs = None if found is None else PartitionTable.from_bytes(found.data)
    return theirs if theirs is not None and theirs.log_id == table.log_id else None


def _given(coordinator: Coordinator, partition: str, site: str) -> tuple[int, PartitionTable]:
    change_table(coordinator, partition, lambda now: now if now.owner else given_up(now, site))
    found = coordinator.get(f"partitions/{partition}")
    assert found is not None, partition
    return found.version, PartitionTable.from_bytes(found.data)
