"""`halog site …`: which site serves, how far mirrors are, taking over and giving away, from the command line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from halog.adapters.memory import Faults, MemoryChannel, MemoryCoordinator, MemoryLog
from halog.cli.shared.surroundings import Surroundings
from halog.cli.sites.metrics import of_parted, text
from halog.config import Config
from halog.errors import RefusedError
from halog.runtime.support.adapters import Adapters
from halog.testing.cluster import Cluster, wait_until
from tests.unit.cli.conftest import AROUND, BUSY_S, Ran, find_around
from tests.unit.sites.test_switching import NAMES, switching
from tests.unit.sites.two import east, flights, fly, level, west

pytestmark = pytest.mark.feature("M1", "M5", "X4")
__all__ = ["east", "west"]
Halog = Callable[..., Ran]


@pytest.fixture
def files(
    west: Cluster, east: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands_faults: Faults
) -> dict[str, Path]:
    """The configuration of each site."""
    return configured(west, east, tmp_path, monkeypatch, commands_faults)


def configured(
    west: Cluster, east: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: Faults | None = None
) -> dict[str, Path]:
    """`faults`: what the requests of commands meet."""
    west.see(east)
    sites = {cluster.site: cluster for cluster in (west, east)}

    def adapters(config: Config, name: str, **_: float) -> Adapters:
        at = sites[config.site.name]
        channel = MemoryChannel(faults=faults)
        return Adapters(MemoryLog(at.broker), MemoryCoordinator(at.tree), channel, None, at._reach)

    find_around(monkeypatch, Surroundings(adapters, registry=west.registry, node_answer_s=BUSY_S))
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
    assert (there["requests"], here["requests"]) == ("", "2 of 2 nodes answer")
    lags = halog("site", "lag", "--config", files["east"], "--format", "json").json
    assert {(m["site"], m["why"], m["parted"]) for m in lags} == {("west", "", False)}
    assert {m["by"] for m in lags} <= set(east.names)
    assert halog("site", "lag", "--config", files["west"]).code == 0


def test_list_says_whether_requests_can_go_to_the_other_site(
    west: Cluster, files: dict[str, Path], halog: Halog
) -> None:
    west.kill("west-A")
    ran = halog("site", "list", "--config", files["east"], "--format", "json")
    assert ran.json[1]["requests"] == "1 of 1 nodes answer"
    off = files["east"].read_text().replace("requests = true", "requests = false")
    files["east"].write_text(off)
    assert halog("site", "list", "--config", files["east"], "--format", "json").json[1]["requests"] == "off"
    elsewhere = off.replace("requests = false", 'requests = true\nnodes = { west-B = "127.0.0.1:1" }')
    files["east"].write_text(elsewhere)
    assert "0 of 1 nodes answer" in halog("site", "list", "--config", files["east"]).out


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
    for said in ((), ("--cluster", "prod")):
        ran = halog("site", "promote", "--may-fork", *said, "--config", files["east"])
        assert (ran.code, ran.out) == (5, "")
        assert ran.err == (
            "halog: what site west serves would be served here, too, and the history may split; nothing was changed. "
            "If that may be, confirm it with the name of this cluster: --cluster test\n"
        )
    forked = halog("site", "promote", "--may-fork", "--cluster", "test", "--config", files["east"])
    assert (forked.code, forked.out.count("perhaps")) == (0, 3)


def asked(halog: Halog, config: Path) -> list[dict[str, Any]]:
    """What operators have said about sites, as that site's history has it."""
    ran = halog("events", "--config", config, "--format", "json")
    return [e for e in ran.json if e["code"] == "HALOG-1044"]


def test_nothing_is_given_to_a_site_that_does_not_serve_it(
    west: Cluster, east: Cluster, files: dict[str, Path], halog: Halog
) -> None:
    """Whoever means to have the other site take over, and says it at the wrong one, stops nothing."""
    ran = halog("site", "demote", "--to", "east", "--config", files["west"])
    assert (ran.code, "not served by site east" in ran.err) == (5, True)
    assert {t.owner for t in west.tables().values()} == {""}
    fly(west, 1)
    assert halog("site", "demote", "--to", "west", "--config", files["east"]).code == 0, "it is the west's already"


def test_what_was_given_up_before_a_failure_is_told(
    west: Cluster, east: Cluster, files: dict[str, Path], halog: Halog, monkeypatch: pytest.MonkeyPatch
) -> None:
    fly(west, *range(10))
    level(west, east)
    east.cut()
    assert halog("site", "promote", "--may-fork", "--cluster", "test", "--config", files["east"]).code == 0
    east.settle()
    east.mend()
    west.tree.faults.fail("set", RefusedError("the table of test-1 changes too often"), "partitions/test-1")
    ran = halog("site", "demote", "--to", "east", "--reason", "too late", "--config", files["west"])
    assert (ran.code, "changes too often" in ran.err) == (5, True), ran.err
    assert "partition test-0: stops here, for site east to serve it" in ran.err
    told = [(e["partition"], e["more"]["action"], e["more"]["reason"]) for e in asked(halog, files["west"])]
    assert told == [("test-0", "demote", "too late")]


def test_what_was_given_and_not_taken_is_shown_with_what_ends_it(
    west: Cluster, east: Cluster, files: dict[str, Path], halog: Halog
) -> None:
    """A command died in between: nobody serves, and this site waits for the other one to take it."""
    fly(west, 1)
    switching(west).demote(NAMES, "east")

    def shown() -> bool:
        ran = halog("site", "lag", "--config", files["west"])
        return ran.code == 4 and ran.out.count("`halog site promote` at east, or here, says who serves") == 3

    wait_until(shown, "it is shown")
    listed = halog("site", "list", "--config", files["west"], "--format", "json")
    assert (listed.code, sorted(listed.json[1]["still"])) == (4, NAMES)


