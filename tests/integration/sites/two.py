"""Two sites of one cluster, west and east, each with servers of its own, and the lines between them.

Each site reaches the other only through two lines (Kafka, ZooKeeper), so what goes from one to the other can be cut,
one way or both, slowed, or made to flap. Its own servers a site reaches directly. Where a test wants `requests` to
go to the site that serves, its nodes are reached over lines, too; else all goes through the log and the coordinator.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from halog.embedded import EmbeddedSite, RemoteListener, SiteInfo, ports
from halog.embedded.line import BACK, HOST, THERE, SiteLine
from halog.embedded.model import SERVERS
from tests.integration.cluster.harness import Cluster, unique_name

WEST: Final = "west"
EAST: Final = "east"
NAMES: Final = (WEST, EAST)


def other(site: str) -> str:
    return EAST if site == WEST else WEST


def nodes_of(site: str) -> tuple[str, ...]:
    return f"{site}-1", f"{site}-2"


class LinkedSite:
    """An embedded site, and the lines by which the other one reaches it."""

    def __init__(self, directory: Path) -> None:
        door, address = _two_ports()
        self.site = EmbeddedSite(directory, remote=RemoteListener(door, f"{HOST}:{address}"))
        self._door = door
        self._address = address
        self.kafka: SiteLine
        self.zookeeper: SiteLine

    def start(self) -> None:
        info = self.site.start()
        self.kafka = SiteLine(self._door, self._address)
        self.zookeeper = SiteLine(int(info.zookeeper.rpartition(":")[2]))

    @property
    def info(self) -> SiteInfo:
        return self.site.info

    @property
    def lines(self) -> tuple[SiteLine, SiteLine]:
        return self.kafka, self.zookeeper

    @property
    def from_afar(self) -> tuple[str, str]:
        """(Kafka, ZooKeeper) as the other site reaches them."""
        return self.kafka.address, self.zookeeper.address

    def whole(self) -> None:
        """Lines healed; a server that a test has left down is started."""
        for line in self.lines:
            line.heal()
        for server in SERVERS:
            if server not in self.info.pids:
                self.site.start_server(server)

    def stop(self) -> None:
        """Does nothing where nothing runs."""
        for name in ("kafka", "zookeeper"):
            line = vars(self).pop(name, None)
            if line is not None:
                line.close()
        self.site.stop()


def _two_ports() -> tuple[int, int]:
    first = ports.pick(set())
    return first, ports.pick({first})


class Between:
    """Both sites, and what can be done to the way between them. From the view of packets: "from west to east" are the
    requests of those in the west and the answers of the servers there."""

    def __init__(self, directory: Path) -> None:
        self.sites = {name: LinkedSite(directory / name) for name in NAMES}
        self.to_nodes: list[tuple[str, SiteLine]] = []
        """Of the cluster that a test has now."""

    def start(self) -> None:
        """Both at once: each takes some seconds."""
        with ThreadPoolExecutor(len(self.sites)) as pool:
            list(pool.map(LinkedSite.start, self.sites.values()))

    def stop(self) -> None:
        with ExitStack() as stack:
            for site in self.sites.values():
                stack.callback(site.stop)

    def cut(self, *, toward: str = "") -> None:
        """Nothing passes any more; `toward`: nothing that goes to this site. Connections stay, silent."""
        for name, line in self._lines():
            if not toward:
                line.cut()
            else:
                line.cut(THERE if name == toward else BACK)

    def refuse(self) -> None:
        """Every connection between the sites is reset, and new ones are refused."""
        for _, line in self._lines():
            line.refuse()

    def delay(self, seconds: float) -> None:
        """So much longer for each byte, each way: a round trip takes twice that."""
        for _, line in self._lines():
            line.delay(seconds)

    def flap(self, open_s: float, cut_s: float) -> None:
        """Open, cut, open, … until healed; each line by itself, though they begin together."""
        for _, line in self._lines():
            line.flap(open_s, cut_s)

    def heal(self) -> None:
        """As it was made; what was held goes on its way."""
        for _, line in self._lines():
            line.heal()

    def whole(self) -> None:
        """Healed, and every server runs."""
        for site in self.sites.values():
            site.whole()

    def _lines(self) -> Iterator[tuple[str, SiteLine]]:
        """Each with the site it leads to."""
        for name, site in self.sites.items():
            for line in site.lines:
                yield name, line
        yield from self.to_nodes


class TwoSites:
    """One cluster over both sites: nodes west-1, west-2 and east-1, east-2, a policy `p` whose home is the west.

    `west` and `east` are the clusters of the harness, one for each site; `between` is the way from one to the other.
    Nothing is started yet; the west is to come first, for partitions begin there. `requests`: do they go to the site
    that serves?"""

    def __init__(
        self, directory: Path, between: Between, *, home: str = WEST, requests: bool = False, **values: Any
    ) -> None:
        self.between = between
        self.home = home
        self.name = unique_name()
        self._ports: dict[str, int] = {}
        self._lines: dict[str, SiteLine] = {}
        if requests:
            for name in NAMES:
                for node in nodes_of(name):
                    self._ports[node] = ports.pick(set(self._ports.values()))
                    self._lines[node] = line = SiteLine(self._ports[node])
                    between.to_nodes.append((name, line))
        self.clusters = {name: self._cluster(directory / name, name, values) for name in NAMES}
        self.west = self.clusters[WEST]
        self.east = self.clusters[EAST]

    def _cluster(self, directory: Path, name: str, values: dict[str, Any]) -> Cluster:
        directory.mkdir()
        away = other(name)
        given: dict[str, Any] = {"nodes": nodes_of(name), "partitions": 2, "sync": 1, "async_": 0}
        return Cluster(
            directory,
            self.between.sites[name].site,
            **{**given, **values},
            name=self.name,
            site_name=name,
            other_sites={away: self.between.sites[away].from_afar},
            **self._doors(name, away),
            home=self.home,
        )

    def _doors(self, name: str, away: str) -> dict[str, Any]:
        """Where nodes listen, and where this site reaches those of the other one."""
        lines = {node: self._lines[node].address for node in nodes_of(away) if node in self._lines}
        return {
            "addresses": {node: f"{HOST}:{port}" for node, port in self._ports.items()},
            "other_nodes": {away: lines} if lines else {},
        }

    def start(self) -> None:
        """The home's nodes first: the others ask it for the partitions' log ids."""
        self.clusters[self.home].start()
        self.clusters[self.home].whole()
        self.clusters[other(self.home)].start()

    def close(self) -> None:
        with ExitStack() as stack:
            for line in self._lines.values():
                stack.callback(line.close)
            self.between.to_nodes.clear()
            for cluster in self.clusters.values():
                stack.callback(cluster.close)
