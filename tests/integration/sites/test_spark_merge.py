"""Two real sites that both went on, compared by Spark as by one process; also by a driver that is killed (S1, M3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import spark_jobs
from halog.config import load_config
from halog.errors import ConfigError
from halog.metadata import log_holds as retention
from halog.metadata.partition_tables import table_of
from halog.ports import TopicPartition
from restore.branch import side
from restore.branches import BranchComparison, compared, outcomes
from restore.merge import AGREED, Difference
from restore.plan import totals
from restore.results import BY
from spark_jobs import progress
from spark_jobs.branching import FOLDED, INITIATING, SIDES, SOURCE
from spark_jobs.comparison import BEHIND, Comparison, ComparisonProgress
from spark_jobs.holds import hold_name
from spark_jobs.merge import as_dict
from spark_jobs.pieces import classify_all, on_both
from spark_jobs.site import connect
from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.processes import Process
from tests.integration.sites.test_restoring import dies
from tests.integration.sites.test_taking_over import command, level
from tests.integration.sites.two import EAST, WEST, TwoSites
from tests.unit.restore.versions import DEFINITIONS, new, old

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.timeout(480),
    pytest.mark.feature("S1", "M3", "M1"),
    pytest.mark.usefixtures("quick_spark"),
]

COMMON = 60
"""Objects that both sites have when they part."""


def write(node: Any, name: str) -> None:
    """What a site does alone: of the common objects it changes, deletes and replaces some, and creates others; the
    other one does the same to most of them."""
    for i in range(COMMON):
        with node.transaction() as tx:
            found = tx.get(Aircraft, f"N{i}")
            if i % 5 in (0, 1 if name == WEST else 2):
                tx.delete(found)
            elif i % 7:
                found.miles += 1 if i % 3 else ord(name[0])  # the same at both, or not
        if i % 10 == 0:
            with node.transaction() as tx:
                tx.create(Aircraft(f"N{i}", miles=ord(name[0])))
    for i in range(20):
        with node.transaction() as tx:  # over both partitions
            tx.create(Aircraft(f"{name}{i}"))
            tx.create(Aircraft(f"new{i}", blob=name.encode()))
            tx.get(Aircraft, f"N{(3, 4, 8)[i % 3]}").land(i)


@pytest.fixture
def parted(two_sites: TwoSites) -> TwoSites:
    two_sites.start()
    west = two_sites.west.client()
    west.load([Aircraft(f"N{i}", miles=i) for i in range(COMMON)], batch=5)
    level(two_sites)
    two_sites.between.cut()
    command(two_sites.east, "promote", "--may-fork", "--cluster", two_sites.east.name)
    two_sites.east.whole()
    write(west, WEST)
    write(two_sites.east.client(), EAST)
    two_sites.between.heal()
    return two_sites


def plainly(config: Path, *, three_way: bool = True) -> dict[str, BranchComparison]:
    """By one process."""
    found = {}
    with connect(config) as site:
        remote = site.reach(EAST)
        try:
            for table in site.tables:
                tp, theirs = TopicPartition(table.topic, table.index), table_of(remote.coordinator, table.name)
                found[table.name] = compared(
                    side(EAST, remote.log, tp, theirs.beginning(EAST)),
                    side(WEST, site.log, tp, table.beginning(WEST)),
                    three_way=three_way,
                )
        finally:
            remote.close()
    return found


def as_written(partition: str, found: Difference) -> dict[str, Any]:
    """What is to be in a line of JSON, but for the times."""
    stands = "initiating" if found.by_default == found.initiating else "source"
    row: dict[str, Any] = {
        "partition": partition,
        "key": found.key.hex(),
        "kind": found.kind.value,
        "stands": "both" if found.source == found.initiating else stands,
    }
    for name in ("base", "source", "initiating"):
        state = getattr(found, name)
        row[name] = state and {"ref": state.ref.hex(), "value": state.value and state.value.hex()}
    for name, by in (("source", found.source_by), ("initiating", found.initiating_by)):
        row[f"{name}_lsn"], row[f"{name}_txs"] = (by[-1].lsn if by else None), len(by)
    return row


def written(out: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The lines by partition and key; each once."""
    lines = [json.loads(line) for file in sorted(out.glob("part-*.json")) for line in file.read_text().splitlines()]
    found = {(line["partition"], line["key"]): line for line in lines}
    assert len(found) == len(lines)
    for line in lines:
        assert (line.pop("source_time") is None) == (line["source_lsn"] is None)
        assert (line.pop("initiating_time") is None) == (line["initiating_lsn"] is None)
    return found


