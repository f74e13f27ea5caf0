"""`halog site promote --may-fork` of policies whose histories cannot be merged: what it says, and that it is so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from halog.testing.cluster import Cluster, wait_until
from tests.unit.cli.conftest import Ran
from tests.unit.cli.sites.test_sites import configured
from tests.unit.sites.model import registry
from tests.unit.sites.two import flights, fly, level

pytestmark = pytest.mark.feature("M5", "M2", "P6")
Halog = Callable[..., Ran]

WARNING = (
    "policy test keeps a directory of keys (mapper round_robin): where both sites go on with it they cannot be merged, "
    "and one of them must give up what it did"
)


def listing(cluster: Cluster) -> Cluster:
    """The same, with a policy that keeps a directory of keys."""
    policy = replace(cluster.config.policies["test"], mapper="round_robin")
    cluster.config = replace(cluster.config, policies={"test": policy}).validate()
    return cluster


@pytest.fixture
def sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Cluster, Cluster, dict[str, Path]]]:
    """West, east, and their files."""
    with (
        listing(Cluster(2, partitions=3, registry=registry, site="west", others=("east",))) as west,
        listing(Cluster(2, partitions=3, registry=registry, site="east", home=west)) as east,
    ):
        yield west, east, configured(west, east, tmp_path, monkeypatch)


def test_who_lets_both_sites_go_on_is_warned_of_what_cannot_be_merged(
    sites: tuple[Cluster, Cluster, dict[str, Path]], halog: Halog
) -> None:
    """On stderr, before anything is done, once for the policy; and then it is done, as was asked for."""
    west, east, files = sites
    fly(west, *range(6))
    level(west, east)
    east.cut()
    refused = halog("site", "promote", "--config", files["east"])
    assert (refused.code, "--may-fork" in refused.err, WARNING in refused.err) == (5, True, False), refused.err
    ran = halog("site", "promote", "--may-fork", "--cluster", "test", "--config", files["east"], "--format", "json")
    assert ran.code == 0, ran.err
    assert ran.err.splitlines()[0] == WARNING
    assert ran.err.count("policy test keeps a directory") == 1
    assert {(d["from"], d["may_fork"]) for d in ran.json} == {("west", True)}
    east.settle()
    assert flights(east) == set(range(6))


def test_it_is_as_the_warning_says(sites: tuple[Cluster, Cluster, dict[str, Path]], halog: Halog) -> None:
    """Both have gone on: a restore is refused, in whichever words it is asked for, and both serve on."""
    west, east, files = sites
    fly(west, *range(6))
    level(west, east)
    east.cut()
    assert halog("site", "promote", "--may-fork", "--cluster", "test", "--config", files["east"]).code == 0
    east.settle()
    fly(west, *range(10, 16))
    fly(east, *range(20, 26))
    east.mend()
    for words in (("--dry-run",), ("--partition", "test-0"), ()):
        ran = halog("restore", "--source", "east", *words, "--config", files["west"])
        assert (ran.code, "policy test keeps a directory of keys" in ran.err) == (5, True), ran.err
    assert {t.owner for c in (west, east) for t in c.tables().values()} == {""}
    fly(west, 16)
    fly(east, 26)
    wait_until(lambda: (16 in flights(west), 26 in flights(east)) == (True, True), "both serve on")


def test_of_a_policy_that_can_be_merged_nothing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, halog: Halog
) -> None:
    with (
        Cluster(2, partitions=3, registry=registry, site="west", others=("east",)) as west,
        Cluster(2, partitions=3, registry=registry, site="east", home=west) as east,
    ):
        files = configured(west, east, tmp_path, monkeypatch)
        east.cut()
        ran = halog("site", "promote", "--may-fork", "--cluster", "test", "--config", files["east"])
        assert (ran.code, "directory" in ran.err) == (0, False), ran.err
