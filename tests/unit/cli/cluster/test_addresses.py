"""Nodes with several addresses in a running cluster, and addresses that are changed while it runs (N2)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import TOML, Cluster, running, wait_until

Run = Callable[..., Any]
DEAD = TOML.replace(
    'data_dir = "B"', 'data_dir = "B"\nlisten = "127.0.0.1:0"\nadvertise = ["127.0.0.1:1", "127.0.0.1:0"]'
)
"""Nobody listens at the address of B that it prefers."""
TWO = TOML.replace('data_dir = "B"', 'data_dir = "B"\naddress = ["127.0.0.1:0", "[::1]:0", "127.0.0.2:0"]')


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    with running(Cluster(tmp_path, TWO), monkeypatch) as made:
        yield made


def link(cluster: Cluster, node: str) -> Any:
    return cluster.nodes[node].runtime.members.links["B"]


def activate(cluster: Cluster, halog: Run, configured: list[str], number: int) -> None:
    """Activate addresses of B, and wait until each node has taken them up."""
    path = cluster.directory / "new.toml"
    path.write_text(f"{TWO}\n[discovery]\nB = {json.dumps(configured)}\n")
    ran = halog("config", "activate", path)
    assert ran.code == 0, ran
    wait_until(lambda: {link(cluster, name).via for name in "AC"} == {configured[0]})
    wait_until(lambda: {n.runtime.configured.active for n in cluster.nodes.values()} == {number})


@pytest.mark.feature("N2", "P11")
def test_addresses_are_shown_and_changed_on_a_running_cluster(cluster: Cluster, halog: Run) -> None:
    first, second, third = reached = cluster.nodes["B"].runtime.info.addresses
    assert [a.rpartition(":")[0] for a in reached] == ["127.0.0.1", "[::1]", "127.0.0.2"]
    listed = {n["node"]: n for n in halog("node", "list", "--format", "json").json}
    assert (listed["B"]["address"], listed["B"]["addresses"]) == (first, list(reached))
    assert ", ".join(reached) in halog("node", "list").out
    wait_until(lambda: {link(cluster, name).via for name in "AC"} == {first})

    for number, configured in enumerate(([third, second], [second]), 1):
        activate(cluster, halog, configured, number)
        for name in "AC":
            assert cluster.nodes[name].runtime.router.addresses_of("B").addresses == tuple(configured)
        cluster.create(*(cluster.Aircraft(f"{number}-{i}") for i in range(12)))
        listed = {n["node"]: n for n in halog("node", "list", "--format", "json").json}
        assert (listed["B"]["state"], listed["B"]["addresses"]) == ("up", configured), "commands follow, too"


@pytest.mark.feature("N2", "N4")
def test_a_node_whose_preferred_address_is_dead_takes_part_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, halog: Run
) -> None:
    with running(Cluster(tmp_path, DEAD), monkeypatch) as cluster:
        _, alive = cluster.nodes["B"].runtime.info.addresses
        wait_until(lambda: {link(cluster, name).via for name in "AC"} == {alive})
        wait_until(lambda: all(len(n.runtime.members.alive) == 3 for n in cluster.nodes.values()))
        cluster.settle()
        cluster.create(*(cluster.Aircraft(f"tail-{i}") for i in range(24)))
        assert {t.active.node for t in cluster.tables()} == set("ABC"), "it was active, too, for some of them"
        listed = {n["node"]: n["state"] for n in halog("node", "list", "--format", "json").json}
        assert listed["B"] == "up"
