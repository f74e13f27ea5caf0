"""`halog site let-go`: commits go on without a site whose log, or whose votes, they need, from the command line; and
what is shown of such sites."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from halog.errors import RefusedError, SitesError
from halog.testing.cluster import Cluster, wait_until
from tests.unit.cli.conftest import Ran
from tests.unit.cli.sites.test_sites import asked, configured
from tests.unit.sites.model import registry
from tests.unit.sites.two import flights, fly

pytestmark = pytest.mark.feature("M1", "M5", "X4")
Halog = Callable[..., Ran]


def gauges(halog: Halog, file: Path) -> dict[str, str]:
    """What `halog site metrics` prints."""
    ran = halog("site", "metrics", "--config", file)
    assert ran.code == 0, ran.err
    return dict(line.rsplit(" ", 1) for line in ran.out.splitlines() if not line.startswith("#"))


@pytest.fixture
def synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Cluster, Cluster, dict[str, Path]]]:
    """West, east, and their files: commits wait for the other one's log, and it has everything."""
    both = ("west", "east")
    with (
        Cluster(
            2, partitions=3, registry=registry, site="west", others=("east",), sync_sites=both, sync_site_away_ms=2_000
        ) as west,
        Cluster(2, partitions=3, registry=registry, site="east", home=west, sync_sites=both) as east,
    ):
        made = configured(west, east, tmp_path, monkeypatch)
        wait_until(lambda: all(t.synced == ("east",) for t in west.tables().values()), "commits wait for east")
        yield west, east, made


def test_it_is_shown_whose_log_commits_wait_for_and_a_site_is_let_go_of(
    synced: tuple[Cluster, Cluster, dict[str, Path]], halog: Halog
) -> None:
    west, east, files = synced

    def lag() -> list[dict[str, object]]:
        found: list[dict[str, object]] = halog("site", "lag", "--config", files["east"], "--format", "json").json
        return found

    wait_until(lambda: {m["commits_wait"] for m in lag()} == {True}, "it is told that commits wait")
    listed = halog("site", "list", "--config", files["west"], "--format", "json").json
    assert [(d["site"], d["waited_for"]) for d in listed] == [("west", 0), ("east", 3)]
    status = halog("status", "--config", files["west"], "--format", "json")
    assert (status.code, status.json["sync_sites"]) == (0, {"east": {"sync": 3}})
    assert "its log has what is committed in 3 of 3 partitions" in halog("status", "--config", files["west"]).out
    refused = halog("site", "let-go", "west", "--config", files["east"], "--partition", "test-0")
    assert (refused.code, "served by site west" in refused.err) == (5, True), refused.err
    labels = f'cluster="{west.config.cluster.name}",site="west",partition="test-%d",other="east"'
    at_east = [f"{{{labels % n}}}" for n in range(3)]
    values = gauges(halog, files["west"])
    assert [(values[f"halog_site_sync{at}"], values[f"halog_site_sync_away{at}"]) for at in at_east] == [("1", "0")] * 3
    assert not any("_sync" in name for name in gauges(halog, files["east"]))
    east.cut()

    def away() -> bool:
        ran = halog("status", "--config", files["west"], "--format", "json")
        return ran.code == 4 and ran.json["sync_sites"] == {"east": {"away": 3}}

    wait_until(away, "it is shown that the site is away")
    values = gauges(halog, files["west"])
    assert [(values[f"halog_site_sync{at}"], values[f"halog_site_sync_away{at}"]) for at in at_east] == [("0", "1")] * 3
    assert all(float(values[f"halog_site_sync_behind_records{at}"]) >= 0 for at in at_east)
    shown = halog("partition", "show", "test-0", "--config", files["west"])
    assert "sync site missing" in shown.out
    assert "site east" in shown.out
    with pytest.raises(SitesError, match="site east"):
        fly(west, 1)
    let_go = halog("site", "let-go", "east", "--config", files["west"], "--format", "json")
    assert [(d["partition"], d["changed"]) for d in let_go.json] == [(f"test-{i}", True) for i in range(3)]

    def state() -> object:
        return halog("partition", "show", "test-0", "--config", files["west"], "--format", "json").json["sites"][0][
            "state"
        ]

    wait_until(lambda: state() == "let go", "the active node says so")
    fly(west, 1)
    east.mend()
    wait_until(lambda: halog("status", "--config", files["west"]).code == 0, "the site is back")
    wait_until(lambda: flights(east) == {1}, "what went on without it is there")


