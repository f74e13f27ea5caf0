"""This module says what each kind of process of a cluster must be allowed at a Kafka cluster, and no more (N5).

Whoever may write a log may change every object: nodes alone do. Brokers imply the right to describe what may be read,
written, altered or deleted. Nobody needs a group: partitions are assigned by halog itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from halog.adapters.kafka.rights import CLUSTER, EVERY_CLUSTER, TOPIC, TRANSACTIONAL_ID, KafkaRight
from halog.config import Config
from halog.runtime.topics import topic_names


def _topics(config: Config, *operations: str) -> list[KafkaRight]:
    return [KafkaRight(TOPIC, f"{config.cluster.name}.", True, operation) for operation in operations]


def _topic(name: str, *operations: str) -> list[KafkaRight]:
    return [KafkaRight(TOPIC, name, False, operation) for operation in operations]


def _settings() -> list[KafkaRight]:
    """Return the right to see whether the brokers make topics on demand."""
    return [KafkaRight(CLUSTER, EVERY_CLUSTER, False, "describe-configs")]


def _publisher(config: Config) -> KafkaRight:
    """Return the right to be the one writer of definitions."""
    return KafkaRight(TRANSACTIONAL_ID, topic_names.publishing_id(topic_names.schemas_topic(config)), False, "write")


def _node(config: Config) -> list[KafkaRight]:
    """Return a node's rights. It makes topics, adds partitions to them, and trims logs, which is what `delete` is
    for."""
    snapshots = KafkaRight(TRANSACTIONAL_ID, topic_names.snapshots_id(config.cluster.name, ""), True, "write")
    operations = ("read", "write", "create", "alter", "delete", "describe-configs")
    return [*_topics(config, *operations), snapshots, _publisher(config), *_settings()]


def _client(config: Config) -> list[KafkaRight]:
    """Return a client's rights. It reads and publishes definitions, and asks nodes for the rest. When it starts it
    looks whether the topics are as they must be."""
    schemas = _topic(topic_names.schemas_topic(config), "read", "write")
    told = _topic(topic_names.events_topic(config.cluster.name), "write")
    topics = _topics(config, "describe", "describe-configs")
    return [*topics, *schemas, _publisher(config), *told, *_settings()]


def _operator(config: Config) -> list[KafkaRight]:
    """Return the rights of commands. They look at logs and settings, and write what they did. `halog recover` writes
    logs: it needs a node's rights."""
    name = config.cluster.name
    written = [topic_names.audit_topic(name), topic_names.events_topic(name), topic_names.schemas_topic(config)]
    return [
        *_topics(config, "read", "describe-configs"),
        *(right for topic in written for right in _topic(topic, "write")),
        _publisher(config),
        *_settings(),
    ]


def _spark(config: Config) -> list[KafkaRight]:
    """Return the rights of jobs. They read logs, and write what they find to the topics for merges."""
    made = ("write", "create", "describe-configs")
    merges = [right for policy in config.policies for right in _topic(topic_names.merge_topic(config, policy), *made)]
    return [*_topics(config, "read"), *merges, *_settings()]


def _site(config: Config) -> list[KafkaRight]:
    """Return the rights of another site's nodes. They read this one's logs, and tell what has arrived there."""
    return [*_topics(config, "read"), *_topic(topic_names.arrived_topic(config), "write")]


_RIGHTS: Final[Mapping[str, Callable[[Config], list[KafkaRight]]]] = {
    "node": _node,
    "client": _client,
    "operator": _operator,
    "spark": _spark,
    "site": _site,
}

KAFKA_ROLES: Final = tuple(_RIGHTS)
"""The kinds of processes."""


def rights_of(role: str, config: Config) -> list[KafkaRight]:
    """Return what a process of this kind needs at its site's brokers; `site`: a node of another site, at this one's."""
    return _RIGHTS[role](config)
