"""Who had a site take over, give up, or let go of another one, and why, is told (F6)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from halog.testing.cluster import Cluster
from tests.unit.cli.conftest import Ran
from tests.unit.cli.sites.test_sites import asked, files
from tests.unit.sites.two import east, fly, level, west

pytestmark = pytest.mark.feature("M1", "M5", "X4")
__all__ = ["east", "files", "west"]
Halog = Callable[..., Ran]


def test_it_is_told_who_let_the_history_split_when_and_why(
    west: Cluster, east: Cluster, files: dict[str, Path], halog: Halog
) -> None:
    """At the site that it was said at, and beside the epoch that began with it, or ended."""
    fly(west, *range(10))
    level(west, east)
    east.cut(), west.cut()
    ran = halog(
        "site", "promote", "--may-fork", "--cluster", "test", "--reason", "west burns", "--config", files["east"]
    )
    assert ran.code == 0, ran.err
    east.settle()
    fly(east, 50), fly(west, 60)
    told = asked(halog, files["east"])
    assert {e["partition"] for e in told} == set(east.tables())
    for e in told:
        assert (e["more"]["action"], e["more"]["site"], e["more"]["to"], e["more"]["may_fork"]) == (
            "promote",
            "west",
            "east",
            True,
        )
        assert (e["more"]["reason"], e["more"]["by"]) == ("west burns", e["node"])
        assert "serves it in place of site west, and the history may split: by " in e["text"]
        assert e["text"].endswith(": west burns")
    for name in east.tables():
        epochs = halog("history", name, "--why", "--config", files["east"], "--format", "json").json
        said = [e["epoch"] for e in epochs if "west burns" in (e["because"] or "")]
        assert said == [epochs[-1]["epoch"]], epochs
    east.mend(), west.mend()
    ran = halog("site", "demote", "--to", "east", "--reason", "it has less", "--config", files["west"])
    assert ran.code == 0, ran.err
    (one, *_) = found = asked(halog, files["west"])
    assert len(found) == 3
    assert (one["more"]["action"], one["more"]["to"], one["more"]["may_fork"]) == ("demote", "east", False)
    epochs = halog("history", one["partition"], "--why", "--config", files["west"], "--format", "json").json
    assert [e["epoch"] for e in epochs if "it has less" in (e["ended"] or "")] == [one["epoch"]], epochs


def test_what_changes_nothing_is_not_told(west: Cluster, files: dict[str, Path], halog: Halog) -> None:
    assert halog("site", "promote", "--config", files["west"]).code == 0
    east = files["east"]
    assert halog("site", "demote", "--to", "west", "--config", east).code == 0
    assert asked(halog, files["west"]) == asked(halog, east) == []
