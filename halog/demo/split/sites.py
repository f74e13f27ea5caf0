"""This module runs two embedded sites and the lines between them, and makes the configuration of each site's nodes.

A site reaches the other one only by two lines, to its Kafka and to its ZooKeeper, so one call cuts everything between
them; its own servers it reaches directly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from halog.config import (
    ApplicationConfig,
    ClusterConfig,
    Config,
    NodeConfig,
    PolicyConfig,
    RemoteSiteConfig,
    SiteConfig,
    SnapshotConfig,
    ZoneConfig,
)
from halog.demo.split.steps import EAST, WEST
from halog.embedded import EmbeddedSite, RemoteListener, SiteInfo, ports
from halog.embedded.line import HOST, SiteLine
from halog.embedded.progress import Progress
from halog.embedded.several import start_all

NAMES = (WEST, EAST)
POLICY, ZONE = "flights", "here"


def other(site: str) -> str:
    """Return the site at the far end of the line."""
    return EAST if site == WEST else WEST


def nodes_of(site: str) -> tuple[str, ...]:
    """Return the names of a site's two nodes: one is active, the other one has everything, too."""
    return f"{site}-1", f"{site}-2"


class SplitSites:
    """`SplitSites` runs both sites. Call `start` on the main thread, with which their servers die."""

    def __init__(self, directory: Path, progress: Progress) -> None:
        self._directory = directory
        self._doors = dict[str, tuple[int, int]]()
        taken = set[int]()
        for name in NAMES:
            door = ports.pick(taken)
            address = ports.pick(taken | {door})
            taken |= {door, address}
            self._doors[name] = door, address
        self.sites = {
            name: EmbeddedSite(directory / name, remote=RemoteListener(door, f"{HOST}:{address}"), progress=progress)
            for name, (door, address) in self._doors.items()
        }
        self.infos: Mapping[str, SiteInfo] = {}
        self._lines: dict[str, tuple[SiteLine, SiteLine]] = {}

    def start(self) -> None:
        """Start both at once; the lines are open."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        self.infos = start_all(self.sites)
        for name, info in self.infos.items():
            kafka, zookeeper = self._doors[name], int(info.zookeeper.rpartition(":")[2])
            self._lines[name] = SiteLine(kafka[0], kafka[1]), SiteLine(zookeeper)

    def cut(self) -> None:
        """Let nothing pass any more, and tell nobody: connections stay, silent."""
        for line in self._all_lines():
            line.cut()

    def heal(self) -> None:
        """Open the lines again."""
        for line in self._all_lines():
            line.heal()

    def stop(self) -> None:
        """End lines and servers."""
        with ExitStack() as stack:
            for site in self.sites.values():
                stack.callback(site.stop)
            for line in self._all_lines():
                stack.callback(line.close)

    def _all_lines(self) -> Iterator[SiteLine]:
        for lines in self._lines.values():
            yield from lines

    def config(self, site: str, directory: Path, name: str, partitions: int) -> Config:
        """Return the configuration of all processes of a site. Both sites have the same policy, with nodes of their
        own."""
        away, info = other(site), self.infos[site]
        kafka, zookeeper = self._lines[away]
        return Config(
            cluster=ClusterConfig(name),
            site=SiteConfig(name=site, bootstrap=info.bootstrap, zookeeper=info.zookeeper),
            # each side uses what its own site serves: so the journals show which site acknowledged a write
            sites={away: RemoteSiteConfig(bootstrap=kafka.address, zookeeper=zookeeper.address, requests=False)},
            application=ApplicationConfig(modules=("halog.demo.split.model",)),
            zones={ZONE: ZoneConfig(nodes_of(site))},
            policies={
                POLICY: PolicyConfig(
                    zone=ZONE, partitions=partitions, sync_replicas=1, local_sync="WRITE_NO_SYNC", home=WEST
                )
            },
            bindings={"*": POLICY},
            nodes={node: NodeConfig(directory / f"node-{node}") for node in nodes_of(site)},
            snapshot=SnapshotConfig(keep_records=1_000_000_000),
        ).validate()