def test_what_went_on_before_a_failure_is_told(synced: tuple[Cluster, Cluster, dict[str, Path]], halog: Halog) -> None:
    west, _, files = synced
    west.tree.faults.fail("set", RefusedError("the table of test-1 changes too often"), "partitions/test-1")
    ran = halog("site", "let-go", "east", "--config", files["west"])
    assert (ran.code, "changes too often" in ran.err) == (5, True), ran.err
    assert "partition test-0: goes on without site east" in ran.err
    told = [(e["partition"], e["more"]["action"]) for e in asked(halog, files["west"])]
    assert told == [("test-0", "let-go")]


@pytest.mark.parametrize(
    ("name", "said"), [("north", "there is no site north; known are east"), ("west", "commits wait for no site west")]
)
def test_only_a_site_that_commits_wait_for_is_let_go_of(
    synced: tuple[Cluster, Cluster, dict[str, Path]], halog: Halog, name: str, said: str
) -> None:
    ran = halog("site", "let-go", name, "--config", synced[2]["west"])
    assert (ran.code, said in ran.err) == (2, True), ran.err


# --- votes ---


@pytest.fixture
def voting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Cluster, Cluster, dict[str, Path]]]:
    """Two of three votes are east's."""
    votes: dict[str, Any] = {"takeover": "quorum", "takeover_after_ms": 2_000, "votes": {"west": 1, "east": 2}}
    with (
        Cluster(2, partitions=3, registry=registry, site="west", others=("east",), **votes) as west,
        Cluster(2, partitions=3, registry=registry, site="east", home=west, **votes) as east,
    ):
        made = configured(west, east, tmp_path, monkeypatch)
        yield west, east, made


def test_it_is_shown_whose_the_votes_are_and_a_site_is_overruled(
    voting: tuple[Cluster, Cluster, dict[str, Path]], halog: Halog
) -> None:
    west, east, files = voting
    well = "this site has the quorum in 3 of 3 partitions"
    wait_until(lambda: well in halog("status", "--config", files["west"]).out, "west has the votes")
    shown = halog("partition", "show", "test-0", "--config", files["west"])
    assert "west's 1: west, east's 2: west" in shown.out
    listed = halog("site", "list", "--config", files["west"], "--format", "json").json
    assert [(d["site"], d["votes"]) for d in listed] == [("west", 1), ("east", 2)]
    assert votes_told(west, files, halog) == ("3", "2", "0")
    assert not any("_votes_" in name for name in gauges(halog, files["east"]))
    for name in east.names:
        east.kill(name)
    east.cut()

    def outvoted() -> bool:
        ran = halog("status", "--config", files["west"], "--format", "json")
        return ran.code == 4 and ran.json["votes_of_sites"] == {"partitions": 3, "with_quorum": 0}

    wait_until(outvoted, "it is shown that the votes are missing")
    assert votes_told(west, files, halog) == ("1", "2", "1")
    shown = halog("partition", "show", "test-0", "--config", files["west"])
    assert ("no quorum of sites" in shown.out, "east's 2: not known" in shown.out) == (True, True)
    refused = halog("site", "let-go", "east", "--config", files["west"])
    assert (refused.code, "site east may have done so" in refused.err) == (5, True), refused.err
    unconfirmed = halog("site", "let-go", "east", "--may-fork", "--config", files["west"])
    assert (unconfirmed.code, unconfirmed.err.endswith("the name of this cluster: --cluster test\n")) == (5, True)
    because = ("--may-fork", "--cluster", "test", "--reason", "its building burns")
    let_go = halog("site", "let-go", "east", *because, "--config", files["west"], "--format", "json")
    assert all(d["changed"] for d in let_go.json)
    told = {(e["partition"], e["more"]["site"], e["more"]["may_fork"]) for e in asked(halog, files["west"])}
    assert told == {(name, "east", True) for name in west.tables()}
    epochs = halog("history", "test-0", "--why", "--config", files["west"], "--format", "json").json
    assert "commits go on without site east" in epochs[-1]["because"]
    assert "its building burns" in epochs[-1]["because"]
    wait_until(lambda: halog("status", "--config", files["west"]).code == 0, "west goes on")
    assert votes_told(west, files, halog) == ("1", "1", "0")  # those that were overruled do not count
    fly(west, 1)


def votes_told(west: Cluster, files: dict[str, Path], halog: Halog) -> tuple[str, ...]:
    """West's votes for each partition, those it needs, and whether they are too few."""
    values, told = gauges(halog, files["west"]), set()
    for name in west.tables():
        at = f'{{cluster="{west.config.cluster.name}",site="west",partition="{name}"}}'
        told.add(tuple(values[f"halog_site_{what}{at}"] for what in ("votes_held", "votes_needed", "outvoted")))
    (found,) = told
    return found
