"""Two sites in one process that go by one tree: all nodes of both are in zone `test`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from halog.config import ZoneConfig, ZoneQuorumConfig
from halog.testing.cluster import Cluster


def share(*clusters: Cluster, percentage: int | None = None, **policies: Any) -> None:
    """Before they start: one tree for all of them, but for [site]. Each has a zone of its own name, too; `percentage`:
    of the votes, the quorum of zone `test`; `policies`: further ones by name, each with a type of this name bound to
    it."""
    nodes = {name: replace(node, site=c.site) for c in clusters for name, node in c.config.nodes.items()}
    zones = {
        "test": ZoneConfig(tuple(nodes), ZoneQuorumConfig(percentage=percentage)),
        **{c.site: ZoneConfig(c.names) for c in clusters},
    }
    for cluster in clusters:
        config = cluster.config
        cluster.config = replace(
            config,
            nodes=nodes,
            zones=zones,
            policies={**config.policies, **{name.lower(): policy for name, policy in policies.items()}},
            bindings={**{name: name.lower() for name in policies}, **config.bindings},
        ).validate()
