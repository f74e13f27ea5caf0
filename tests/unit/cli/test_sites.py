"""`halog site …`: which site serves, how far mirrors are, taking over and giving away, from the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from halog.adapters.memory import MemoryChannel, MemoryCoordinator, MemoryLog
from halog.config import Config
from halog.runtime.outside import Adapters
from halog.testing.cluster import Cluster, wait_until
from tests.unit.cli.conftest import Ran
from tests.unit.sites.two import east, flights, fly, level, west

pytestmark = pytest.mark.feature("M5", "X4")
__all__ = ["east", "west"]
Halog = Callable[..., Ran]


@pytest.fixture
def files(west: Cluster, east: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """The configuration of each site."""
    west.see(east)
    sites = {"west": west, "east": east}

    def adapters(config: Config, name: str) -> Adapters:
        at = sites[config.site.name]
        return Adapters(MemoryLog(at._broker), MemoryCoordinator(at._tree), MemoryChannel(), None, at._reach)

    monkeypatch.setattr("halog.cli.connection.adapters_for", adapters)
    made = {}
    for name, cluster in sites.items():
        made[name] = tmp_path / f"{name}.toml"
        made[name].write_text(cluster.config.to_toml())
    return made


def test_list_and_lag_say_who_serves_and_how_far_mirrors_are(
    west: Cluster, east: Cluster, files: dict[str, Path], halog: Halog
) -> None:
    fly(west, *range(10))
    level(west, east)

    def told() -> bool:
        return halog("site", "lag", "--config", files["east"]).code == 0

    wait_until(told, "a mirror stands still")
    there, here = halog("site", "list", "--config", files["east"], "--format", "json").json
    assert (there["site"], there["state"], there["serves"], there["mirrored_here"]) == ("east", "this one", 0, 0)
    assert (here["site"], here["state"], here["serves"], here["mirrored_here"]) == ("west", "reached", 3, 3)
    lags = halog("site", "lag", "--config", files["east"], "--format", "json").json
    assert {(m["site"], m["why"], m["parted"]) for m in lags} == {("west", "", False)}
    assert {m["by"] for m in lags} <= set(east.names)
    assert halog("site", "lag", "--config", files["west"]).code == 0


def test_promote_takes_over_and_names_what_it_did(
    west: Cluster, east: Cluster, files: dict[str, Path], halog: Halog
) -> None:
    fly(west, *range(10))
    ran = halog("site", "promote", "--config", files["east"], "--format", "json")
    assert ran.code == 0, ran.err
    assert [(d["from"], d["may_fork"]) for d in ran.json] == [("west", False)] * 3
    assert "served by site east" in ran.err
    east.settle()
    assert flights(east) == set(range(10))
    again = halog("site", "promote", "--config", files["east"])
    assert "was here" in again.out


def test_a_site_that_cannot_be_reached_is_refused_with_what_to_say(
    east: Cluster, files: dict[str, Path], halog: Halog
) -> None:
    east.cut()
    ran = halog("site", "promote", "--config", files["east"])
    assert (ran.code, "--may-fork" in ran.err) == (5, True)
    forked = halog("site", "promote", "--may-fork", "--config", files["east"])
    assert (forked.code, forked.out.count("perhaps")) == (0, 3)


def test_parted_histories_are_shown_and_fail_the_command(
    west: Cluster, east: Cluster, files: dict[str, Path], halog: Halog
) -> None:
    fly(west, *range(10))
    level(west, east)
    east.cut()
    halog("site", "promote", "--may-fork", "--config", files["east"])
    east.settle()
    fly(west, *range(10, 30))
    fly(east, *range(100, 130))
    east.mend()
    assert halog("site", "demote", "--to", "east", "--config", files["west"]).code == 0

    def shown() -> bool:
        ran = halog("site", "list", "--config", files["west"], "--format", "json")
        return ran.code == 4 and len(ran.json[1]["parted"]) == 3

    wait_until(shown, "the split is not shown")
    ran = halog("site", "promote", "--config", files["west"])
    assert (ran.code, "have parted" in ran.err) == (5, True)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["demote", "--to", "north"], "north is no other site"),
        (["promote", "--partition", "test-9"], "there is no partition test-9"),
    ],
)
def test_wrong_names_are_told(files: dict[str, Path], halog: Halog, args: list[str], said: str) -> None:
    ran = halog("site", *args, "--config", files["west"])
    assert (ran.code, said in ran.err) == (2, True), ran.err


def test_a_site_that_only_mirrors_is_well_and_its_nodes_may_stop_and_move(
    west: Cluster, east: Cluster, files: dict[str, Path], halog: Halog
) -> None:
    fly(west, *range(10))
    level(west, east)
    ran = halog("status", "--config", files["east"], "--format", "json")
    assert ran.code == 0, ran.out
    listed = halog("partition", "list", "--config", files["east"], "--format", "json").json
    assert {(p["state"], p["active"]) for p in listed} == {("mirrored", None)}
    assert halog("safe-to-stop", "east-A", "--config", files["east"]).code == 0
    assert halog("safe-to-stop", "east-A", "east-B", "--config", files["east"]).code == 5
    moved = halog("partition", "migrate", "test-0", "--nodes", "east-B", "--config", files["east"])
    assert moved.code == 0, moved.err
    assert east.tables()["test-0"].configured == ("east-B",)
    wait_until(lambda: "test-0" not in east.node("east-A").runtime.copies, "the copy is let go of")
    fly(west, *range(10, 20))
    there = east.node("east-B").runtime.copies["test-0"]

    def same() -> bool:
        here = west.node(west.names[0]).runtime.copies["test-0"]
        return there.core.chain.state.hash == here.core.chain.state.hash

    wait_until(same, "the other node mirrors it")