def expected(found: dict[str, BranchComparison], *, everything: bool) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (name, d.key.hex()): as_written(name, d)
        for name, one in found.items()
        for d in one.keys
        if everything or d.kind not in AGREED
    }


def noted(checkpoint: Path) -> ComparisonProgress | None:
    file = checkpoint / progress.FILE
    return msgspec.msgpack.decode(file.read_bytes(), type=ComparisonProgress) if file.exists() else None


def held(config: Path, checkpoint: Path) -> list[bool]:
    """Is the log of each partition held for the job, at both sites?"""
    name = hold_name("merge", "p", checkpoint)
    with connect(config) as site:
        remote = site.reach(EAST)
        try:
            return [
                name in retention.holds(c, t.name) for t in site.tables for c in (site.coordinator, remote.coordinator)
            ]
        finally:
            remote.close()


@pytest.mark.long
def test_a_driver_killed_half_way_and_started_again_finds_each_key_once(parted: TwoSites, tmp_path: Path) -> None:
    """As one process finds them, by the same counts; also where a write was killed, and where it is started anew."""
    config, checkpoint, out = parted.west.toml, tmp_path / "c", tmp_path / "out"
    argv = [
        "spark_jobs.merge",
        "--config",
        str(config),
        "--policy",
        "p",
        "--source",
        EAST,
        "--spark-master",
        "local[1]",
        "--checkpoint",
        str(checkpoint),
        "--out",
        str(out),
        "--max-offsets",
        "60",
        "--format",
        "json",
    ]

    dies("first", tmp_path, rf"\d+ notes ComparisonProgress {BEHIND} left 0", argv)
    at = noted(checkpoint)
    assert at is not None
    assert (at.stage, at.batch >= 0, out.exists()) == (BEHIND, True, False)
    assert all(held(config, checkpoint))
    plain = plainly(config)
    assert all(one.forked for one in plain.values())
    second = Process("second", tmp_path, argv)
    assert second.exit_code(150) == 0, second.last_words()
    assert written(out) == expected(plain, everything=False)
    assert not any(held(config, checkpoint))
    said = json.loads(second.lines()[-1])
    counts = {name: totals(outcomes(one)) for name, one in plain.items()}
    assert {p["partition"]: p["histories"] for p in said["partitions"]} == dict.fromkeys(plain, "parted")
    for one in said["partitions"]:
        assert one["fork_lsn"] == plain[one["partition"]].fork_lsn
        assert {name: one[name] for name in as_dict(counts[one["partition"]])} == as_dict(counts[one["partition"]])
    assert said["totals"]["keys"] == sum(c.keys for c in counts.values())
    assert len(said["totals"]["conflicts"]) >= 4, "the sites did enough to each other"
    (out / "part-99999-of-a-killed-write.json").write_text(next(out.glob("part-*.json")).read_text())
    third = Process("third", tmp_path, [*argv, "--all"])
    assert third.exit_code(150) == 0, third.last_words()
    assert written(out) == expected(plain, everything=True)
    assert json.loads(third.lines()[-1])["batches"] == 0, "nothing is read again"


