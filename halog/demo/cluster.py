"""The cluster the demo runs on: three nodes in one zone, every partition with one active, one sync, one async copy; and
what its configuration becomes when a node joins or leaves, or keys are to be elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from halog.config import (
    ApplicationConfig,
    ClusterConfig,
    Config,
    NodeConfig,
    PolicyConfig,
    SiteConfig,
    SnapshotConfig,
    TimingConfig,
    ZoneConfig,
)
from halog.embedded.model import SiteInfo

NODES = ("A", "B", "C")
JOINING = "D"
ZONE, POLICY = "newyork", "flights"
RING = 131_072
"""Of the ring that the demo changes to: twice as large, so that nearly every key is elsewhere."""
SITE = "home"


def make_config(site: SiteInfo, directory: Path, name: str, partitions: int) -> Config:
    """The configuration of all processes. The log is not trimmed: it is the evidence of the last question."""
    return Config(
        cluster=ClusterConfig(name),
        site=SiteConfig(name=SITE, bootstrap=site.bootstrap, zookeeper=site.zookeeper),
        application=ApplicationConfig(modules=("halog.demo.model",)),
        zones={ZONE: ZoneConfig(NODES)},
        policies={
            POLICY: PolicyConfig(
                zone=ZONE,
                partitions=partitions,
                sync_replicas=1,  # the next active holds every commit that returned
                async_replicas=1,  # after a kill there is still a replica to become the sync one
                before_images=False,  # nothing is merged here
                local_sync="WRITE_NO_SYNC",  # what the demo does to processes this survives; flushes cost it a minute
            )
        },
        bindings={"*": POLICY},
        nodes={node: NodeConfig(directory / f"node-{node}") for node in NODES},
        timing=TimingConfig(join_settle_ms=500),  # one node joins, nobody else is to be waited for
        snapshot=SnapshotConfig(keep_records=1_000_000_000),
    ).validate()


def with_nodes(config: Config, directory: Path, names: Sequence[str]) -> Config:
    """The same cluster with these nodes."""
    nodes = {name: NodeConfig(directory / f"node-{name}") for name in names}
    return replace(config, zones={ZONE: ZoneConfig(tuple(names))}, nodes=nodes).validate()


def with_ring(config: Config, ring_size: int) -> Config:
    """The same cluster with its keys elsewhere."""
    return replace(config, policies={POLICY: replace(config.policies[POLICY], ring_size=ring_size)}).validate()


def write_config(config: Config, path: Path) -> Path:
    """As a file, for the other processes."""
    path.write_text(config.to_toml())
    return path
