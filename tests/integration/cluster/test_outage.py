"""The broker is away for longer than the append deadline: one epoch is given up, nobody claims another one before it
answers, operators are told what is away, and its return is met at once (W1, W4)."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from halog.errors import HalogError, SiteError
from halog.events import LOG_AWAY, LOG_BACK, ROLE
from tests import forked
from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.processes import passes, wait
from tests.integration.site import Site

pytestmark = pytest.mark.timeout(600)

PARTITIONS = 6
AWAY_S = 15.0
"""Three append deadlines: a node that claimed epoch after epoch would have had a hundred by then."""
FLOWS_S = 12.0
"""Each time; the machine may be busy, and the first commit that is tried may be one of a client that just begins."""
PROMISED_S = 0.5
"""From the log's return to the first commit of a client that waits for it: the best of some times on a busy machine."""
OUTAGES = 3
GIVEN_UP_S = 8.0
"""Longer than the append deadline: every epoch is given up by then."""


@pytest.fixture
def two(make: Make, site: Site) -> Iterator[Cluster]:
    cluster = make(nodes="AB", partitions=PARTITIONS, async_=0, deadline_ms=13_000)
    cluster.start()
    cluster.whole()
    yield cluster
    with suppress(SiteError):
        site.resume("kafka")


def epochs(cluster: Cluster) -> int:
    return sum(t.epoch.number for t in cluster.tables())


def command(cluster: Cluster, *args: str) -> subprocess.CompletedProcess[str]:
    argv = ["halog.cli.main", *args, "--config", str(cluster.toml)]
    return forked.run(argv, cwd=cluster.directory, timeout=60)


def commit(cluster: Cluster, number: int) -> None:
    node = cluster.client()
    with node.transaction():
        node.create(Aircraft(f"N{number}"))


@pytest.mark.feature("O3", "R4", "Q4")
def test_an_outage_of_the_broker_costs_one_epoch_and_is_told_once(two: Cluster, site: Site) -> None:
    for number in range(40):  # some in each partition
        commit(two, number)
    before = epochs(two)
    site.pause("kafka")
    began = time.monotonic()
    with pytest.raises(HalogError) as told:
        commit(two, 100)
    assert site.info.bootstrap in told.value.message, "the error names the server that is missing"
    seen = command(two, "status", "--format", "json")
    assert seen.returncode == 4
    assert json.loads(seen.stdout)["kafka"]["address"] == site.info.bootstrap
    assert "does not answer" in json.loads(seen.stdout)["kafka"]["why"]
    assert site.info.bootstrap in command(two, "status").stdout
    passes(max(0.0, AWAY_S - (time.monotonic() - began)))
    assert epochs(two) == before, "nobody claims an epoch that the log can not take"
    site.resume("kafka")
    back = time.monotonic()
    commit(two, 1_000)
    assert time.monotonic() - back < FLOWS_S
    two.whole()  # a broker that has a thousand partitions gives them leaders again one after the other
    for number in range(2_000, 2_040):
        commit(two, number)
    assert epochs(two) <= before + 2 * PARTITIONS, "one for each, and one more where somebody was hasty"
    told_of(two)
    wait(
        lambda: json.loads(command(two, "status", "--format", "json").stdout)["kafka"] is None,
        "an operator is told that the log is back",
    )


@pytest.mark.long
@pytest.mark.feature("R4", "Q4")
def test_who_waits_for_the_log_commits_half_a_second_after_its_return(two: Cluster, site: Site) -> None:
    for number in range(40):
        commit(two, number)
    node, took = two.client(), list[float]()

    def waits(round_: int) -> float:
        """Until it has committed; when that was."""
        while True:
            try:
                with node.transaction():
                    node.create(Aircraft(f"{round_}-{time.monotonic_ns()}"))
                return time.monotonic()
            except HalogError:
                continue

    with ThreadPoolExecutor(1) as pool:
        for round_ in range(OUTAGES):
            before = epochs(two)
            site.pause("kafka")
            passes(GIVEN_UP_S)
            waiting = pool.submit(waits, round_)
            passes(1.0)
            assert not waiting.done()
            assert epochs(two) == before
            back = time.monotonic()
            site.resume("kafka")
            took.append(waiting.result(30) - back)
            two.whole()
    assert min(took) <= PROMISED_S, took
    assert max(took) <= FLOWS_S, took


def told_of(cluster: Cluster) -> None:
    """Once by each node that met it, that it was away, and that it is back; a role is given up once, and taken once."""

    def all_told() -> bool:
        events = told(cluster)
        return (
            {e["by"] for e in events if e["code"] == LOG_BACK.code}
            == {e["by"] for e in events if e["code"] == LOG_AWAY.code}
            != set()
        )

    wait(all_told, "the history has it that the log is back", 60)
    events = told(cluster)
    for kind in (LOG_AWAY, LOG_BACK):
        by = [e["by"] for e in events if e["code"] == kind.code]
        assert len(by) == len(set(by))
    roles = [e for e in events if e["code"] == ROLE.code]
    assert len(roles) <= 4 * PARTITIONS


def told(cluster: Cluster) -> list[dict[str, str]]:
    lines = command(cluster, "events", "--format", "json").stdout.splitlines()
    found = [json.loads(line) for line in lines]
    return found[0] if found and isinstance(found[0], list) else found
