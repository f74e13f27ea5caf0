"""What happens to the clusters of these tests, and where their logs begin and end."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

from tests.integration.cluster.harness import Cluster
from tests.integration.spark.world import Floatplane, Leg, Plane


def traffic(cluster: Cluster, turns: int, first: int = 0) -> None:
    """Creates, changes and deletes of aircraft, some of them two at once in two partitions."""
    node = cluster.client()
    for i in range(first, first + turns):
        with node.transaction() as tx:
            tail, other = f"T{i % 17}", f"T{(i + 5) % 17}"
            found = tx.find(Plane, tail)
            if found is None:
                tx.create(Floatplane(tail) if i % 3 else Plane(tail))
            elif i % 7 == 3:
                tx.delete(found)
            else:
                found.miles += 1
            if i % 4 == 0 and (second := tx.find(Plane, other)) is not None:
                second.miles += 100


def legs(cluster: Cluster, count: int) -> None:
    """Objects whose routing key is a part of their key."""
    node = cluster.client()
    for i in range(0, count, 20):
        with node.transaction() as tx:
            for number in range(i, i + 20):
                if tx.find(Leg, f"F{number % 40}", number) is None:
                    tx.create(Leg(f"F{number % 40}", number))


def log_bounds(cluster: Cluster) -> list[tuple[int, int]]:
    """Of every partition's log."""
    consumer = Consumer({"bootstrap.servers": cluster.site.info.bootstrap, "group.id": "judge"})
    try:
        tables = cluster.tables()
        return [consumer.get_watermark_offsets(TopicPartition(t.topic, t.index), timeout=20) for t in tables]
    finally:
        consumer.close()
