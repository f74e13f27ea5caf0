"""A change of a mapping whose objects a Spark job finds and real nodes move, under traffic (S1, P13)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from halog.config import load_config
from halog.errors import HalogError, RefusedError
from halog.metadata import log_holds as retention, move_jobs as jobs
from halog.runtime.keys.key_owners import Places
from halog.schema.registry import DEFAULT
from spark_jobs import progress
from spark_jobs.holds import hold_name
from spark_jobs.moving import MovingJob
from spark_jobs.progress import FinderProgress
from spark_jobs.site import connect
from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.load import Load
from tests.integration.cluster.processes import Process, wait
from tests.integration.site import Site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.timeout(480), pytest.mark.feature("S1", "P13")]

STEADY = 2_400
PATIENCE_S = 240.0
PARTITIONS = 4
PACE_S = 0.02
"""Between two transactions of the one thread there is, so that only moves are in its way: a job reads all it writes."""


@pytest.fixture
def moved(site: Site, tmp_path: Path) -> Iterator[Cluster]:
    """Two nodes that hold some objects nobody touches."""
    made = Cluster(tmp_path, site, nodes="AB", partitions=PARTITIONS, async_=0, every=200)
    try:
        made.start()
        made.whole()
        made.client().load([Aircraft(f"steady{i}", miles=i) for i in range(STEADY)], batch=10)
        yield made
    finally:
        made.close()


def ring_file(cluster: Cluster) -> Path:
    """Another ring: three objects of four belong elsewhere."""
    return cluster.configuration("ring.toml", partitions=f"{PARTITIONS}\nring_size = 1_000\nmove_objects = 20")


def where(cluster: Cluster) -> dict[str, list[tuple[str, bytes, int]]]:
    """Tail of each steady object → (partition, reference, miles), from the active nodes' own copies."""
    info, found = DEFAULT.info(Aircraft), dict[str, list[tuple[str, bytes, int]]]()
    for table in cluster.tables():
        assert table.active is not None
        for one in cluster.stored(table.active.node, table.name):
            if one.key.startswith(info.family_id):
                (tail,) = info.decode_index_key(one.key)
                if tail.startswith("steady"):
                    found.setdefault(tail, []).append((table.name, one.ref, int(tail[6:])))
    return found


def by_mapper(file: Path) -> dict[str, str]:
    """Where each steady object belongs, by the mapper called here."""
    info = DEFAULT.info(Aircraft)
    owner = Places(load_config(file), lambda name: DEFAULT.info(name).parsed).owner("Aircraft")
    tails = [f"steady{i}" for i in range(STEADY)]
    return {tail: owner.partition("Aircraft", info.routing_key((tail,))) for tail in tails}


def check(cluster: Cluster, file: Path, before: dict[str, list[tuple[str, bytes, int]]]) -> None:
    """Nothing lost, doubled or misplaced, and everything is what it was."""
    after = where(cluster)
    assert {tail: [p for p, _, _ in at] for tail, at in after.items()} == {t: [p] for t, p in by_mapper(file).items()}
    assert {tail: at[0][1] for tail, at in after.items()} == {tail: at[0][1] for tail, at in before.items()}
    with cluster.client("judge").transaction() as tx:
        assert all(tx.get(Aircraft, f"steady{i}").miles == i for i in range(0, STEADY, 60))


def goes_on(load: Load) -> None:
    """Traffic is answered; by which partitions, the mapping says."""
    before = len(load.acked)
    wait(lambda: len(load.acked) > before + 10, "commits go on")


def elsewhere(file: Path, before: dict[str, list[tuple[str, bytes, int]]]) -> int:
    wanted = by_mapper(file)
    return sum(at[0][0] != wanted[tail] for tail, at in before.items())


def moved_by_nodes(cluster: Cluster) -> int:
    """What nodes have found by themselves in the change under way."""
    return sum(sum(answered(cluster, name)["rebalance"]["moved"].values()) for name in "AB")


def answered(cluster: Cluster, node: str) -> dict[str, Any]:
    """Its status, from a node that is there, however busy."""
    found: dict[str, Any] = {}

    def told() -> bool:
        with suppress(HalogError):
            found.update(cluster.status(node))
        return bool(found)

    wait(told, f"{node} answers")
    return found


