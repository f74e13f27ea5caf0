"""`halog restore --spark`: branches are closed, a job looks at them, nodes merge by what it found (S1, M2)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import spark_jobs.merge
from halog.runtime.merge import spark_results as classified
from halog.testing.cluster import Cluster
from tests.unit.cli.conftest import Ran
from tests.unit.cli.merge.test_conflicts import parted
from tests.unit.cli.merge.test_restore import MERGED, noted, run
from tests.unit.cli.sites.test_sites import files
from tests.unit.sites.test_restoring import coordinator
from tests.unit.sites.test_restoring_classified import job, stands
from tests.unit.sites.test_switching import owners
from tests.unit.sites.two import east, west

pytestmark = pytest.mark.feature("S1", "M2", "X4")
__all__ = ["east", "files", "parted", "west"]
Halog = Callable[..., Ran]


@pytest.fixture
def jobs(west: Cluster, east: Cluster, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What jobs were begun with; without Spark they find the same."""
    begun: list[tuple[Any, ...]] = []

    def publish(config: Path, policy: str, source: str, checkpoint: Path | None, **more: Any) -> None:
        begun.append((policy, source, checkpoint, sorted(more["names"]), sorted(more["done"]), more["master"]))
        assert owners(west) == {""}, "its log is its own until it was merged"
        for name in set(more["names"]) - set(more["done"]):
            job(west, east, name)

    monkeypatch.setattr(spark_jobs.merge, "publish", publish)
    return begun


def test_a_job_is_run_between_closing_and_merging(
    west: Cluster, east: Cluster, parted: dict[str, Path], halog: Halog, jobs: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    """Once for what a policy has at a source; and not at all for what was merged before."""
    words = ["restore", "--source", "east", "--checkpoint", str(tmp_path)]
    ran = run(halog, parted, *words)
    assert ran.code == 0, ran.err
    assert {d["phase"] for d in ran.json} <= {"done", "nothing"}
    names = sorted(west.tables())
    (policy,) = {t.policy for t in west.tables().values()}
    assert jobs == [(policy, "east", tmp_path / f"{policy}-east", names, [], "local[*]")]
    stands(east, MERGED)
    again = run(halog, parted, *words)
    assert again.code == 0, again.err
    assert len(jobs) == 1


def test_what_a_job_found_before_is_merged_by(
    west: Cluster, east: Cluster, parted: dict[str, Path], halog: Halog, jobs: list[tuple[Any, ...]]
) -> None:
    refused = run(halog, parted, "restore", "--source", "east", "--classified")
    assert refused.code == 5
    assert any("no Spark job has found" in d["why"] for d in refused.json)
    assert not jobs
    spark = run(halog, parted, "restore", "--source", "east", "--spark-master", "spark://there:7077")
    assert spark.code == 0, spark.err
    assert jobs[0][5] == "spark://there:7077"
    assert jobs[0][2] is None
    stands(east, MERGED)


@pytest.mark.parametrize("other", ["--dry-run", "--classified"])
def test_what_makes_no_sense_together_is_refused(
    west: Cluster, parted: dict[str, Path], halog: Halog, other: str
) -> None:
    ran = run(halog, parted, "restore", "--spark", other)
    assert (ran.code, f"--spark is of no use with {other}" in ran.err) == (2, True), ran


def test_without_spark_it_says_what_to_install(
    west: Cluster, east: Cluster, parted: dict[str, Path], halog: Halog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)  # type: ignore[arg-type]
    ran = run(halog, parted, "restore", "--source", "east", "--spark")
    assert ran.code == 2
    assert "--spark needs pyspark, which is not installed" in ran.err
    assert "without --spark the nodes compare by themselves" in ran.err
    assert not any(classified.classified_of(coordinator(east), name) for name in east.tables())
    assert noted(west) != MERGED
