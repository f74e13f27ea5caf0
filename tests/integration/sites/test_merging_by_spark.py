"""Two real sites that both went on become one history by what a Spark job finds: drivers, commands and nodes are
killed, and the source goes on meanwhile (S1, M2)."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from halog.metadata.partition_tables import table_of
from halog.metadata.restore_requests import DONE, MERGING, SETTLING, read_restore
from halog.ports import TopicPartition
from halog.runtime.merge import spark_results as classified
from restore.branch import side
from restore.branches import BranchComparison
from restore.merge import Difference
from restore.undoing import report_of
from spark_jobs import progress
from spark_jobs.branching import INITIATING, SIDES, SOURCE, branch_of
from spark_jobs.comparison import ComparisonProgress
from spark_jobs.publishing import PUBLISHED_DIRECTORY, SENT, PublishingProgress
from spark_jobs.site import connect
from tests.faults.dying import argv_dying
from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.processes import Process
from tests.integration.sites.test_restoring import argv_of, dies, halog, nodes_die
from tests.integration.sites.test_spark_merge import noted, parted, plainly
from tests.integration.sites.test_taking_over import command, land, level
from tests.integration.sites.two import EAST, WEST, TwoSites

__all__ = ["parted"]
pytestmark = [
    pytest.mark.timeout(480),
    pytest.mark.feature("S1", "M2", "M3"),
    pytest.mark.usefixtures("quick_spark"),
]

OF = {side: {branch_of(place, side) for place in range(2)} for side in SIDES}
"""The numbers of a site's branches."""
LONGER = 120
"""West's branch has so many more records: two micro-batches of"""
BATCH = 120
JOB = r"(?:notes |put |(?:create|delete) (?:classified/|restores/|holders/\S+/(?:merge-p|classified))).*"
"""What it notes, gives to the topic, and changes at coordinators, but for what is set once more. What the command does
before is of other tests."""
DRIVERS = 40
"""More than there are steps."""


def told(found: Difference) -> tuple[Any, ...]:
    """What is to be in the report."""
    by = [[(c.tx, c.lsn, c.time_ms) for c in side] for side in (found.source_by, found.initiating_by)]
    return (found.key, found.kind, found.base, found.source, found.initiating, *by)


def reported(two_sites: TwoSites, merges: dict[str, str]) -> dict[str, list[tuple[Any, ...]]]:
    """What stands in the source's log, of each partition."""
    found = {}
    with connect(two_sites.east.toml) as site:
        for name, merge in merges.items():
            table = table_of(site.coordinator, name)
            tp = TopicPartition(table.topic, table.index)
            entries = report_of(side(EAST, site.log, tp, table.beginning(EAST)), bytes.fromhex(merge))
            found[name] = [told(entry.found) for entry in entries]
    return found


def as_reported(plain: dict[str, BranchComparison]) -> dict[str, list[tuple[Any, ...]]]:
    return {name: [told(d) for d in one.keys] for name, one in plain.items()}


def stage(checkpoint: Path) -> str:
    """Of the records; "": none yet."""
    file = checkpoint / PUBLISHED_DIRECTORY / progress.FILE
    return msgspec.msgpack.decode(file.read_bytes(), type=PublishingProgress).stage if file.exists() else ""


def runs(config: Path) -> dict[str, classified.ClassifiedResult | None]:
    with connect(config) as site:
        return {t.name: classified.classified_of(site.coordinator, t.name) for t in site.tables}


def told_of(two_sites: TwoSites) -> list[str]:
    """The partitions whose nodes can find what a job has found."""
    return [name for name, found in runs(two_sites.east.toml).items() if found is not None]


def go_on(node: Any) -> None:
    """The source does something to what both have touched, what one has, and what none has."""
    for name in ("N1", "N3", "N10", "N14", "east3", "new5"):
        with node.transaction() as tx:
            found = tx.find(Aircraft, name)
            if found is None:
                tx.create(Aircraft(name, miles=77))
            else:
                found.miles += 1_000
    with node.transaction() as tx:
        tx.create(Aircraft("later"))


def one_is_read(at: ComparisonProgress | None) -> bool:
    """All of one site's branches, and not all of the other one's."""
    if at is None:
        return False
    read = [all(at.offset(n) >= at.ends[n] for n in at.carried if n in OF[side]) for side in SIDES]
    return read[SOURCE] != read[INITIATING]


def said_by(cluster: Cluster, node: str, partition: str) -> list[str]:
    """The phases of a restore that such a node came to, in front of the last of which it died."""
    steps = [step.split() for step in (cluster.directory / f"{node}.steps").read_text().splitlines()]
    return [step[3] for step in steps if step[2:3] == [f"restores/{partition}"]]


@pytest.mark.long
def test_one_command_lets_a_job_find_and_the_nodes_merge(parted: TwoSites, tmp_path: Path) -> None:
    """What one process would have found, and all of it is reported."""
    plain = plainly(parted.west.toml)
    words = ["restore", "--source", EAST, "--checkpoint", str(tmp_path / "c"), "--spark-master", "local[1]"]
    done = {d["partition"]: d for d in halog(parted.west, *words)}
    assert {d["phase"] for d in done.values()} == {DONE}
    assert {name: d["objects"] for name, d in done.items()} == {name: len(one.keys) for name, one in plain.items()}
    assert reported(parted, {name: d["merge"] for name, d in done.items()}) == as_reported(plain)
    level(parted)


