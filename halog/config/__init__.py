"""This package holds the configuration: frozen, validated once, from TOML or built in Python.

It never reads the environment, never contacts a server, and imports no application module. A wrong value is found
before anything starts, and the error names file, key and reason; after `load_config` no further check is needed. Units
stand in the names; a default has its reason beside it (`model`).

A node whose name is not in `[nodes]` is a client: a node in no zone, without a data directory.
"""

from __future__ import annotations

from halog.config.model import (
    ApplicationConfig,
    ClusterConfig,
    Config,
    LimitsConfig,
    NodeConfig,
    PolicyConfig,
    RemoteSiteConfig,
    SiteConfig,
    SnapshotConfig,
    TimingConfig,
    ZoneConfig,
    ZoneQuorumConfig,
)
from halog.config.read import load_config, parse_config
from halog.config.security import SecurityConfig
from halog.config.static import StaticPartition

__all__ = [
    "ApplicationConfig",
    "ClusterConfig",
    "Config",
    "LimitsConfig",
    "NodeConfig",
    "PolicyConfig",
    "RemoteSiteConfig",
    "SecurityConfig",
    "SiteConfig",
    "SnapshotConfig",
    "StaticPartition",
    "TimingConfig",
    "ZoneConfig",
    "ZoneQuorumConfig",
    "load_config",
    "parse_config",
]
