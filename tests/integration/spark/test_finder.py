"""Which objects belong elsewhere, beside the mapper called in plain Python for every object there is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from halog.config import load_config
from halog.errors import ConfigError, MapperError
from halog.runtime import retention
from halog.runtime.mapping import Places
from halog.schema.registry import DEFAULT
from spark_jobs.finder import Finder
from spark_jobs.mover import Counts, DryRun, Misplaced
from spark_jobs.rebalance import changed
from spark_jobs.site import connect
from tests.integration.cluster.harness import Cluster
from tests.integration.spark.test_reader import traffic
from tests.integration.spark.world import Flight

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from halog.config import Config

pytestmark = pytest.mark.timeout(240)

Found = dict[tuple[str, bytes], tuple[bytes, str]]
"""(partition, key) → (reference, target)."""


class Noting(DryRun):
    """Keeps what it is given."""

    def __init__(self, stop_after: int = 1 << 60) -> None:
        super().__init__()
        self.found: Found = {}
        self.left = stop_after

    def move(self, partition: str, objects: Sequence[Misplaced]) -> Counts:
        self.left -= len(objects)
        if self.left < 0:
            raise KeyboardInterrupt
        self.found.update({(partition, o.key): (o.reference, o.target) for o in objects})
        return super().move(partition, objects)

    def gone(self, partition: str, keys: Sequence[bytes]) -> Counts:
        for key in keys:
            self.found.pop((partition, key), None)
        return super().gone(partition, keys)


def expected(cluster: Cluster, wanted: Config) -> Found:
    """By the mapper, called here."""
    places = Places(wanted, lambda name: DEFAULT.info(name).parsed)
    found = {}
    for table in cluster.tables():
        assert table.active is not None
        for one in cluster.stored(table.active.node, table.name):
            info = DEFAULT.info(one.value[:8])
            target = places.owner(info.name).partition(info.name, info.routing_key(info.decode_index_key(one.key)))
            if target != table.name:
                found[table.name, one.key] = (one.ref, target)
    return found


def flights(cluster: Cluster, count: int) -> None:
    """Objects whose routing key is a part of their key."""
    node = cluster.client()
    for i in range(0, count, 20):
        with node.transaction() as tx:
            for number in range(i, i + 20):
                if tx.find(Flight, f"F{number % 40}", number) is None:
                    tx.create(Flight(f"F{number % 40}", number))


@pytest.mark.feature("S1", "P6")
def test_the_finder_finds_what_the_mapper_says(spark: SparkSession, fleet: Cluster, tmp_path: Path) -> None:
    """From the log alone; a ring of another size, more partitions than there are, and a mapper of the application's."""
    traffic(fleet, 60)
    flights(fleet, 100)
    own = load_config(fleet.toml)
    ways = {
        "ring": changed(own, "p", ring_size=1_000),
        "partitions": changed(own, "p", partitions=5),
        "custom": changed(own, "p", mapper="tests.integration.spark.world:by_number"),
        "same": own,
    }
    for name, wanted in ways.items():
        noting = Noting()
        with connect(fleet.toml) as site:
            report = Finder(spark, site, wanted, "p", noting, tmp_path / name).run()
            held = [retention.holds(site.coordinator, p) for p in fleet.partitions()]
        assert noting.found == expected(fleet, wanted), name
        assert report.counts.get("would_move", 0) == len(noting.found)
        assert bool(noting.found) is (name != "same")
        assert held == [{}] * 3, "nothing is held any more"
