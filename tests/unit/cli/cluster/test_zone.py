"""zone list|show|quorum, and what status says of zones, against a cluster on the memory adapters (Q1, P5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from halog.cli.shared.zone_views import worst
from halog.errors import DeadlineError
from halog.runtime.rpc import frames
from tests.unit.cli.conftest import AROUND, TOML, Cluster, find_around, running, wait_until
from tests.unit.requests import asks

Run = Callable[..., Any]
CONFIRMED = ("--cluster", "ops")


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Three nodes; two votes are needed in zone home, none in zone pair."""
    more = "[zones.home.quorum]\nminimum_votes = 2\n[zones.pair]\nnodes = ['[AB]']\n[policies.p]"
    with running(Cluster(tmp_path, TOML.replace("[policies.p]", more)), monkeypatch) as made:
        wait_until(lambda made=made: all_are_up(made))  # type: ignore[misc]
        yield made


def all_are_up(cluster: Cluster) -> bool:
    """As each node knows it of every other one: tables are whole before two replicas have heard each other, or have
    heard that the other one has its quorum."""
    zones = [zone for node in cluster.nodes.values() for zone in node.runtime.zoning.view()]
    return all(zone["state"] == "active" for zone in zones)


def alone(cluster: Cluster) -> None:
    """C is left, and knows it."""
    for name in "AB":
        cluster.stop(name)
    wait_until(lambda: cluster.nodes["C"].runtime.members.offline)


@pytest.mark.feature("Q1", "P5", "O1")
def test_zones_are_listed_with_their_state_and_quorum(guarded: Cluster, halog: Run) -> None:
    ran = halog("zone", "list", "--format", "json")
    assert ran.code == 0, ran
    assert [(z["zone"], z["state"], z["quorum"], z["off"]) for z in ran.json] == [
        ("home", "active", "2 of 3 votes", False),
        ("pair", "active", None, False),
    ]
    assert [n["node"] for n in ran.json[1]["nodes"]] == ["A", "B"]
    shown = halog("zone", "list")
    assert "home  active  2 of 3 votes  A, B, C" in shown.out


@pytest.mark.feature("Q1", "O1")
def test_a_zone_that_misses_a_node_is_partial_and_exits_4(guarded: Cluster, halog: Run) -> None:
    guarded.stop("C")
    wait_until(lambda: halog("zone", "show", "home", "--format", "json").json["state"] == "partial")
    ran = halog("zone", "show", "home", "--format", "json")
    assert ran.code == 4
    assert [(n["node"], n["state"], n["have"], n["misses"]) for n in ran.json["nodes"]] == [
        ("A", "partial", 2, ["C"]),
        ("B", "partial", 2, ["C"]),
        ("C", "down", None, []),
    ]
    assert (ran.json["policies"], ran.json["quorum"]) == (["p"], "2 of 3 votes")
    assert halog("zone", "show", "pair").code == 0


@pytest.mark.feature("Q1", "O1", "O2")
def test_a_node_without_a_quorum_is_shown_everywhere(guarded: Cluster, halog: Run) -> None:
    alone(guarded)
    shown = halog("zone", "show", "home")
    assert shown.code == 4
    assert "home: disabled" in shown.out
    assert "C     1      disabled  1 votes, 2 needed  A, B" in shown.out
    assert "C without a quorum; missed: A, B" in halog("zone", "list").out
    status = halog("status", "--format", "json")
    assert (status.code, status.json["nodes"]["C"], status.json["zones"]["home"]) == (4, "offline", "disabled")
    assert "zone home" in halog("status").out
    nodes = halog("node", "list", "--format", "json").json
    assert nodes[2]["why"] == "zone home has no quorum here: 1 votes, 2 needed"
    copies = halog("partition", "show", "p-0", "--format", "json").json["copies"]
    assert next(c["error"] for c in copies if c["node"] == "C") == "its node has no quorum in one of its zones"


@pytest.mark.feature("Q1", "O1")
def test_a_quorum_is_switched_off_and_on(guarded: Cluster, halog: Run) -> None:
    alone(guarded)
    ran = halog("zone", "quorum", "home", "--off", *CONFIRMED, "--reason", "two racks burnt", "--format", "json")
    assert (ran.code, ran.json["off"], ran.json["reason"]) == (0, True, "two racks burnt"), ran
    assert ran.json["since_ms"] > 0
    wait_until(lambda: not guarded.nodes["C"].runtime.members.offline)
    shown = halog("zone", "show", "home")
    assert "2 of 3 votes (switched off since 20" in shown.out
    assert "two racks burnt" in shown.out
    again = halog("zone", "quorum", "home", "--off", "--reason", "another", "--format", "json")
    assert again.json["reason"] == "two racks burnt", "it is off already"
    assert halog("zone", "quorum", "home", "--on").code == 0
    wait_until(lambda: guarded.nodes["C"].runtime.members.offline)
    assert halog("zone", "quorum", "home").out.splitlines()[1].endswith("2 of 3 votes")


