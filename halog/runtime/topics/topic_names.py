"""This module names a cluster's topics in Kafka."""

from __future__ import annotations

from halog.config import Config


def log_topic(config: Config, policy: str) -> str:
    """Return `<cluster>.<policy>.log`."""
    return f"{config.cluster.name}.{policy}.log"


def events_topic(cluster: str) -> str:
    """Return `<cluster>.events`."""
    return f"{cluster}.events"


def audit_topic(cluster: str) -> str:
    """Return `<cluster>.audit`."""
    return f"{cluster}.audit"


def arrived_topic(config: Config) -> str:
    """Return `<cluster>.arrived`."""
    return f"{config.cluster.name}.arrived"


def state_topic(config: Config, policy: str) -> str:
    """Return `<cluster>.<policy>.state`."""
    return f"{config.cluster.name}.{policy}.state"


def merge_topic(config: Config, policy: str) -> str:
    """Return `<cluster>.<policy>.merge`: the first job that writes there makes it."""
    return f"{config.cluster.name}.{policy}.merge"


def schemas_topic(config: Config) -> str:
    """Return `<cluster>.schemas`."""
    return f"{config.cluster.name}.schemas"


def publishing_id(topic: str) -> str:
    """Return the transactional id of the one writer that publishes definitions to this topic; no writer of a
    partition's snapshots is called so."""
    return f"halog-publishing.{topic}"


def snapshots_id(cluster: str, partition: str) -> str:
    """Return the transactional id of the one writer of a partition's snapshots: `halog.<cluster>.<partition>`."""
    return f"halog.{cluster}.{partition}"
