"""The doctor asks each node at each of its addresses."""

from __future__ import annotations

from typing import Any

import pytest

from halog.cli.cluster.doctor_addresses import AskedAddress, ask, findings
from halog.cli.shared.connection import ClusterConnection
from halog.config import load_config

TWO = [AskedAddress("A", "a:1", "A"), AskedAddress("A", "a:2", "A")]


def rows(*asked: AskedAddress) -> list[tuple[str, str]]:
    return [(f.result, f"{f.detail}; {f.advice}") for f in findings(asked)]


@pytest.mark.feature("N2", "O1")
def test_each_address_at_which_its_node_does_not_answer_is_named() -> None:
    assert rows() == []
    assert rows(TWO[0]) == [("ok", "1 node answers at each of 1 addresses; ")]
    assert rows(*TWO) == [("ok", "1 node answers at each of 2 addresses; ")]
    assert rows(TWO[0], AskedAddress("A", "a:2", why="refused"), AskedAddress("B", "b:1", why="hangs")) == [
        ("warn", "node A does not answer at a:2: refused; it does at a:1: look at the network of the other address"),
        ("warn", "node B does not answer at b:1: hangs; is it running, and is the way to it open?"),
    ]
    assert rows(*TWO, AskedAddress("B", "a:1", "A")) == [
        ("fail", "at a:1, an address of node B, node A answers; correct nodes.B, and start it again; or [discovery]")
    ]


@pytest.mark.feature("N2", "O1")
def test_the_nodes_of_a_running_cluster_are_asked(cluster: Any) -> None:
    config, name = load_config(cluster.path), "halog-cli-doctor"
    connection = ClusterConnection(config, cluster.adapters(config, name), name, 5.0)
    try:
        connection.open()
        at = {node: running.runtime.info.address for node, running in cluster.nodes.items()}
        assert sorted(ask(connection)) == [AskedAddress(node, at[node], node) for node in "ABC"]
        connection.router.configure({"A": (at["B"], at["A"]), "C": "127.0.0.1:1"})
        wrong = [a for a in ask(connection) if a.answered != a.node]
        assert [(a.node, a.address, a.answered) for a in sorted(wrong)] == [
            ("A", at["B"], "B"),
            ("C", "127.0.0.1:1", ""),
        ]
    finally:
        connection.close()