@pytest.mark.feature("Q1", "O1")
@pytest.mark.parametrize("said", [(), ("--cluster", "prod")], ids=["not confirmed", "of another cluster"])
def test_a_quorum_is_switched_off_only_with_the_name_of_the_cluster(
    guarded: Cluster, halog: Run, said: tuple[str, ...]
) -> None:
    """Switched on it is without."""
    ran = halog("zone", "quorum", "home", "--off", *said)
    assert (ran.code, ran.out) == (5, "")
    assert ran.err == (
        "halog: zone home would have no quorum, and each side of a network that is cut in two would go on with what it "
        "reaches; nothing was changed. If that may be, confirm it with the name of this cluster: --cluster ops\n"
    )
    assert guarded.tree.children("zones") == []
    assert halog("zone", "quorum", "home", "--on").code == 0


@pytest.mark.feature("Q1", "O1")
@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("show", "hmoe"), 2, "there is no zone hmoe; known are home, pair"),
        (("quorum", "hmoe", "--off"), 2, "there is no zone hmoe"),
        (("quorum", "pair", "--off"), 5, "zone pair has no quorum: give it one in [zones.pair.quorum]"),
        (("quorum", "home", "--maybe"), 2, "No such option"),
    ],
)
def test_what_is_refused_is_one_line(guarded: Cluster, halog: Run, args: tuple[str, ...], code: int, said: str) -> None:
    ran = halog("zone", *args)
    assert (ran.code, said in ran.err) == (code, True), ran
    assert guarded.tree.children("zones") == []


@pytest.mark.feature("Q1")
@pytest.mark.parametrize(
    ("states", "state"),
    [
        (["active", "partial", "down"], "partial"),
        (["active", "disabled", "partial"], "disabled"),
        (["down", "silent"], "unknown"),
        (["active", "silent"], "active"),
    ],
)
def test_a_zone_is_as_bad_as_its_worst_node_says(states: list[str], state: str) -> None:
    assert worst(states) == state


@pytest.mark.feature("O1")
def test_a_zone_of_which_nobody_tells_is_unknown_and_exits_4(cluster: Cluster, halog: Run) -> None:
    for name in "ABC":
        cluster.stop(name)
    ran = halog("zone", "list", "--format", "json")
    assert (ran.code, ran.json[0]["state"]) == (4, "unknown")


@pytest.mark.feature("X4", "Q1")
def test_no_node_may_stop_whose_zone_would_have_too_few(guarded: Cluster, halog: Run) -> None:
    """One of three may; once another is down, the third would be alone in its zone, and offline."""
    assert halog("safe-to-stop", "A").code == 0
    guarded.stop("B")
    wait_until(lambda: all(len(t.replicas) == 1 for t in guarded.tables()))
    ran = halog("safe-to-stop", "A", "--format", "json")
    assert ran.code == 5, ran
    lost = {p["why"] for p in ran.json["partitions"] if not p["safe"]}
    assert all("C would be offline, zone home has 1 votes, 2 needed then" in why for why in lost), lost
    assert halog("zone", "quorum", "home", "--off", *CONFIRMED).code == 0
    assert halog("safe-to-stop", "A").code == 0, "switched off, nobody goes offline"


def deaf_to(cluster: Cluster, node: str, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the node hears nothing of that other one, and says so."""
    members = cluster.nodes[node].runtime.members
    heard = members.heard

    def without(name: str, *said: Any) -> None:
        if name != other:
            heard(name, *said)

    monkeypatch.setattr(members, "heard", without)
    wait_until(lambda: not members.links[other].up)


def reaches(halog: Run) -> dict[str, list[str]]:
    """As each node says itself."""
    return {n["node"]: n["reaches"] for n in halog("node", "list", "--format", "json").json}


@pytest.mark.feature("X4", "Q1")
def test_a_quorum_that_goes_by_way_of_a_node_that_stops_is_none(
    guarded: Cluster, halog: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A and B lost each other, both reach C, and all are registered: without C each of them has its own vote."""
    deaf_to(guarded, "A", "B", monkeypatch)
    deaf_to(guarded, "B", "A", monkeypatch)
    wait_until(lambda: reaches(halog) == {"A": ["C"], "B": ["C"], "C": ["A", "B"]})
    ran = halog("safe-to-stop", "C", "--format", "json")
    assert ran.code == 5, ran
    why = "; ".join(f"{node} would be offline, zone home has 1 votes, 2 needed then" for node in "AB")
    assert {p["why"].startswith(why) for p in ran.json["partitions"] if not p["safe"]} == {True}, ran


@pytest.mark.feature("X4", "Q1")
def test_a_node_that_does_not_answer_gives_nobody_a_quorum(
    guarded: Cluster, halog: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B is registered, was heard a moment ago, and has just frozen."""
    assert reaches(halog) == {"A": ["B", "C"], "B": ["A", "C"], "C": ["A", "B"]}
    find_around(monkeypatch, replace(AROUND["commands"], node_answer_s=0.5))
    address = guarded.nodes["B"].runtime.info.address
    silent = DeadlineError(f"{address} did not reply in 0.5 s")
    with guarded.commands_faults.fail("request", silent, asks(frames.StatusRequest, at=address)):
        ran = halog("safe-to-stop", "A", "--format", "json")
    assert ran.code == 5, ran
    why = "C would be offline, zone home has 1 votes, 2 needed then: "
    assert [(p["safe"], p["why"].startswith(why)) for p in ran.json["partitions"]] == [(False, True)] * 6