def merge_job(west: Cluster, checkpoint: Path) -> list[str]:
    """The job by itself, which tells what it finds, batch by batch."""
    return [
        "spark_jobs.merge",
        "--config",
        str(west.toml),
        "--policy",
        "p",
        "--source",
        EAST,
        "--spark-master",
        "local[1]",
        "--checkpoint",
        str(checkpoint),
        "--publish",
        "--max-offsets",
        str(BATCH),
        "--format",
        "json",
    ]


@pytest.mark.long
def test_whoever_is_killed_the_nodes_merge_what_one_process_would_have_found(parted: TwoSites, tmp_path: Path) -> None:
    """The job between the two branches; the command when half of what it found is told, and nobody asked to merge; the
    node that is about to merge; and the next one, which has merged and not said so. The source goes on behind what the
    job saw. (Each other step of the job: `test_each_driver…`. In `make test`: a node that dies meanwhile, in
    tests/unit/sites/test_restoring_classified.py; a killed job, in tests/unit/spark_jobs/test_publishing.py.)"""
    west, checkpoint = parted.west, tmp_path / "c"
    mine = checkpoint / f"p-{EAST}"
    land(west.client(), f"{WEST}0", LONGER)
    refused = halog(west, "restore", "--source", EAST, "--classified", code=5)
    assert {d["phase"] for d in refused} == {"failed"}
    assert all("no Spark job has found" in d["why"] for d in refused), refused
    words = ["restore", "--source", EAST, "--checkpoint", str(checkpoint), "--spark-master", "local[1]"]
    dies("first", tmp_path, r"\d+ notes ComparisonProgress trace left 0", merge_job(west, mine))
    assert one_is_read(noted(mine)), noted(mine)
    go_on(parted.east.client("behind"))
    dies("second", tmp_path, r"\d+ create classified/p-1", argv_of(west, *words)[2:])
    assert (stage(mine), told_of(parted)) == (SENT, ["p-0"])
    plain = plainly(west.toml)

    partition = ["--partition", "p-0"]
    merges_it, says_so = parted.east.table("p-0").configured
    where = {merges_it: r"\d+ set restores/p-0 merging", says_so: r"\d+ set restores/p-0 done"}
    nodes_die(parted.east, "p-0", where)
    begun = Process("begun", tmp_path, argv_of(west, "restore", "--source", EAST, "--classified", *partition)[2:])
    for name, (stands, next_) in {merges_it: (SETTLING, MERGING), says_so: (MERGING, DONE)}.items():
        assert parted.east.processes[name].exit_code(90) == -signal.SIGKILL
        assert said_by(parted.east, name, "p-0")[-2:] == [stands, next_]
    parted.east.start([merges_it])
    assert begun.exit_code(90) == 0, begun.last_words()
    (one,) = json.loads(begun.out.read_text())
    assert (one["phase"], one["objects"]) == (DONE, len(plain["p-0"].keys))
    at_last = read_restore("p-0", parted.east.znode("restores/p-0") or b"")
    assert (at_last.node, at_last.tries) == (merges_it, 3)
    assert halog(west, "restore", "--source", EAST, "--classified", *partition) == [one]
    parted.east.start([says_so])
    plain["p-1"] = plainly(west.toml, three_way=False)["p-1"]
    last = Process("last", tmp_path, argv_of(west, *words, "--two-way")[2:])
    assert last.exit_code(150) == 0, last.last_words()
    done = {d["partition"]: d for d in json.loads(last.out.read_text())}
    assert {d["phase"] for d in done.values()} == {"done"}
    merges = {name: d["merge"] for name, d in done.items()}
    assert merges == {name: r.merge for name, r in runs(parted.east.toml).items() if r is not None}
    assert merges["p-0"] == one["merge"]
    assert reported(parted, merges) == as_reported(plain)
    level(parted)
    with parted.east.client("judge").transaction() as tx:
        assert tx.get(Aircraft, "later").miles == 0
        assert tx.get(Aircraft, f"{WEST}7").miles == 0
    command(west, "promote")
    west.whole()


def kind_of(step: str) -> str:
    """As a regular expression, without its number. Holds of one partition are as good as those of another."""
    what = re.escape(step.partition(" ")[2])
    return re.sub(r"holders/p\\-\d", r"holders/p\\-\\d", what)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_each_driver_goes_on_from_where_the_one_before_it_was_killed(parted: TwoSites, tmp_path: Path) -> None:
    """It is killed in front of the first step that none has come to, until none is left; then the nodes have merged
    what one process would have found, once."""
    plain = plainly(parted.west.toml)
    words = ["restore", "--source", EAST, "--checkpoint", str(tmp_path / "c"), "--spark-master", "local[1]"]
    argv, come_to = argv_of(parted.west, *words)[2:], list[str]()
    for number in range(DRIVERS):
        steps = tmp_path / f"{number}.steps"
        where = rf"\d+ (?!(?:{'|'.join(come_to) or '-'})\Z){JOB}"
        driver = Process(f"driver{number}", tmp_path, argv_dying(steps, where, argv))
        if driver.exit_code(150) == 0:
            break
        assert driver.exit_code(1) == -signal.SIGKILL, driver.last_words()
        come_to.append(kind_of(steps.read_text().splitlines()[-1]))
    assert len(come_to) >= 15, come_to
    for needed in (
        "notes ComparisonProgress trace",
        "notes ComparisonProgress behind",
        "notes ComparisonProgress read",
        "notes PublishingProgress sent",
        "put ",
        "create classified/p-1",
        "create restores/p-1",
    ):
        assert any(re.escape(needed) in one for one in come_to), (needed, come_to)
    done = {d["partition"]: d for d in halog(parted.west, *words)}
    assert {d["phase"] for d in done.values()} == {DONE}
    assert reported(parted, {name: d["merge"] for name, d in done.items()}) == as_reported(plain)
    level(parted)
