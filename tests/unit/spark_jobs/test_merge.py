"""The driver program that compares two sites: what it refuses at once, and what it says in the end (S1, M3)."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from halog.config import ClusterConfig, Config, PolicyConfig, RemoteSiteConfig, SiteConfig
from halog.errors import ConfigError, LogError
from restore.merge import Kind
from restore.plan import Fate
from spark_jobs import merge
from spark_jobs.branching import BranchRelation
from spark_jobs.classifying import BOTH, KEEP_INITIATING, KEEP_SOURCE
from spark_jobs.comparison import Comparison, ComparisonReport
from spark_jobs.counted import Group
from spark_jobs.history import HistoryState
from spark_jobs.snapshot import Place

pytestmark = pytest.mark.feature("S1", "M3")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Missing option '--policy'"),
        (["--policy", "p"], "Missing option '--source'"),
        (["--policy", "p", "--source", "east", "--out", "o"], "--out needs --checkpoint"),
    ],
)
def test_a_wrong_call_is_refused_before_anything_is_asked(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert merge.main(["--config", "/nonexistent.toml", *words]) == 2
    assert said in capsys.readouterr().err


REPORT = ComparisonReport(
    {"p-0": BranchRelation(True, "parted", 7), "p-1": BranchRelation(False, "the same", 0)}, 3, 1.25
)
COUNTED = {
    "p-0": [
        Group(Kind.STATE_CONFLICT.value, KEEP_SOURCE, True, True, 2, 7),
        Group(Kind.TAKEN.value, KEEP_INITIATING, False, True, 3, 3),
        Group(Kind.ALIKE.value, BOTH, True, True, 1, 2),
    ]
}


def test_what_it_says_has_the_counts_of_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    """Of two keys changed otherwise by seven transactions two stand, two were overruled, and three superseded."""
    found = merge.document(REPORT, COUNTED)
    totals = {
        "keys": 6,
        "conflicts": {Kind.STATE_CONFLICT.value: 2},
        "deferred": 0,
        "writes": {Fate.MERGED.value: 2 + 3 + 2, Fate.OVERRULED.value: 2, Fate.SUPERSEDED.value: 3},
        "changed": 3,
    }
    empty = {"keys": 0, "conflicts": {}, "deferred": 0, "writes": {}, "changed": 0}
    assert found == {
        "partitions": [
            {"partition": "p-0", "histories": "parted", "fork_lsn": 7, **totals},
            {"partition": "p-1", "histories": "the same", "fork_lsn": 0, **empty},
        ],
        "totals": totals,
        "batches": 3,
        "seconds": 1.2,
    }
    merge.show(found, "json")
    assert json.loads(capsys.readouterr().out) == found
    merge.show(found, "table")
    said = capsys.readouterr().out
    assert "state conflict 2" in said
    assert "2 overruled" in said


def site(home: str = "west") -> Any:
    """Of the west."""
    policies = {"p": PolicyConfig("zone", home=home)}
    config = Config(
        ClusterConfig("c"), SiteConfig("west"), policies=policies, sites={"east": RemoteSiteConfig("k", "z")}
    )
    places = [Place("p-0", 0, "t", "s", "00" * 16, "west")]
    return SimpleNamespace(config=config, own=config, places_of=lambda names: places if names == ["p"] else [])


def test_a_directory_that_holds_anything_else_is_not_written_over(tmp_path: Path) -> None:
    """One it has written itself is, also by another run."""
    out, spark = tmp_path / "out", SimpleNamespace()
    job = Comparison(spark, site(), "p", "east", tmp_path / "c")  # type: ignore[arg-type]
    job.writes(out)
    out.mkdir()
    (out / "part-0").touch()
    job.writes(out)
    (tmp_path / "mine").touch()
    for precious in (tmp_path, tmp_path / "mine"):
        with pytest.raises(ConfigError, match="nothing that this job has written"):
            job.writes(precious)


@pytest.mark.parametrize(
    ("home", "policy", "source", "said"),
    [
        ("west", "p", "north", "north is no other site"),
        ("west", "q", "east", "no partitions of policy q"),
        ("", "p", "east", "policy p has no home"),
    ],
)
def test_what_has_no_two_branches_is_refused(home: str, policy: str, source: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        Comparison(SimpleNamespace(), site(home), policy, source, tmp_path)  # type: ignore[arg-type]


def test_a_log_that_was_not_read_from_before_the_fork_is_told(tmp_path: Path) -> None:
    """Its beginning was trimmed, and its snapshot is newer."""
    job = Comparison(SimpleNamespace(), site(), "p", "east", tmp_path)  # type: ignore[arg-type]
    place = Place("p-0", 0, "t", "s", "00" * 16, "west")
    marked = [HistoryState(9 + n, replace(place.empty, lsn=7 + n)).pack() for n in range(2)]
    assert job._in_front_of(BranchRelation(True, "parted", 8, begin=(1, 9)), place, marked) == marked[1]
    with pytest.raises(LogError, match=r"site west is trimmed, and read from its snapshot at lsn 7, .* behind lsn 5"):
        job._in_front_of(BranchRelation(True, "parted", 5, begin=(1, 6)), place, marked)
