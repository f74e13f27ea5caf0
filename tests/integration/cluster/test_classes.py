"""Classes that change between two runs of an application."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.processes import ROOT
from tests.integration.cluster.test_zones import halog

pytestmark = pytest.mark.timeout(600)

PLANE = """
from halog.schema import managed

@managed(key="tail")
class Plane:
    tail: str
{fields}
"""
BEFORE = '    seats: int = 1\n    color: str = ""\n    weight: int = 0\n    owner: str = "we"'
AFTER = "    seats: int = 1\n    weight: float = 0.0\n    owner: str | None = None\n    decks: int = 2"

SCRIPT = """
import json, halog, planes
with halog.node("halog.toml", name="app") as node, node.transaction():
    {statement}
"""
CREATE = "node.create(planes.Plane(tail='N1', seats=180, color='red', weight=70))"
READ = "p = node.get(planes.Plane, 'N1'); print(json.dumps([p.seats, p.weight, p.owner, p.decks, hasattr(p, 'color')]))"
WRITE = "p.decks += 1; node.create(planes.Plane(tail='N2'))"


def run(cluster: Cluster, statement: str) -> str:
    """In a process of its own, with the classes as they are now: what it prints, or its error's last line."""
    code = SCRIPT.format(statement=statement)
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{cluster.directory}"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=cluster.directory,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


@pytest.mark.long
@pytest.mark.feature("D1", "P1")
def test_changed_classes_read_old_objects_or_keep_their_node_out(make: Make) -> None:
    """After a restart with a field added with a default, one removed, an int widened and one made optional, old objects
    are read and changed. A change that cannot be read is refused, naming type and field, before anything is written."""
    cluster = make(nodes="A", partitions=1, sync=0, async_=0, module="planes")
    module = cluster.directory / "planes.py"
    module.write_text(PLANE.format(fields=BEFORE))
    cluster.start()
    assert run(cluster, CREATE) == ""
    assert cluster.processes["A"].terminate() == 0

    module.write_text(PLANE.format(fields=AFTER))
    cluster.start()
    assert json.loads(run(cluster, f"{READ}; {WRITE}")) == [180, 70.0, "we", 2, False]
    assert json.loads(run(cluster, READ)) == [180, 70.0, "we", 3, False]
    assert cluster.processes["A"].terminate() == 0

    module.write_text(PLANE.format(fields=AFTER.replace("seats: int = 1", 'seats: str = ""')))
    process = cluster.launch("A")
    assert process.exit_code(60) == 2
    assert "Plane.seats" in process.last_words(5_000)
    error = run(cluster, "pass")
    assert "SchemaChangedError" in error
    assert "seats" in error

    module.write_text(PLANE.format(fields=AFTER))
    cluster.start()
    assert json.loads(run(cluster, READ)) == [180, 70.0, "we", 3, False], "nothing of the refused class was written"


@pytest.mark.feature("U2", "U3", "O1")
def test_a_stray_class_locks_nobody_out(make: Make) -> None:
    """While the right class runs it is refused by name. What a node alone brought by mistake is taken back while
    nothing can start, and then everything starts."""
    cluster = make(nodes="A", partitions=1, sync=0, async_=0, module="planes")
    module = cluster.directory / "planes.py"
    right, stray = PLANE.format(fields="    color: str\n    seats: int = 1"), PLANE.format(fields="    seats: int = 1")
    module.write_text(right)
    cluster.start()
    assert run(cluster, "node.create(planes.Plane(tail='N1', color='red'))") == ""
    module.write_text(stray)
    error = run(cluster, "pass")
    for said in ("SchemaChangedError: Plane.color", "A, which run", "Nothing was published"):
        assert said in error
    module.write_text(right)
    assert run(cluster, "print(node.get(planes.Plane, 'N1').color)") == "red\n"
    assert cluster.processes["A"].terminate() == 0
    cluster.start()
    cluster.kill("A")

    module.write_text(stray)
    cluster.start()
    assert cluster.processes["A"].terminate() == 0
    module.write_text(right)
    process = cluster.launch("A")
    assert process.exit_code(60) == 2
    found = re.search(r"`halog (type retire Plane [0-9a-f]{16})`", process.last_words(5_000))
    assert found is not None
    assert halog(cluster, *found[1].split())[0] == 0
    cluster.start()
    assert run(cluster, "print(node.get(planes.Plane, 'N1').color)") == "red\n"
