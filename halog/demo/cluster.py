"""This module makes the configuration of the demo's cluster: three nodes in one zone, every partition with one active,
one sync, one async copy. It also makes what that becomes when a node joins or leaves, or keys move."""

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
"""The size of the ring that the demo changes to: twice as large, so that nearly every key is elsewhere."""
SITE = "home"


def make_config(site: SiteInfo, directory: Path, name: str, partitions: int) -> Config:
    """Return the configuration of all processes. The log is not trimmed: it is the evidence for the last question."""
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
                local_sync="WRITE_NO_SYNC",  # survives what the demo does to processes; flushes would cost it a minute
            )
        },
        bindings={"*": POLICY},
        nodes={node: NodeConfig(directory / f"node-{node}") for node in NODES},
        timing=TimingConfig(join_settle_ms=500),  # one node joins, no others follow
        snapshot=SnapshotConfig(keep_records=1_000_000_000),
    ).validate()


def with_nodes(config: Config, directory: Path, names: Sequence[str]) -> Config:
    """Return the same cluster with these nodes."""
    nodes = {name: NodeConfig(directory / f"node-{name}") for name in names}
    return replace(config, zones={ZONE: ZoneConfig(tuple(names))}, nodes=nodes).validate()


def with_ring(config: Config, ring_size: int) -> Config:
    """Return the same cluster with a ring of another size."""
    return replace(config, policies={POLICY: replace(config.policies[POLICY], ring_size=ring_size)}).validate()


def write_config(config: Config, path: Path) -> Path:
    """Write the configuration to a file, for the other processes."""
    path.write_text(config.to_toml())
    return path
