"""A data directory that was copied, on real processes: the first node goes on, and the copy is refused (N1)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests import forked
from tests.integration.cluster.checker import check
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.load import Load
from tests.integration.cluster.processes import Process, wait

pytestmark = [pytest.mark.timeout(600), pytest.mark.feature("N1")]

FLOWS_S = 60.0


def begun(cluster: Cluster, node: str, data_dir: str) -> Process:
    """A process that says it is this node, on another directory."""
    path = cluster.directory / "copied.toml"
    own = f'[nodes.{node}]\ndata_dir = "'
    assert f'{own}{node}"' in cluster.toml.read_text()
    path.write_text(cluster.toml.read_text().replace(f'{own}{node}"', f'{own}{data_dir}"'))
    argv = ["halog.cli.main", "node", "start", "--config", str(path), "--name", node]
    process = Process("copy", cluster.directory, argv)
    cluster.helpers.append(process)
    return process


def test_a_copy_is_refused_under_either_name_until_it_has_an_identity_of_its_own(make: Make) -> None:
    """And the first node goes on."""
    cluster = make(nodes="AB", partitions=2, async_=0)
    cluster.start()
    cluster.whole()
    assert cluster.processes["A"].terminate() == 0
    directory: Path = cluster.directory
    for copy in ("same", "other"):
        shutil.copytree(directory / "A", directory / copy)
    cluster.whole()
    runs = cluster.registered()
    with Load(cluster.client(), "copy") as load:
        first = begun(cluster, "A", "same")
        assert first.exit_code(60) == 1
        assert f"a node named A is running already (pid {cluster.processes['A'].pid} at " in first.last_words(1_000)
        assert "its data directory was copied" in first.last_words(1_000)
        load.flows(FLOWS_S)
        wait(lambda: cluster.registered() == runs, "both are registered, in the same runs")
        assert cluster.processes["B"].terminate() == 0
        other = begun(cluster, "B", "other")
        assert other.exit_code(60) == 5
        assert "is node A's, or a copy of it, and node B is to start on it" in other.last_words(1_000)
        argv = ["halog.cli.main", "node", "new-identity", "--config", str(directory / "copied.toml"), "--name"]
        refused = forked.run([*argv, "A"], timeout=60)
        assert "is held by another node" in refused.stderr
        ran = forked.run([*argv, "B"], timeout=60)
        assert (ran.returncode, "was copied from node A, and brings 2 copies" in ran.stdout) == (0, True)
        renewed = begun(cluster, "B", "other")
        renewed.ready()
        wait(lambda: all("B" in t.node_list for t in cluster.tables()), "B is in every node list")
        assert renewed.terminate() == 0
        cluster.whole()
        load.flows(FLOWS_S)
    assert load.errors == []
    check(cluster, load)
