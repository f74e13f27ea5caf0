"""A file of all sites activated, compared and shown at one of them (P11, P5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli import conftest
from tests.unit.cli.conftest import Cluster, running, wait_until

pytestmark = pytest.mark.feature("P11", "P5")
Run = Callable[..., Any]

EAST = '[sites.east]\nbootstrap = "127.0.0.1:3"\nzookeeper = "127.0.0.1:4"\n[zones.east]\nnodes = ["D"]\n'
TREE = (
    conftest.TOML.replace("[zones.home]", f"{EAST}[zones.home]")
    .replace("[bindings]", '[policies.far]\nzone = "east"\nsync_replicas = 0\n[bindings]\nFlight = "far"')
    .replace("[timing]", '[nodes.D]\ndata_dir = "D"\nsite = "east"\n[timing]')
)
for _name in "ABC":
    TREE = TREE.replace(f'data_dir = "{_name}"\n', f'data_dir = "{_name}"\nsite = "home"\n')


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Three nodes of the site `home`; a fourth one, its zone and a policy are of the site `east`."""
    with running(Cluster(tmp_path, TREE), monkeypatch) as made:
        yield made


def versions(shared: Cluster) -> set[tuple[int, tuple[str, ...]]]:
    """What each node runs with, and the keys that wait for its restart."""
    views: list[Any] = [node.runtime.configured.view() for node in shared.nodes.values()]
    return {(v["version"], tuple(v["restart_for"])) for v in views}


def test_the_whole_file_is_activated_and_shown(shared: Cluster, halog: Run, tmp_path: Path) -> None:
    assert halog("config", "check").code == 0
    ran = halog("config", "activate")
    assert ran.code == 0, ran
    assert "it is active at site home alone; to have it at site east, activate it with that site's file, too" in ran.err
    wait_until(lambda: versions(shared) == {(1, ())})
    shown = halog("config", "show").out
    assert ('[nodes.D]\ndata_dir = "D"' in shown, shown.count('site = "home"'), "[policies.far]" in shown) == (
        True,
        3,
        True,
    )
    again = tmp_path / "shown.toml"
    again.write_text(shown)
    assert "is this configuration already" in halog("config", "activate", again).out
    assert [t.policy for t in shared.tables()] == ["p"] * 6, "nothing of the other site's policy is here"


def test_of_several_other_sites_each_is_told_to_be_activated_at(shared: Cluster, halog: Run) -> None:
    more = EAST.replace("east", "west").replace('"D"', '"E"').replace(":3", ":5").replace(":4", ":6")
    written = TREE.replace("[zones.home]", f"{more}[zones.home]")
    shared.path.write_text(written.replace("[timing]", '[nodes.E]\ndata_dir = "E"\nsite = "west"\n[timing]'))
    ran = halog("config", "activate")
    assert ran.code == 0, ran
    assert "to have it at sites east and west, activate it with each site's own file, too" in ran.err


def test_what_changes_at_the_other_site_takes_no_restart_here(shared: Cluster, halog: Run) -> None:
    assert halog("config", "activate").code == 0
    wait_until(lambda: versions(shared) == {(1, ())})
    more = TREE.replace('nodes = ["D"]', 'nodes = ["D", "E"]').replace("sync_replicas = 0", "sync_replicas = 1")
    shared.path.write_text(more.replace("[timing]", '[nodes.E]\ndata_dir = "E"\nsite = "east"\n[timing]'))
    found = halog("config", "diff", "--format", "json").json
    assert {c["key"] for c in found["changes"]} == {"zones.east.nodes", "policies.far.sync_replicas", "nodes.E"}
    assert halog("config", "activate").code == 0
    wait_until(lambda: versions(shared) == {(2, ())})


def test_a_file_of_one_site_follows_one_of_all_and_the_other_way_round(shared: Cluster, halog: Run) -> None:
    """What nodes have here is the same by either; the other site and what is bound there waits for their restart."""
    for number, text in enumerate((conftest.TOML, TREE.replace('Flight = "far"\n', "")), 1):
        shared.path.write_text(text)
        ran = halog("config", "activate")
        assert ran.code == 0, ran
        wait_until(lambda number=number: {n.runtime.configured.active for n in shared.nodes.values()} == {number})  # type: ignore[misc]
        waits = {key for _, keys in versions(shared) for key in keys}
        assert waits == ({"sites.east", "bindings.Flight"} if number == 1 else {"bindings.Flight"})
        assert halog("zone", "show", "home", "--format", "json").code == 0
        with shared.nodes["A"].transaction() as tx:
            tx.create(shared.Aircraft(f"D-{number}"))


def test_a_node_here_is_not_taken_out_by_saying_it_is_elsewhere(shared: Cluster, halog: Run) -> None:
    """It has copies, and is up: both are refused by name."""
    moved = TREE.replace('data_dir = "C"\nsite = "home"', 'data_dir = "C"\nsite = "east"')
    shared.path.write_text(
        moved.replace('nodes = ["A", "B", "C"]', 'nodes = ["A", "B"]').replace(
            "async_replicas = 1", "async_replicas = 0"
        )
    )
    ran = halog("config", "activate")
    assert (ran.code, "nodes.C: " in ran.err) == (5, True), ran


@pytest.mark.parametrize(
    "args",
    [
        ("drain", "D"),
        ("safe-to-stop", "A", "D"),
        ("partition", "migrate", "p-0", "--nodes", "A,D"),
        ("partition", "define", "p-0", "--node", "D", "--nodes", "D,A"),
        ("partition", "enable", "p-0", "--node", "D"),
    ],
)
def test_a_node_of_another_site_is_refused_by_where_it_is(shared: Cluster, halog: Run, args: tuple[str, ...]) -> None:
    """The file has it, so nobody is to look for a misspelt name."""
    ran = halog(*args)
    assert (ran.code in (2, 5), "node D is of site east, and this is site home" in ran.err) == (True, True), ran


@pytest.mark.feature("M5")
def test_the_file_of_another_site_is_not_activated_here(shared: Cluster, halog: Run, tmp_path: Path) -> None:
    """They differ in [site] alone, and are soon mistaken for each other."""
    east = tmp_path / "east.toml"
    servers = 'bootstrap = "127.0.0.1:3"\nzookeeper = "127.0.0.1:4"\n'
    text = TREE.replace(servers, servers.replace(":3", ":1").replace(":4", ":2")).replace("sites.east", "sites.home")
    east.write_text(
        text.replace("[site]\n", f'[site]\nname = "east"\n{servers}', 1).replace(
            'bootstrap = "127.0.0.1:1"\nzookeeper = "127.0.0.1:2"\n', "", 1
        )
    )
    assert halog("config", "check", east).code == 0
    ran = halog("config", "activate", east)
    assert (ran.code, "site.name: by --config east is another site" in ran.err) == (5, True), ran
