"""zone list|show|quorum of zones over several sites: every node, at whatever site, and which site is not seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from halog.config import PolicyConfig
from halog.testing.cluster import Cluster, wait_until
from tests.unit.cli.conftest import Ran
from tests.unit.cli.sites.test_sites import configured
from tests.unit.sites.model import registry
from tests.unit.sites.two import fly, level
from tests.unit.sites.whole import share

pytestmark = pytest.mark.feature("P5", "Q1", "O1")
Halog = Callable[..., Ran]


@pytest.fixture
def sites() -> Iterator[tuple[Cluster, Cluster]]:
    """Zone `test` has two nodes at each site, and a quorum."""
    west = Cluster(2, partitions=3, registry=registry, site="west", others=("east",))
    east = Cluster(2, partitions=3, registry=registry, site="east", home=west)
    share(west, east, percentage=51, Own=PolicyConfig("west", 1, home="west"))
    with west, east:
        yield west, east


@pytest.fixture
def files(sites: tuple[Cluster, Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    return configured(*sites, tmp_path, monkeypatch)


def zone(halog: Halog, file: Path, name: str = "test") -> dict[str, Any]:
    found: dict[str, Any] = halog("zone", "show", name, "--config", file, "--format", "json").json
    return found


def states(halog: Halog, file: Path) -> dict[str, str]:
    return {n["node"]: n["state"] for n in zone(halog, file)["nodes"]}


@pytest.mark.parametrize(("here", "there"), [("west", "east"), ("east", "west")])
def test_every_site_shows_the_whole_zone(halog: Halog, files: dict[str, Path], here: str, there: str) -> None:
    wait_until(lambda: zone(halog, files[here])["state"] == "active", "all are seen")
    ran = halog("zone", "show", "test", "--config", files[here], "--format", "json")
    assert ran.code == 0, ran
    assert [(n["node"], n["site"], n["state"], n["have"], n["needed"]) for n in ran.json["nodes"]] == [
        (f"{site}-{node}", site, "active", 2, 2) for site in (here, there) for node in "AB"
    ]
    assert [(s["site"], s["state"], s["quorum"], s["why"]) for s in ran.json["sites"]] == [
        (site, "active", "51 % of 2 votes", None) for site in (here, there)
    ]
    shown = halog("zone", "list", "--config", files[here]).out
    assert f"{here}: {here}-A, {here}-B; {there}: {there}-A, {there}-B" in shown
    assert f"{here}: 51 % of 2 votes; {there}: 51 % of 2 votes" in shown
    listed = halog("zone", "list", "--config", files[here], "--format", "json")
    assert listed.code == 0
    assert [(z["zone"], z["site"], [s["site"] for s in z["sites"]]) for z in listed.json] == [
        ("test", here, [here, there]),
        ("west", here, ["west"]),
        ("east", here, ["east"]),
    ]


def test_a_node_that_is_missed_at_the_other_site_is_seen_from_here(
    halog: Halog, files: dict[str, Path], sites: tuple[Cluster, Cluster]
) -> None:
    """Its site's quorum is lost; this one's is not, and goes on."""
    west, east = sites
    east.kill("east-A")
    wait_until(lambda: states(halog, files["west"])["east-B"] == "disabled", "east-B is disabled")
    assert states(halog, files["west"]) == {
        "west-A": "active",
        "west-B": "active",
        "east-A": "down",
        "east-B": "disabled",
    }
    ran = halog("zone", "list", "--config", files["west"])
    assert (ran.code, "east-B without a quorum; missed: east-A" in ran.out) == (4, True), ran
    shown = halog("zone", "show", "test", "--config", files["west"]).out
    assert "test: disabled" in shown
    assert "site east  disabled" in shown
    sites_ = zone(halog, files["west"])["sites"]
    assert [(s["site"], s["state"]) for s in sites_] == [("west", "active"), ("east", "disabled")]
    fly(west, 1)


def test_a_site_that_is_not_seen_is_said(halog: Halog, files: dict[str, Path], sites: tuple[Cluster, Cluster]) -> None:
    """What is seen stands: the zone misses the other half, and says why."""
    west, east = sites
    level(west, east)
    west.cut()
    told = zone(halog, files["west"])
    assert (told["state"], told["sites"][0]["state"], told["sites"][1]["state"]) == ("partial", "active", "unknown")
    assert told["sites"][1]["why"].startswith("cannot be reached: ")
    assert states(halog, files["west"])["east-A"] == "unknown"
    ran = halog("zone", "list", "--config", files["west"])
    assert (ran.code, "site east cannot be reached: " in ran.out) == (4, True), ran
    assert "site east  unknown: cannot be reached" in halog("zone", "show", "test", "--config", files["west"]).out


def test_nodes_that_are_not_to_be_asked_are_silent(halog: Halog, files: dict[str, Path]) -> None:
    """Who is registered there is seen all the same."""
    files["west"].write_text(files["west"].read_text().replace("requests = true", "requests = false"))
    told = zone(halog, files["west"])
    assert [n["state"] for n in told["nodes"] if n["site"] == "east"] == ["silent", "silent"]
    assert told["sites"][1]["why"] == "its nodes are not asked: [sites.east] has requests = false"
    assert told["state"] == "partial"


def test_a_quorum_is_switched_off_at_one_site(
    halog: Halog, files: dict[str, Path], sites: tuple[Cluster, Cluster]
) -> None:
    ran = halog("zone", "quorum", "test", "--off", "--cluster", "test", "--reason", "moving", "--config", files["east"])
    assert ran.code == 0, ran
    west, east = zone(halog, files["west"])["sites"]
    assert (west["off"], east["off"], east["reason"]) == (False, True, "moving")
    assert (
        "west: 51 % of 2 votes; east: 51 % of 2 votes (switched off since 20"
        in halog("zone", "show", "test", "--config", files["west"]).out
    )


def test_a_zone_of_another_site_has_no_switch_here(halog: Halog, files: dict[str, Path]) -> None:
    ran = halog("zone", "quorum", "east", "--config", files["west"])
    assert (ran.code, "zone east has no node at site west: give the command with" in ran.err) == (5, True)
    assert halog("zone", "show", "eats", "--config", files["west"]).code == 2


def test_what_is_of_one_site_alone_is_given_to_no_other(
    halog: Halog, files: dict[str, Path], sites: tuple[Cluster, Cluster]
) -> None:
    """Nobody would serve it. The other site cannot be asked, and need not be: the file says where it is."""
    west, _ = sites
    wait_until(lambda: zone(halog, files["west"])["state"] == "active", "all are seen")
    west.cut()
    ran = halog("site", "demote", "--to", "east", "--partition", "own-0", "--config", files["west"])
    assert (ran.code, "own-0: policy own has no node at site east, so nobody would serve it" in ran.err) == (5, True)
    ran = halog("site", "demote", "--to", "east", "--config", files["west"])
    assert ran.code == 0, ran
    assert {n: t.owner for n, t in west.tables().items()} == {
        "own-0": "",
        "test-0": "east",
        "test-1": "east",
        "test-2": "east",
    }