def test_parted_histories_are_shown_and_fail_the_command(
    west: Cluster, east: Cluster, files: dict[str, Path], halog: Halog
) -> None:
    fly(west, *range(10))
    level(west, east)
    east.cut()
    halog("site", "promote", "--may-fork", "--cluster", "test", "--config", files["east"])
    east.settle()
    fly(west, *range(10, 30))
    fly(east, *range(100, 130))
    east.mend()
    assert halog("site", "demote", "--to", "east", "--config", files["west"]).code == 0

    def shown() -> bool:
        ran = halog("site", "list", "--config", files["west"], "--format", "json")
        return ran.code == 4 and len(ran.json[1]["parted"]) == 3

    wait_until(shown, "the split is not shown")

    def counted() -> bool:
        return all(one["here"] for one in halog("status", "--config", files["west"], "--format", "json").json["parted"])

    wait_until(counted, "nobody has counted")
    status = halog("status", "--config", files["west"], "--format", "json")
    assert (status.code, len(status.json["parted"]), status.json["ok"]) == (4, 3, False)
    one = halog("partition", "show", "test-0", "--config", files["west"], "--format", "json")
    assert one.json["state"] == "parted"
    check_numbers(west, files["west"], halog)
    ran = halog("site", "promote", "--config", files["west"])
    assert (ran.code, "have parted" in ran.err) == (5, True)


def check_numbers(west: Cluster, file: Path, halog: Halog) -> None:
    """The fork, and what was touched on both sides, in all that shows it."""
    found = halog("site", "list", "--config", file, "--format", "json").json[1]["parted"]
    said = halog("status", "--config", file, "--format", "json").json["parted"]
    for shown in (found, said):
        assert {(p["site"], p["why"], p["fork"]["site"]) for p in shown} == {("east", "", "west")}
        assert sum(p["here"]["objects"] for p in shown) == 20
        assert sum(p["there"]["objects"] for p in shown) == 30
    metrics = halog("site", "metrics", "--config", file)
    assert metrics.code == 0
    values = dict(line.rsplit(" ", 1) for line in metrics.out.splitlines() if not line.startswith("#"))
    for p in found:
        labels = f'cluster="{west.config.cluster.name}",site="west",partition="{p["partition"]}",other="east"'
        lsn, here, there = p["fork"]["lsn"], p["here"]["objects"], p["there"]["objects"]
        assert values[f"halog_site_parted{{{labels}}}"] == "1"
        assert values[f"halog_site_parted_fork_lsn{{{labels}}}"] == str(lsn)
        assert values[f'halog_site_parted_objects{{{labels},side="here"}}'] == str(here)
        assert values[f'halog_site_parted_objects{{{labels},side="there"}}'] == str(there)
        assert values[f'halog_site_parted_objects_capped{{{labels},side="there"}}'] == "0"
        for command in (("site", "list"), ("status",)):
            rows = [line.split() for line in halog(*command, "--config", file).out.splitlines()]
            assert any(row[:5] == [p["partition"], "east", *map(str, (lsn, here, there))] for row in rows)
        shown = halog("partition", "show", p["partition"], "--config", file).out
        assert f"from site east, behind lsn {lsn}: {here} objects touched here, {there} there" in shown


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["demote", "--to", "north"], "there is no site north; known are"),
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
    assert (ran.json["without_active"], len(ran.json["mirrored"]), ran.json["parted"]) == ([], 3, [])
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
        return there.core.state.chain.state.hash == here.core.state.chain.state.hash

    wait_until(same, "the other node mirrors it")


def test_metrics_say_what_was_not_counted_to_its_end() -> None:
    """What one side has touched is a number, and a lower bound, or not known yet."""
    counted = {"objects": 98_211, "at_least": True, "lsn": 120_000, "age_s": 2.5}
    parted = {"partition": "p-0", "site": "west", "fork": {"lsn": 7}, "here": counted, "there": None}
    lines = text(of_parted({"site": "east"}, [parted])).splitlines()
    here = '{site="east",partition="p-0",other="west",side="here"}'
    assert [line for line in lines if not line.startswith("#")] == [
        'halog_site_parted{site="east",partition="p-0",other="west"} 1',
        'halog_site_parted_fork_lsn{site="east",partition="p-0",other="west"} 7',
        f"halog_site_parted_objects{here} 98211",
        f"halog_site_parted_objects_capped{here} 1",
        f"halog_site_parted_age_seconds{here} 2.5",
    ]


def test_a_mirror_that_brings_nothing_is_degraded_at_both_sites(
    west: Cluster, east: Cluster, files: dict[str, Path], halog: Halog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line is cut: the site that mirrors says that nothing comes, the one that serves that nothing is fetched."""
    find_around(monkeypatch, replace(AROUND["commands"], mirror_stale_s=3.0))

    def states(site: str) -> dict[str, Any]:
        ran = halog("status", "--config", files[site], "--format", "json")
        return {"code": ran.code, **(ran.json["why"] if ran.out else {})}

    wait_until(lambda: states("west") == {"code": 0} == states("east"), "both are well")
    east.cut()
    wait_until(lambda: states("west")["code"] == 4 == states("east")["code"], "both say that nothing is mirrored")
    assert "brings nothing of it" in str(states("west")), "the one that serves"
    assert re.search("nobody has mirrored it for|cut|not begun|reach", str(states("east"))), "the one that mirrors"
    listed = halog("site", "list", "--config", files["west"])
    assert (listed.code, "site east mirrors nothing of " in listed.err) == (4, True)
    east.mend()
    wait_until(lambda: states("west") == {"code": 0} == states("east"), "both are well again")
