"""Commands meet nodes and clusters of a later halog (U1)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from halog.metadata.cluster_level import LEVEL
from halog.release import RELEASE
from tests.unit.cli.conftest import Ran, wait_until

Run = Callable[..., Ran]


def registered_as(cluster: Any, node: str, **changed: object) -> None:
    """Change what a node has registered."""
    path = f"nodes/{node}"
    found = cluster.tree.get(path)
    cluster.tree.set(path, json.dumps({**json.loads(found.data), **changed}).encode(), found.version)


@pytest.mark.feature("U1", "O3")
def test_a_node_of_another_protocol_is_named_with_its_version(cluster: Any, halog: Run) -> None:
    """The others are shown as ever. What only that node could do ends with an exit code of its own."""
    place = next(t.name for t in cluster.tables() if t.active.node == "B")
    registered_as(cluster, "B", protocols=[8, 9], version="1.4")
    ran = halog("failover", place, "--to", "A")
    assert ran.code == 7
    assert ran.err.strip().endswith(
        f"node B runs halog 1.4, which speaks protocol 8 to 9; this process runs halog {RELEASE}, which speaks "
        "protocol 3; nothing was done: this process needs a later halog"
    )
    nodes = {n["node"]: n for n in halog("node", "list", "--format", "json").json}
    assert "node B runs halog 1.4" in nodes["B"]["why"]
    assert nodes["A"]["state"] == "up"
    assert nodes["B"]["version"] == "1.4"


@pytest.mark.feature("U1", "O3")
@pytest.mark.parametrize("command", [("status",), ("config", "show"), ("get", "Aircraft", "N1"), ("events",)])
def test_a_cluster_at_an_unknown_level_is_left_alone(cluster: Any, halog: Run, command: tuple[str, ...]) -> None:
    cluster.tree.create("level", json.dumps({"level": LEVEL + 1, "by": "ops@here"}).encode(), 0)
    ran = halog(*command)
    assert ran.code == 7
    assert f"is at level {LEVEL + 1} (raised by ops@here); this process runs halog {RELEASE}" in ran.err


@pytest.mark.feature("U1", "N4")
def test_nodes_do_not_take_one_of_another_protocol_for_up(cluster: Any) -> None:
    info = json.loads(cluster.tree.get("nodes/C").data)
    cluster.stop("C")
    later = {**info, "incarnation": info["incarnation"] + 1, "protocols": [8, 9], "version": "1.4"}
    cluster.tree.create("nodes/C", json.dumps(later).encode(), 0)
    members = cluster.nodes["A"].runtime.members
    wait_until(lambda: "runs halog 1.4" in members.links["C"].refused)
    wait_until(lambda: all(m.node != "C" for m in members.alive))
