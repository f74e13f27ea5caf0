"""This module has the form of a right at a Kafka cluster, for those who ask for it and those who look at it."""

from __future__ import annotations

from typing import Final, NamedTuple

TOPIC: Final = "topic"
TRANSACTIONAL_ID: Final = "transactional-id"
CLUSTER: Final = "cluster"

EVERY_CLUSTER: Final = "kafka-cluster"
"""The one name of a resource of the kind CLUSTER."""


class KafkaRight(NamedTuple):
    """A `KafkaRight` names one operation on one resource, or on all whose names begin so."""

    resource: str
    """TOPIC, TRANSACTIONAL_ID or CLUSTER."""
    name: str
    prefixed: bool
    operation: str
    """As Kafka's tools write it: read, write, create, delete, alter, describe, describe-configs."""

    def __str__(self) -> str:
        of = f"{self.name}…" if self.prefixed else self.name
        return f"{self.operation} of the {self.resource}" + ("" if self.resource == CLUSTER else f" {of}")
