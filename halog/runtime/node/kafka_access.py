"""This module finds out how a process reaches Kafka: its servers, and the files by which both sides show who they are
(N5)."""

from __future__ import annotations

import dataclasses

from halog.adapters.kafka.access import KafkaAccess
from halog.config import Config
from halog.config.kafka_security import SSL
from halog.config.sites import plain
from halog.runtime.node.certificate_files import files_in


def kafka_access(config: Config, servers: str, process: str) -> KafkaAccess:
    """Return how a process of this name speaks to these brokers: of its own site or of another one. What
    `[security.kafka]` does not name is taken from `[security]`; whether it can be used is not looked at."""
    servers, security = plain(servers), config.security
    kafka = security.kafka
    if kafka is None or not kafka.has_tls:
        return KafkaAccess(servers) if kafka is None else KafkaAccess(servers, kafka)
    ca, cert, key = files_in(security, process)
    shown = kafka.cert is not None
    if kafka.protocol == SSL and not shown:
        kafka = dataclasses.replace(kafka, cert=cert, key=key)
    return KafkaAccess(servers, dataclasses.replace(kafka, ca=kafka.ca or ca))
