"""Which objects belong elsewhere, beside the mapper called in plain Python for every object there is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from halog.config import load_config
from halog.errors import ConfigError, LogError, MapperError
from halog.metadata import log_holds as retention
from halog.runtime.keys.key_owners import Places
from halog.schema.registry import DEFAULT
from spark_jobs.finder import Finder
from spark_jobs.holds import hold_name
from spark_jobs.mover import Counts, DryRun, Misplaced
from spark_jobs.rebalance import changed
from spark_jobs.site import connect
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.processes import Process, wait
from tests.integration.spark.traffic import legs, log_bounds, traffic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from halog.config import Config

pytestmark = pytest.mark.timeout(480)
PATIENCE_S = 180.0
"""For a Spark that starts, and for nodes that write and trim: on a busy machine each takes several times as long."""

Found = dict[tuple[str, bytes], tuple[int, str]]
"""(partition, key) → (lsn, target)."""


class Noting(DryRun):
    """Keeps what it is given."""

    def __init__(self, stop_after: int = 1 << 60) -> None:
        super().__init__()
        self.found: Found = {}
        self.left = stop_after

    def move(self, partition: str, objects: Misplaced) -> Counts:
        self.left -= len(objects)
        if self.left < 0:
            raise KeyboardInterrupt
        columns = zip(objects.keys, objects.targets, objects.lsns, strict=True)
        self.found.update({(partition, key): (lsn, target) for key, target, lsn in columns})
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
                found[table.name, one.key] = (one.version, target)
    return found


@pytest.mark.feature("S1", "P6")
def test_the_finder_finds_what_the_mapper_says(spark: SparkSession, fleet: Cluster, tmp_path: Path) -> None:
    """From the log alone; a ring of another size, more partitions than there are, and a mapper of the application's."""
    traffic(fleet, 60)
    legs(fleet, 100)
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


@pytest.mark.long
@pytest.mark.feature("S1")
@pytest.mark.usefixtures("quick_spark")
def test_a_killed_job_goes_on_from_its_checkpoint(spark: SparkSession, short: Cluster, tmp_path: Path) -> None:
    """kill -9 with some objects handed over and some not: the logs stay held; started again it finds the rest, does
    not begin anew, and altogether finds what the mapper says. Run once more there is nothing left."""
    legs(short, 300)
    traffic(short, 60)
    wait(lambda: all(begin > 0 for begin, _ in log_bounds(short)), "the logs are trimmed", PATIENCE_S)
    checkpoint, file = tmp_path / "checkpoint", tmp_path / "handed"
    argv = ["tests.integration.spark.slow_mover", str(short.toml), str(checkpoint), str(file), "60"]
    job = Process("job", tmp_path, argv)
    wait(lambda: "hanging" in job.lines() or not job.running, "it has handed over 60", PATIENCE_S)
    job.kill()
    lines = [line.split() for line in file.read_text().splitlines()]
    handed = {(p, bytes.fromhex(key)): (int(lsn), target) for p, key, lsn, target in lines}
    wanted = changed(load_config(short.toml), "p", ring_size=1_000)
    whole = expected(short, wanted)
    assert 60 <= len(handed) < len(whole)
    with connect(short.toml) as site:
        name = hold_name("rebalance", "p", checkpoint)
        assert all(name in retention.holds(site.coordinator, p) for p in short.partitions())
        traffic(short, 80)
        rest = Noting()
        report = Finder(spark, site, wanted, "p", rest, checkpoint, max_offsets=2_000).run()
        assert report.started_over == ""
        assert len(rest.found) < len(handed | rest.found), "what was done is not done again"
        whole = expected(short, wanted)
        assert {k: v for k, v in (handed | rest.found).items() if k in whole} == whole
        again = Noting()
        last = Finder(spark, site, wanted, "p", again, checkpoint).run()
        assert again.found == {}
        assert last.batches == 0 or last.lsns != report.lsns, "nothing is read again but what nodes have noted since"


@pytest.mark.long
@pytest.mark.feature("S1")
def test_a_checkpoint_behind_the_trim_point_starts_over_and_says_so(
    spark: SparkSession, short: Cluster, tmp_path: Path
) -> None:
    wanted = changed(load_config(short.toml), "p", ring_size=1_000)
    legs(short, 200)
    with connect(short.toml) as site:
        Finder(spark, site, wanted, "p", Noting(), tmp_path / "c").run()
        ends = [end for _, end in log_bounds(short)]
        traffic(short, 320)
        ahead = "trimmed beyond the checkpoint"
        wait(lambda: all(now[0] > end for now, end in zip(log_bounds(short), ends)), ahead, PATIENCE_S)
        noting = Noting()
        report = Finder(spark, site, wanted, "p", noting, tmp_path / "c").run()
        assert re.search(r"offset \d+ of p-\d cannot be held: its log is trimmed up to \d+", report.started_over)
        assert noting.found == expected(short, wanted)
        with pytest.raises(ConfigError, match="is the checkpoint of another job"):
            Finder(spark, site, changed(wanted, "p", ring_size=999), "p", Noting(), tmp_path / "c").run()
        with pytest.raises(ConfigError, match="is no checkpoint of this job, and not empty"):
            Finder(spark, site, wanted, "p", Noting(), tmp_path).run()


@pytest.mark.feature("S1", "P6")
def test_a_job_that_cannot_end_well_says_why(
    spark: SparkSession, short: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mapper that names no partition is an error that names it; a marker that is not shown is not passed over."""
    legs(short, 40)
    wanted = changed(load_config(short.toml), "p", mapper="tests.integration.spark.world:nowhere")
    with connect(short.toml) as site:
        with pytest.raises(MapperError, match=r"nowhere \(version 1\) for \w+ .* said 'q', which is no partition"):
            Finder(spark, site, wanted, "p", Noting(), tmp_path / "a").run()
        monkeypatch.setattr("spark_jobs.finder.HIDDEN_S", 0)
        monkeypatch.setattr("spark_jobs.finder.PASSES", 2)
        monkeypatch.setattr(Finder, "_marked", lambda self, place: 1 << 40)
        with pytest.raises(LogError, match="does not show the marker that the coordinator names"):
            Finder(spark, site, load_config(short.toml), "p", Noting(), tmp_path / "b").run()


@pytest.mark.long
@pytest.mark.feature("S1")
@pytest.mark.usefixtures("quick_spark")
def test_the_command_counts_and_changes_nothing(short: Cluster, tmp_path: Path) -> None:
    """The mapper is changed in the file; the cluster keeps its own."""
    legs(short, 100)
    file = short.configuration("other.toml", partitions="2\nring_size = 1_000")
    command = [sys.executable, "-m", "spark_jobs.rebalance", "--config", str(file), "--policy", "p", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    wanted = expected(short, load_config(file))
    assert said["would_move"] == len(wanted) > 0
    by = {(p, to): n for p, at in said["partitions"].items() for to, n in at["would_move_to"].items()}
    assert by == Counter((p, target) for (p, _), (_, target) in wanted.items())
    asked = [*command[:5], "--policy", "q"]
    wrong = subprocess.run(asked, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "there is no policy q" in wrong.stderr
