"""The pytest plugin as an application's tests meet it (X5)."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from halog.schema import Registry
from halog.testing.nodes import MemoryNode

pytestmark = pytest.mark.feature("X5")

APPLICATION = """
import halog, pytest

@halog.managed(key="tail")
class Aircraft:
    tail: str
    miles: int = 0

    def land(self, miles: int) -> int:
        if miles < 0:
            raise TooFar(miles)
        self.miles += miles
        return self.miles

    def careless(self, miles):
        self.miles += miles

class TooFar(Exception):
    pass
"""

TESTS = """
import pytest, halog
from application import Aircraft, TooFar

def test_a_node_is_empty_and_works(halog_node):
    empty = halog_node.state_hash()
    with halog_node.transaction():
        halog_node.create(Aircraft("N1")).land(5)
    assert halog_node.state_hash() != empty

def test_nothing_is_left_of_the_test_before(halog_node):
    with halog_node.transaction():
        assert halog_node.find(Aircraft, "N1") is None

@halog.transaction
def make():
    return halog.current().create(Aircraft("N1"))

def test_the_decorated_form_finds_the_node(halog_node):
    assert make().tail == "N1"

@pytest.mark.parametrize("remote", [pytest.param(r, marks=pytest.mark.halog(remote=r)) for r in (False, True)])
def test_calls_here_and_elsewhere_are_alike(halog_node, remote):
    with halog_node.transaction():
        one = halog_node.create(Aircraft("N1"))
        with pytest.raises(TooFar):
            one.land(-1)
        with pytest.raises(halog.errors.FieldTypeError):
            one.land("far")
        with pytest.raises(halog.errors.DeclarationError, match="annotation"):
            one.careless(5)

@pytest.mark.halog(modules=[])
def test_an_exception_that_does_not_cross_does_not_here(halog_node):
    with halog_node.transaction():
        with pytest.raises(halog.errors.RemoteCallError, match="TooFar"):
            halog_node.create(Aircraft("N1")).land(-1)

def test_a_clusters_exceptions_cross(halog_cluster):
    with (client := halog_cluster(nodes=1).client()).transaction():
        with pytest.raises(TooFar):
            client.create(Aircraft("N1")).land(-1)

@pytest.mark.halog(remote=True, modules=["application"])
def test_calls_cross_the_wire_where_asked(halog_node):
    with halog_node.transaction():
        one = halog_node.create(Aircraft("N1"))
        with pytest.raises(TooFar):
            one.land(-1)
        with pytest.raises(halog.errors.DeclarationError, match="annotation"):
            one.careless(5)

@pytest.mark.halog(color="red")
def test_an_unknown_option_is_an_error(halog_node):
    pass

def test_a_cluster_survives_a_kill(halog_cluster):
    cluster = halog_cluster(nodes=3, partitions=2)
    client = cluster.client()
    with client.transaction():
        client.create(Aircraft("N1"))
    cluster.kill(cluster.active_for(Aircraft, "N1"))
    with client.transaction():
        assert client.get(Aircraft, "N1").land(7) == 7
"""


def test_an_applications_tests_pass_with_the_plugin(tmp_path: Path) -> None:
    """Run as an application would, in a process of its own; only the misused mark is an error."""
    (tmp_path / "application.py").write_text(APPLICATION)
    (tmp_path / "test_it.py").write_text(TESTS)
    plugins = ["-p", "no:halog", "-p", "halog.testing.plugin", "-p", "no:cacheprovider"]
    root = Path(__file__).parents[3]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, "-W", "error", "--strict-markers", "test_it.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{root}:{tmp_path}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "9 passed, 1 error" in ran.stdout, ran.stdout + ran.stderr
    assert "takes partitions, remote and modules, not {'color': 'red'}" in ran.stdout


def test_the_plugin_imports_nothing_until_it_is_used() -> None:
    """It is loaded in every test run of every project that has halog installed."""
    code = "import sys, halog.testing.plugin; print(*[m for m in sys.modules if m.startswith(('halog', 'confluent'))])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert sorted(ran.stdout.split()) == ["halog", "halog.testing", "halog.testing.plugin"]


def test_a_node_is_ready_in_50_ms() -> None:
    """Once, of so many times that a busy machine has as much to spare for it."""
    assert any(_ready_s() < 0.05 for _ in range(60))


def _ready_s() -> float:
    begin = time.perf_counter()
    with MemoryNode(registry=Registry()) as node, node.transaction():
        return time.perf_counter() - begin
