"""A node of this site asks here for partitions that another site serves: discovery and proxy across the line (N2).

The theory: what travels inside a site travels between sites, too, since each request carries what it needs (R5). Who is
active there that site's coordinator says, watched from here once somebody asks for a partition of it; where a node
listens is what it has registered, or what the configuration says. Whether it may answer is the log's decision, there.

Nothing local waits for a line: one thread for each site connects and watches. What a line that is down costs is the
first request's wait, and after that an error at once that says why, until somebody there answers again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from halog.config import Config
from halog.config.addresses import Addresses
from halog.core.table.table import PartitionTable
from halog.errors import HalogError, PartitionUnavailableError, VersionMismatchError
from halog.metadata.nodes import read_nodes
from halog.ports import Channel, UnknownResult, Versioned
from halog.runtime.rpc.cluster_view import ClusterView
from halog.runtime.support.adapters import SiteAccess

logger = logging.getLogger("halog.afar")

CONNECT_S = 5.0
"""The first request of a site waits so long for it to be known: a session and a look into its topics, over any line."""

AGAIN_S = 1.0
"""Pause between attempts to connect."""


class RemotePaces(NamedTuple):
    """Holds the paces of asking another site, in seconds."""

    silent_s: float = 1.0
    """Nodes that gave no answer are not asked again by others for so long."""
    look_s: float = 2.0
    """It is looked this often whether the coordinator there still answers."""
    idle_s: float = 300.0
    """A site that nobody has asked anything for so long is let go of: a session costs both sites a little."""


PACES: Final = RemotePaces()


def mirrored(partition: str, site: str, why: str = "") -> PartitionUnavailableError:
    """Return the error for a partition that another site serves; `why` says why it is not asked there."""
    return PartitionUnavailableError(
        f"partition {partition} is served by site {site}, and only mirrored here{why and ': ' + why}; use it there, "
        'read it here with read="local", or take it over with `halog site promote`',
        partition=partition,
        site=site,
    )


class RemoteSite(ClusterView):
    """A `RemoteSite` is one other site. `prepare` is called once it is reached, before anybody asks there;
    HalogErrors are reasons to begin again."""

    def __init__(
        self,
        name: str,
        channel: Channel,
        addresses: Mapping[str, Addresses],
        reach: Callable[[str], SiteAccess],
        prepare: Callable[[SiteAccess], None],
        paces: RemotePaces = PACES,
    ) -> None:
        super().__init__(channel, addresses)
        self.name = name
        self.why = ""
        """`why`: its coordinator does not answer; "": it does, or was not asked yet."""
        self._paces = paces
        self._reach = reach
        self._prepare = prepare
        self._wanted: set[str] = set()
        self._watched: set[str] = set()
        self._lacking: set[str] = set()
        """Partitions that this site does not have."""
        self._remote: SiteAccess | None = None
        self._nodes_read = False
        self._thread: threading.Thread | None = None
        self._asked_at = 0.0
        self._silent: tuple[float, str] = (0.0, "")
        """Until when nobody there is asked, and what came of asking."""
        self._closing = False

    # --- for those who ask ---

    def follow(self, partition: str, until: float) -> PartitionTable:
        """Return the partition's table there, once it is known. PartitionUnavailableError says why it is not, or that
        nobody there has answered just now."""
        self._asked_at = time.monotonic()
        self._check_level(partition)
        found = self.tables.get(partition)
        if found is None:
            with self.changed:
                self._want(partition)
                left = min(CONNECT_S, until - time.monotonic())
                self.changed.wait_for(lambda: self._is_settled(partition), max(0.0, left))
                found = self.tables.get(partition)
            if found is None:
                raise mirrored(partition, self.name, self._why_unknown(partition))
        resting, why = self._silent
        if why and time.monotonic() < resting:
            raise mirrored(partition, self.name, why)
        return found[1]

    def _check_level(self, partition: str) -> None:
        remote = self._remote
        try:
            if remote is not None:
                remote.check_level()
        except VersionMismatchError as e:
            raise mirrored(partition, self.name, e.message) from None

    def answers(self) -> None:
        """A node there did."""
        if self._silent[1]:
            self._silent = (0.0, "")

    def is_silent(self, why: str) -> str:
        """Note that no node there answered, for as long as makes sense to wait: who comes next is told so at once.
        Returns what to tell."""
        if self.why:
            why = f"{why}; {self.why}"
        self._silent = time.monotonic() + self._paces.silent_s, why
        return why

    def told_of(self, partition: str) -> str:
        """Return whom its coordinator calls active, and where that one was asked: it may be somebody else's address
        here. Or which site it says serves it by now."""
        known = self.tables.get(partition)
        if known is not None and known[1].owner:
            return f", which says that site {known[1].owner} serves it,"
        node = self.active(partition)
        info = None if node is None else self.nodes.get(node)
        at = "" if info is None else " and ".join(info.reached)
        return "" if info is None else f", whose node {info.name} should be, and was asked at {at},"

    @property
    def is_reached(self) -> bool:
        """Say whether there is a connection to its coordinator: it is let go of when nobody has asked for long."""
        return self._remote is not None

    @property
    def was_silent(self) -> bool:
        """Say whether it was silent when somebody asked last."""
        return bool(self._silent[1])

    def close(self) -> None:
        """Nobody asks any more; what is under way ends by itself."""
        with self.changed:
            self._closing = True
            self.changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(AGAIN_S)

    def _is_settled(self, partition: str) -> bool:
        return partition in self.tables or partition in self._lacking or bool(self.why) or self._closing

    def _why_unknown(self, partition: str) -> str:
        if partition in self._lacking:
            return "that site does not have it"
        return self.why or f"site {self.name} has not answered yet"

    def _want(self, partition: str) -> None:
        self._wanted.add(partition)
        if self._thread is None and not self._closing:
            self._thread = threading.Thread(target=self._run, name=f"halog-afar-{self.name}", daemon=True)
            self._thread.start()
        self.changed.notify_all()

    # --- its thread ---

    def _run(self) -> None:
        while not self._closing:
            try:
                self._turn()
            except (HalogError, UnknownResult) as e:
                self._failed(f"site {self.name} cannot be reached: {e}")
            except Exception as e:
                logger.exception("site %s is asked again after an error", self.name)
                self._failed(f"site {self.name} cannot be asked: {type(e).__name__}: {e}")
            if self._is_idle():
                self._rest()
        self._let_go()

    def _turn(self) -> None:
        remote = self._remote or self._connected()
        if self._nodes_read:
            remote.coordinator.children("nodes")  # does it still answer?
        else:
            self._read_nodes(remote)
        for partition in sorted(self._wanted - self._watched):
            self._watch(remote, partition)
        with self.changed:
            if self.why:
                logger.info("site %s is reached again", self.name)
            self.why = ""
            self.changed.notify_all()
            self.changed.wait_for(lambda: self._closing or not self._wanted <= self._watched, self._paces.look_s)

    def _connected(self) -> SiteAccess:
        remote = self._reach(self.name)
        try:
            self.anew()
            self._prepare(remote)
            remote.coordinator.watch_children("nodes", lambda names: self._nodes_changed(remote))
            self._read_nodes(remote)
        except BaseException:
            remote.close()
            raise
        self._remote = remote
        return remote

    def _watch(self, remote: SiteAccess, partition: str) -> None:
        path = f"partitions/{partition}"
        self._table_changed(path, remote.coordinator.get(path))
        remote.coordinator.watch(path, self._table_changed)
        self._watched.add(partition)

    def _table_changed(self, path: str, found: Versioned | None) -> None:
        if found is None:
            self._lacking.add(path.partition("/")[2])
            return
        table = PartitionTable.from_bytes(found.data)
        self._lacking.discard(table.name)
        self.table_seen(table.name, found.version, table)

    def _nodes_changed(self, remote: SiteAccess) -> None:
        """Read the nodes. The watch tells a change once: what cannot be read now is read by the next turn."""
        try:
            self._read_nodes(remote)
        except (HalogError, UnknownResult) as e:
            logger.debug("the nodes of site %s could not be read: %s", self.name, e)

    def _read_nodes(self, remote: SiteAccess) -> None:
        self._nodes_read = False
        self.nodes_seen(read_nodes(remote.coordinator, remote.coordinator.children("nodes")))
        self._nodes_read = True

    def _failed(self, why: str) -> None:
        if not self.why:
            logger.warning("%s", why)
        self._let_go()
        with self.changed:
            self.why = why
            self.changed.notify_all()
            self.changed.wait_for(lambda: self._closing, AGAIN_S)

    def _let_go(self) -> None:
        """Let go of the connection. What is known stays: nodes serve on without their coordinator."""
        remote = self._remote
        self._remote = None
        self._watched.clear()
        if remote is not None:
            try:
                remote.close()
            except HalogError as e:
                logger.debug("site %s was not left in order: %s", self.name, e)

    def _is_idle(self) -> bool:
        return time.monotonic() - self._asked_at > self._paces.idle_s

    def _rest(self) -> None:
        """Wait until somebody asks again; what was known is old then."""
        self._let_go()
        with self.changed:
            if not self._is_idle():
                return
            self.why = ""
            self._wanted.clear()
            self.tables.clear()
            self.changed.wait_for(lambda: self._closing or bool(self._wanted))


class RemoteSites:
    """`RemoteSites` knows all other sites that requests may go to."""

    def __init__(
        self,
        config: Config,
        channel: Channel,
        reach: Callable[[str], SiteAccess],
        prepare: Callable[[SiteAccess], None],
        paces: RemotePaces = PACES,
    ) -> None:
        self._here = config.site.name
        self.sites = {
            name: RemoteSite(name, channel, site.nodes, reach, prepare, paces)
            for name, site in config.other_sites.items()
            if site.requests
        }
        self._named = config.other_sites.keys()

    def serving(self, site: str, here: PartitionTable, until: float) -> RemoteSite:
        """Return the site that is to serve the partition of this table of ours. PartitionUnavailableError says why it
        cannot be asked: for good, or now."""
        far = self.sites.get(site)
        if far is None:
            said = f"[sites.{site}] has requests = false" if site in self._named else f"there is no [sites.{site}]"
            raise mirrored(here.name, site, said)
        there = far.follow(here.name, until)
        if there.log_id != here.log_id:
            raise mirrored(here.name, site, "that site has another history under this name: was it set up anew?")
        if there.owner not in ("", self._here, *self._named):  # one of those is followed soon (`owner_tracking`)
            raise mirrored(here.name, site, f"that site says that site {there.owner} serves it")
        return far

    def configure(self, addresses: Mapping[str, Addresses]) -> None:
        """Take the addresses that the configuration in force gives nodes. What this process's own file says of the
        nodes of a site wins."""
        for far in self.sites.values():
            far.configure(addresses)

    def close(self) -> None:
        """Let go of all of them."""
        for far in self.sites.values():
            far.close()
