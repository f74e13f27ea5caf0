"""`halog conflicts list`: what two sites that both went on contradict each other in, by kind, and what stands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halog.testing.cluster import Cluster, wait_until
from tests.unit.cli.conftest import Ran
from tests.unit.cli.sites.test_sites import files
from tests.unit.sites.model import Flight
from tests.unit.sites.two import east, flights, fly, level, west

pytestmark = pytest.mark.feature("M1", "M3", "X4")
__all__ = ["east", "files", "west"]
Halog = Callable[..., Ran]


def note(cluster: Cluster, number: int, text: str | None) -> None:
    """Change a flight, or delete it."""
    with cluster.node(cluster.names[0]).transaction() as tx:
        found = tx.get(Flight, number)
        if text is None:
            tx.delete(found)
        else:
            found.note = text


@pytest.fixture
def parted(west: Cluster, east: Cluster, files: dict[str, Path], halog: Halog) -> dict[str, Path]:
    """Flights 1 to 6 are common; then each site goes on."""
    fly(west, *range(1, 7))
    level(west, east)
    east.cut()
    assert halog("site", "promote", "--may-fork", "--cluster", "test", "--config", files["east"]).code == 0
    east.settle()
    note(west, 1, "west")
    note(east, 1, "east")
    note(west, 2, None)
    note(east, 2, "changed")
    note(west, 3, "changed")
    note(east, 3, None)
    note(west, 4, "west only")
    note(east, 5, "east only")
    fly(west, 10, 11)
    fly(east, 11)
    for text in ("once", "twice"):
        note(west, 6, text)
    note(east, 6, "twice")
    east.mend()
    return files


def objects(halog: Halog, files: dict[str, Path], *args: str) -> dict[int, dict[str, Any]]:
    ran = halog("conflicts", "list", "--source", "east", *args, "--config", files["west"], "--format", "json")
    assert ran.code == 0, ran.err
    assert {d["histories"] for d in ran.json} <= {"parted", "the same", "site west is behind", "site east is behind"}
    return {o["key"][0]: o for d in ran.json for o in d["objects"]}


def test_each_kind_of_conflict_is_told_with_what_stands(parted: dict[str, Path], halog: Halog) -> None:
    found = objects(halog, parted)
    assert {n: (o["is"], o["stands"]) for n, o in found.items()} == {
        1: ("state conflict", "source"),
        2: ("update delete", "source"),
        3: ("delete update", "source"),
        10: ("instance added", "initiating"),
        11: ("key conflict", "source"),
    }
    one = found[1]
    assert (one["base"]["fields"]["note"], one["source"]["fields"]["note"], one["initiating"]["fields"]["note"]) == (
        "",
        "east",
        "west",
    )
    assert one["type"] == "Flight"
    assert found[2]["initiating"] is None
    assert found[3]["source"] is None


def test_what_only_one_of_them_touched_is_no_conflict_and_shown_if_asked_for(
    parted: dict[str, Path], halog: Halog
) -> None:
    found = objects(halog, parted, "--all")
    assert {n: (found[n]["is"], found[n]["stands"]) for n in (4, 5, 6)} == {
        4: ("taken", "initiating"),
        5: ("kept", "source"),
        6: ("alike", "source"),
    }


TWO_WAY = {
    1: "state conflict",
    3: "instance added",
    4: "state conflict",
    5: "state conflict",
    10: "instance added",
    11: "key conflict",
}


def test_the_manuals_rule_knows_no_ancestor(parted: dict[str, Path], halog: Halog) -> None:
    found = objects(halog, parted, "--two-way")
    assert {n: o["is"] for n, o in found.items()} == TWO_WAY


def by_the_manual(files: dict[str, Path]) -> None:
    """The configuration says so, of every policy with a home."""
    for file in files.values():
        text = file.read_text()
        assert text.count('home = "west"') == 1
        file.write_text(text.replace('home = "west"', 'home = "west"\ncomparison = "two-way"'))


def test_a_policy_may_be_compared_by_the_manuals_rule(parted: dict[str, Path], halog: Halog) -> None:
    by_the_manual(parted)
    assert {n: o["is"] for n, o in objects(halog, parted).items()} == TWO_WAY
    assert objects(halog, parted, "--three-way")[2]["is"] == "update delete"


def test_people_get_a_table_and_nothing_is_changed(
    parted: dict[str, Path], west: Cluster, east: Cluster, halog: Halog
) -> None:
    before = flights(west), flights(east)
    ran = halog("conflicts", "list", "--source", "east", "--config", parted["west"])
    assert "state conflict" in ran.out
    assert "at east" in ran.out
    assert (flights(west), flights(east)) == before


def test_sites_that_did_not_part_have_no_conflicts(
    west: Cluster, east: Cluster, files: dict[str, Path], halog: Halog
) -> None:
    fly(west, *range(5))
    level(west, east)

    def same() -> bool:
        ran = halog("conflicts", "list", "--source", "east", "--config", files["west"], "--format", "json")
        return [(d["histories"], d["objects"]) for d in ran.json] == [("the same", [])] * 3

    wait_until(same, "the histories are the same")
    ran = halog("conflicts", "list", "--source", "north", "--config", files["west"])
    assert (ran.code, "there is no site north; known are east" in ran.err) == (2, True)