def test_the_job_moves_objects_under_traffic_and_nodes_prove_it(
    spark: SparkSession, moved: Cluster, tmp_path: Path
) -> None:
    """All that nobody else moves the job moves, for nodes leave it to it. Run again, it finds the change done."""
    file, before = ring_file(moved), where(moved)
    assert len(before) == STEADY
    by_the_nodes: list[int] = []
    with Load(moved.client(), "job", 1, PACE_S) as load, connect(file) as site:

        def tell(stage: str, partitions: int, rows: int) -> None:
            by_the_nodes.append(moved_by_nodes(moved))

        job = MovingJob(site, spark, site.own, "p", tmp_path / "c", PATIENCE_S, max_offsets=1_000, tell=tell)
        outcome = job.run()
        assert (outcome.progress.state, outcome.progress.version) == ("done", 1)
        goes_on(load)
        assert set(by_the_nodes) == {0}, "while the job was at work"
        assert outcome.report.counts["moved"] >= elsewhere(file, before) > STEADY / 2
        assert outcome.report.counts.get("refused", 0) == 0
        assert site.coordinator.get(jobs.path_of("p")) is None
        assert [retention.holds(site.coordinator, p) for p in moved.partitions()] == [{}] * PARTITIONS
        again = job.run()
        assert (again.progress.state, again.progress.version, again.report.batches) == ("done", 1, 0)
        assert again.report.counts == outcome.report.counts, "of all runs from this checkpoint"
    assert load.errors == []
    check(moved, file, before)
    load.check_objects(moved.client("judge"))


def noted(checkpoint: Path) -> FinderProgress | None:
    """What a job has written down."""
    file = checkpoint / progress.FILE
    return msgspec.msgpack.decode(file.read_bytes(), type=FinderProgress) if file.exists() else None


@pytest.mark.long
@pytest.mark.usefixtures("quick_spark")
def test_a_driver_killed_half_way_is_started_again_and_ends_right(moved: Cluster, tmp_path: Path) -> None:
    """kill -9: the logs stay held and the rest is left to whoever starts it again, with the command line; it goes on
    from its checkpoint, and says what all its runs have moved."""
    file, before, checkpoint = ring_file(moved), where(moved), tmp_path / "c"
    options = ["--config", str(file), "--policy", "p", "--checkpoint", str(checkpoint), "--format", "json"]
    driver = ["spark_jobs.rebalance", "--move", "--spark-master", "local[1]", "--max-offsets", "200", *options]

    there = elsewhere(file, before)

    def moves() -> bool:
        at = noted(checkpoint)
        return at is not None and at.counts.get("moved", 0) >= there / 8

    with Load(moved.client(), "killed", 1, PACE_S) as load:
        first = Process("first", tmp_path, driver)
        wait(lambda: moves() or not first.running, lambda: f"it moves objects: {first.last_words()}", PATIENCE_S)
        assert first.running, first.last_words()
        first.kill()
        at = noted(checkpoint)
        assert at is not None
        with connect(file) as site:
            name = hold_name("rebalance", "p", checkpoint)
            assert all(name in retention.holds(site.coordinator, p) for p in moved.partitions())
            assert site.coordinator.get(jobs.path_of("p")) is not None, "nobody has taken it back"
        goes_on(load)
        second = Process("second", tmp_path, ["halog.cli.main", "rebalance", *options, "--spark-master", "local[1]"])
        assert second.exit_code(PATIENCE_S) == 0, second.last_words()
        goes_on(load)
    said: dict[str, Any] = json.loads(second.lines()[-1])
    assert (said["state"], said["clean"], said["started_over"]) == ("done", PARTITIONS, "")
    assert said["moved"] >= at.counts["moved"]
    last = noted(checkpoint)
    assert last is not None
    assert last.attempt == 0
    assert load.errors == []
    check(moved, file, before)
    load.check_objects(moved.client("judge"))
    with connect(file) as site:
        assert [retention.holds(site.coordinator, p) for p in moved.partitions()] == [{}] * PARTITIONS


@pytest.mark.long
def test_a_job_that_is_turned_back_says_so(spark: SparkSession, moved: Cluster, tmp_path: Path) -> None:
    """What has moved moves back, by the nodes."""
    file, before = ring_file(moved), where(moved)
    turned: list[int] = []
    with connect(file) as site:

        def tell(stage: str, partitions: int, rows: int) -> None:
            if not turned:
                turned.append(moved.client().runtime.operators.turn_back("p"))

        with pytest.raises(RefusedError, match="turned back"):
            MovingJob(site, spark, site.own, "p", tmp_path / "c", PATIENCE_S, max_offsets=100, tell=tell).run()
        assert turned == [2]
        wait(lambda: _is_done(moved, 2), "all is back", PATIENCE_S)
    check(moved, moved.toml, before)
    assert Counter(len(at) for at in where(moved).values()) == {1: STEADY}


def _is_done(cluster: Cluster, version: int) -> bool:
    data = cluster.znode("policies/p")
    assert data is not None
    now = json.loads(data)
    return now.get("mapping") == version and "changing" not in now
