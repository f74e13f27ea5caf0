"""A child of a process that has a node: it ends at once, and leaves the parent's connections alone (D1)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cluster.harness import Cluster
from tests.integration.objects import forking
from tests.integration.objects.conftest import SHOP
from tests.integration.site import Site

pytestmark = [pytest.mark.feature("D1"), pytest.mark.timeout(600)]

WAYS = [*forking.WAYS, *forking.OTHERS]
AT_ONCE_S = 20.0
"""A child that waits for what is the parent's waits for a call's deadline, which is twice as long."""


def _forks(cluster: Cluster, name: str) -> dict[str, tuple[object, float]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.objects.forking", str(cluster.toml), name, *WAYS],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {way: (code, took) for way, code, took in rows}


def _all_well(told: dict[str, tuple[object, float]]) -> None:
    assert {way: code for way, (code, _) in told.items()} == dict.fromkeys([*WAYS, "parent", "in_an_event_loop"], 0)
    assert max(took for _, took in told.values()) < AT_ONCE_S


def test_a_clients_forked_child_ends_at_once_and_its_parent_goes_on(cluster: Cluster) -> None:
    _all_well(_forks(cluster, ""))


def test_so_does_one_of_a_hosting_node(site: Site, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, site, nodes="AB", partitions=4, async_=0, module=SHOP)
    try:
        cluster.launch("A")
        cluster.processes["A"].ready()
        _all_well(_forks(cluster, "B"))
    finally:
        cluster.close()
