"""Two sites as in `two`, each in a network namespace of its own: servers, nodes, clients and operators' commands.

The line between them is the kernel's (`tests.integration.sites.packets`). This process stands outside, and reaches both
sites whatever happens between them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from halog.embedded import EmbeddedSite, SiteInfo, archives, jars
from halog.embedded.java import find_java
from halog.embedded.model import SERVERS
from halog.embedded.progress import LogProgress
from tests.integration.sites.packets import DROPS, REFUSES, Namespace, Net
from tests.integration.sites.two import NAMES, Between, TwoSites, nodes_of

FIRST_PORT = 7_001
"""Of a site's nodes: in its namespace there is nobody else."""


class EnclosedSite:
    """An embedded site in a namespace."""

    def __init__(self, directory: Path, space: Namespace, address: str) -> None:
        self.site = EmbeddedSite(directory, host=address)
        self.space = space
        self.address = address

    def begin(self) -> None:
        with self.space.inside():
            self.site.begin()

    @property
    def info(self) -> SiteInfo:
        return self.site.info

    @property
    def from_afar(self) -> tuple[str, str]:
        """(Kafka, ZooKeeper): under the addresses that they have here, too."""
        return self.info.bootstrap, self.info.zookeeper

    def whole(self) -> None:
        """A server that a test has left down is started."""
        for server in SERVERS:
            if server not in self.info.pids:
                self.site.start_server(server)

    def stop(self) -> None:
        self.site.abandon()
        self.site.stop()


class Namespaces(Between):
    """Both sites. What is done to the way between them meets every packet, of all connections together."""

    def __init__(self, directory: Path) -> None:
        self.net = Net(NAMES)
        self.sites: dict[str, Any] = {
            name: EnclosedSite(directory / name, self.net.ends[name], self.net.addresses[name]) for name in NAMES
        }
        self.to_nodes = []

    def start(self) -> None:
        """Both at once. What they are made of is fetched before: from inside nothing is reached."""
        java, progress = find_java(), LogProgress()
        jar_dir, _ = jars.ensure(java, progress)
        archives.ensure(java, jar_dir, progress)
        for site in self.sites.values():
            site.begin()
        for site in self.sites.values():
            site.site.begun()

    def stop(self) -> None:
        try:
            super().stop()
        finally:
            self.net.close()

    def cut(self, *, toward: str = "") -> None:
        """Nothing arrives any more; `toward`: nothing that goes to this site. Nobody is told."""
        self.net.drop((toward,) if toward else NAMES, DROPS)

    def refuse(self) -> None:
        """Nothing passes, and whoever sends is told so by the hub: that network cannot be reached."""
        self.net.drop(NAMES, REFUSES)

    def delay(self, seconds: float) -> None:
        """So much longer for each packet, each way."""
        self.net.slow(seconds)

    def flap(self, open_s: float, cut_s: float) -> None:
        """Open, cut, open, … until healed."""
        self.net.flap(open_s, cut_s)

    def heal(self) -> None:
        """As it was made. What was dropped comes when its sender tries again."""
        self.net.heal()

    def whole(self) -> None:
        """Healed, and every server runs."""
        self.heal()
        super().whole()


class EnclosedSites(TwoSites):
    """A cluster over both. `afar`: do requests go to the site that serves?"""

    between: Namespaces

    def __init__(self, directory: Path, between: Namespaces, *, afar: bool = False, **values: Any) -> None:
        self._afar = afar
        super().__init__(directory, between, **values)

    def _doors(self, name: str, away: str) -> dict[str, Any]:
        site = self.between.sites[name]
        return {
            "addresses": {node: f"{site.address}:{FIRST_PORT + n}" for n, node in enumerate(nodes_of(name))},
            "other_nodes": {away: {}} if self._afar else {},
            "inside": site.space.inside,
        }