@pytest.mark.long
def test_any_spark_application_has_it_as_a_dataframe(spark: SparkSession, parted: TwoSites, tmp_path: Path) -> None:
    """By either rule, from one reading; and it says what cannot be compared, or written over."""
    config = parted.west.toml
    for three_way in (True, False):
        rows = spark_jobs.classified(
            spark, config, "p", source=EAST, checkpoint=tmp_path / "c", three_way=three_way
        ).collect()
        plain = plainly(config, three_way=three_way)
        kinds = {(row.partition, bytes(row.key)): (row.kind, row.source_txs, row.initiating_txs) for row in rows}
        assert len(kinds) == len(rows)
        assert kinds == {
            (name, d.key): (d.kind.value, len(d.source_by), len(d.initiating_by))
            for name, one in plain.items()
            for d in one.keys
        }
        for row in rows:
            last = {d.key: d.source_by for d in plain[row.partition].keys}[bytes(row.key)]
            assert (row.source_time is None) == (not last)
    with connect(config) as site:
        with pytest.raises(ConfigError, match="north is no other site"):
            Comparison(spark, site, "p", "north", tmp_path / "x")
        with pytest.raises(ConfigError, match="no partitions of policy q"):
            Comparison(spark, site, "q", EAST, tmp_path / "x")
        again = Comparison(spark, site, "p", EAST, tmp_path / "c")
        again.run()
        with pytest.raises(ConfigError, match="nothing that this job has written"):
            again.writes(tmp_path)
    with connect(load_config(parted.east.toml)) as site, pytest.raises(ConfigError, match="checkpoint of another job"):
        Comparison(spark, site, "p", WEST, tmp_path / "c").run()


def test_a_transaction_is_on_neither_branch_if_the_other_one_decided_or_brought_it(spark: SparkSession) -> None:
    """Known from the rows of both, wherever they were written; of each partition for itself."""
    state = b"r", b"0", b"r", b"1"

    def touch(place: int, side: int, key: bytes, tx: bytes | None) -> tuple[Any, ...]:
        return (place, side, key, 5, 5, 1, 1, *state, None, None, tx, b"")

    decided = [touch(0, side, b"a", b"vote") for side in (0, 1)]
    others = [
        touch(1, 0, b"a", b"vote"),
        touch(0, 0, b"b", b"brought"),
        touch(0, 1, b"c", b"own"),
        touch(0, 1, b"d", None),
    ]
    brought = [(0, 1, *[None] * 11, tx, None) for tx in (b"brought", b"nobody's")]
    followed = [(0, side, *[None] * 9, b"carried", b"before", None, None) for side in (0, 1)]
    rows = spark.createDataFrame(decided + others + brought + followed, FOLDED)
    gone = on_both(rows)
    assert sorted(gone) == [(0, 0, b"brought"), (0, 0, b"vote"), (0, 1, b"vote")]
    found = classify_all(rows, ["p-0", "p-1"], gone, three_way=True).collect()
    assert sorted((r.partition, bytes(r.key), r.kind, r.source_txs, r.initiating_txs) for r in found) == [
        ("p-0", b"a", "same", 0, 0),
        ("p-0", b"b", "same", 0, 0),
        ("p-0", b"c", "taken", 0, 1),
        ("p-0", b"d", "taken", 0, 1),
        ("p-1", b"a", "kept", 1, 0),
    ]


def test_what_two_versions_of_a_type_wrote_is_compared_as_the_newest_reads_it(spark: SparkSession) -> None:
    """Executors are given the definitions."""
    now = {SOURCE: new(2), INITIATING: old(2)}
    rows = [
        (0, side, b"a", 5, 5, 1, 1, b"r", old(1), b"r", now[side], None, None, None, BY.pack(b"t", 5, 1))
        for side in SIDES
    ]
    folded = spark.createDataFrame(rows, FOLDED)
    for definitions, kind in (((), "state conflict"), ([d.text for d in DEFINITIONS], "alike")):
        (found,) = classify_all(folded, ["p-0"], (), definitions, three_way=True).collect()
        assert found.kind == kind
