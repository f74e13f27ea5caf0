"""rebalance of all policies of a zone, and what a job by Spark needs before it begins, on the memory adapters."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from halog.metadata import mapped_policies
from halog.metadata.move_jobs import JobAnnouncement
from halog.runtime.remap.announcement import Announcement
from tests.unit.cli.conftest import TOML, Aircraft, Cluster, Flight, running, wait_until

pytestmark = pytest.mark.feature("P13", "S1", "O1")

Run = Callable[..., Any]

TWO = TOML.replace(
    "[bindings]",
    '[zones.east]\nnodes = ["A", "B"]\n[policies.q]\nzone = "east"\npartitions = 2\n[bindings]\nFlight = "q"',
).replace("partitions = 6", "partitions = 3")


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    with running(Cluster(tmp_path, TWO), monkeypatch) as made:
        made.create(*(Aircraft(f"N{i}", miles=i) for i in range(20)), *(Flight("HA", i) for i in range(10)))
        yield made


def write(fleet: Cluster, name: str, p: int = 65_536, q: int = 65_536, more: str = "") -> Path:
    """A file with rings of these sizes."""
    path = fleet.directory / name
    text = TWO.replace("[policies.p]\n", f"[policies.p]\nring_size = {p}\n")
    path.write_text(text.replace("[policies.q]\n", f"[policies.q]\nring_size = {q}\n") + more)
    return path


def versions(fleet: Cluster) -> dict[str, int]:
    coordinator = next(iter(fleet.nodes.values())).runtime.adapters.coordinator
    return {name: mapping.version for name, mapping in mapped_policies.read_all(coordinator).items()}


def test_the_policies_of_the_zone_that_differ_are_changed_and_no_others(fleet: Cluster, halog: Run) -> None:
    file = write(fleet, "both.toml", p=333, q=222)
    dry = halog("rebalance", "--zone", "east", "--config", file, "--dry-run", "--format", "json")
    assert (dry.code, [d["policy"] for d in dry.json["policies"]]) == (0, ["q"]), dry
    assert versions(fleet) == {"p": 0, "q": 0}
    ran = halog("rebalance", "--zone", "east", "--config", file, "--timeout", 30, "--format", "json")
    assert (ran.code, [(d["policy"], d["state"]) for d in ran.json["policies"]]) == (0, [("q", "done")]), ran
    assert versions(fleet) == {"p": 0, "q": 1}
    ran = halog("rebalance", "--zone", "home", "--config", file, "--timeout", 30)
    assert (ran.code, versions(fleet)) == (0, {"p": 1, "q": 1}), ran
    again = halog("rebalance", "--zone", "home", "--config", file)
    assert again.code == 0
    assert "every mapping of zone home is the file's already; nothing was changed" in again.err


def test_a_change_that_is_under_way_is_joined(fleet: Cluster, halog: Run) -> None:
    file = write(fleet, "ring.toml", q=222)
    assert halog("rebalance", "--policy", "q", "--config", file, "--no-wait").code == 0
    ran = halog("rebalance", "--zone", "east", "--config", file, "--timeout", 30)
    assert (ran.code, versions(fleet)["q"]) == (0, 1), ran


def test_status_names_the_job_that_objects_are_left_to(fleet: Cluster, halog: Run) -> None:
    coordinator = next(iter(fleet.nodes.values())).runtime.adapters.coordinator
    with Announcement(coordinator, "q", JobAnnouncement("job-7", 1)):
        assert halog("rebalance", "--policy", "q", "--config", write(fleet, "r.toml", q=222), "--no-wait").code == 0
        wait_until(lambda: halog("rebalance", "status", "--format", "json").json["left_to"] == {"q": "job-7"})
        ran = halog("rebalance", "status")
        assert (ran.code, "policy q: job-7 finds what is to move" in ran.err) == (4, True), ran
    wait_until(lambda: halog("rebalance", "status").code == 0)
    assert halog("rebalance", "status", "--format", "json").json["left_to"] == {}


def test_policies_the_cluster_does_not_have_yet_are_passed_over(fleet: Cluster, halog: Run) -> None:
    file = write(fleet, "new.toml", q=222, more='[policies.new]\nzone = "east"\n')
    ran = halog("rebalance", "--zone", "east", "--config", file, "--timeout", 30, "--format", "json")
    assert (ran.code, [d["policy"] for d in ran.json["policies"]]) == (0, ["q"]), ran


def test_all_are_checked_before_the_first_is_begun(fleet: Cluster, halog: Run) -> None:
    """`home` has `p`, and `q` by a file that puts it there; the change of `q` cannot be begun."""
    file = write(fleet, "both.toml", p=333, q=222)
    file.write_text(file.read_text().replace('zone = "east"', 'zone = "home"'))
    coordinator = next(iter(fleet.nodes.values())).runtime.adapters.coordinator
    found = mapped_policies.read(coordinator, "q")
    said = {**found.said, "changing": {"to": {"mapper": "consistent_hash", "partitions": 2, "ring_size": 444}}}
    coordinator.set("policies/q", json.dumps(said).encode(), found.znode)
    ran = halog("rebalance", "--zone", "home", "--config", file)
    assert (ran.code, "policy q: another change is under way" in ran.err) == (5, True), ran
    assert versions(fleet)["p"] == 0
    assert mapped_policies.read(coordinator, "p").mapping.changing is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--zone", "west"], "there is no zone west; known are home, east"),
        (["--zone", "east", "--policy", "q"], "give --policy or --zone"),
        (["--policy", "q", "--spark", "--no-wait"], "--no-wait is of no use to this job"),
        (["--policy", "q", "--checkpoint", "c", "--dry-run"], "--checkpoint is of no use to this job"),
        (["--spark"], "name one with --policy; "),
    ],
)
def test_a_wrong_call_changes_nothing(fleet: Cluster, halog: Run, words: list[str], said: str) -> None:
    ran = halog("rebalance", "--config", write(fleet, "ring.toml", p=333, q=222), *words)
    assert (ran.code, said in ran.err) == (2, True), ran
    assert versions(fleet) == {"p": 0, "q": 0}


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow", "pandas"])
def test_without_spark_the_command_says_what_to_install(
    fleet: Cluster, halog: Run, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)  # type: ignore[arg-type]
    ran = halog("rebalance", "--policy", "q", "--config", write(fleet, "ring.toml", q=222), "--spark")
    assert (ran.code, ran.out) == (2, ""), ran
    assert ran.err.startswith(f"halog: --spark needs {missing}, which is not installed: pip install 'halog[spark]'")
    assert versions(fleet) == {"p": 0, "q": 0}
