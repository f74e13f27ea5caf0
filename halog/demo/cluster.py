"""The cluster the demo runs on: three nodes in one zone, every partition with one active, one sync, one async copy."""

from __future__ import annotations

from pathlib import Path

from halog.config import (
    ApplicationConfig,
    ClusterConfig,
    Config,
    NodeConfig,
    PolicyConfig,
    SiteConfig,
    SnapshotConfig,
    ZoneConfig,
)
from halog.embedded.model import SiteInfo

NODES = ("A", "B", "C")
POLICY = "flights"
SITE = "home"


def make_config(site: SiteInfo, directory: Path, name: str, partitions: int) -> Config:
    """The configuration of all processes. The log is not trimmed: it is the evidence of the last question."""
    return Config(
        cluster=ClusterConfig(name),
        site=SiteConfig(name=SITE, bootstrap=site.bootstrap, zookeeper=site.zookeeper),
        application=ApplicationConfig(modules=("halog.demo.model",)),
        zones={"newyork": ZoneConfig(NODES)},
        policies={
            POLICY: PolicyConfig(
                zone="newyork",
                partitions=partitions,
                sync_replicas=1,  # the next active holds every commit that returned
                async_replicas=1,  # after a kill there is still a replica to become the sync one
                before_images=False,  # nothing is merged here
                local_sync="WRITE_NO_SYNC",  # what the demo does to processes this survives; flushes cost it a minute
            )
        },
        bindings={"*": POLICY},
        nodes={node: NodeConfig(directory / f"node-{node}") for node in NODES},
        snapshot=SnapshotConfig(keep_records=1_000_000_000),
    ).validate()


def write_config(config: Config, path: Path) -> Path:
    """As a file, for the other processes."""
    path.write_text(config.to_toml())
    return path
