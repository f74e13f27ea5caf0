"""`halog upgrade finish` asks every site: other sites' nodes read this one's logs (U1, M1)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from halog.adapters.memory import Faults
from halog.metadata import cluster_level
from halog.testing.cluster import Cluster
from tests.unit.cli.conftest import Ran
from tests.unit.cli.sites.test_sites import configured
from tests.unit.sites.two import east, west

pytestmark = pytest.mark.feature("U1", "M1")
__all__ = ["east", "west"]
Halog = Callable[..., Ran]


@pytest.fixture
def files(
    west: Cluster, east: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands_faults: Faults
) -> dict[str, Path]:
    monkeypatch.setattr(cluster_level, "LEVEL", 2)
    return configured(west, east, tmp_path, monkeypatch, commands_faults)


def knows(cluster: Cluster, level: int) -> None:
    """All nodes of a site have registered that they know this level."""
    for name in cluster.names:
        found = cluster.tree.get(f"nodes/{name}")
        assert found is not None
        data = json.dumps({**json.loads(found.data), "level": level}).encode()
        cluster.tree.set(f"nodes/{name}", data, found.version)


def test_nodes_of_another_site_that_do_not_know_the_level_keep_it_as_it_is(
    west: Cluster, east: Cluster, files: dict[str, Path], halog: Halog
) -> None:
    knows(west, 2)
    ran = halog("upgrade", "finish", "--leave-clients", "--config", files["west"])
    assert ran.code == 5, ran
    assert "node east-A of site east runs halog" in ran.err
    assert west.tree.get("level") is None
    knows(east, 2)
    done = halog("upgrade", "finish", "--leave-clients", "--config", files["west"], "--format", "json")
    assert (done.code, done.json["level"]) == (0, 2), done
    assert west.tree.get("level") is not None
    assert east.tree.get("level") is None, "each site has a level of its own"


def test_a_site_that_cannot_be_asked_keeps_the_level_as_it_is(
    west: Cluster, east: Cluster, files: dict[str, Path], halog: Halog
) -> None:
    knows(east, 2)
    east.cut()
    ran = halog("upgrade", "finish", "--leave-clients", "--config", files["east"])
    assert ran.code == 5, ran
    assert "site west cannot be asked" in ran.err
    assert east.tree.get("level") is None


@pytest.mark.parametrize(
    ("state", "back", "said"),
    [
        ("running", False, "is not done: it is running"),
        ("paused", False, "is not done: it is paused"),
        ("paused", True, "is being taken back: it is paused"),
    ],
)
def test_an_upgrade_of_another_site_that_is_not_done_keeps_the_level_as_it_is(
    west: Cluster, east: Cluster, files: dict[str, Path], halog: Halog, state: str, back: bool, said: str
) -> None:
    knows(west, 2)
    knows(east, 2)
    east.tree.create("upgrade", json.dumps({"to": "9.9.0", "state": state, "back": back}).encode(), 0)
    finish = ("upgrade", "finish", "--leave-clients", "--config", files["west"])
    ran = halog(*finish)
    assert ran.code == 5, ran
    assert f"the upgrade of site east to halog 9.9.0 {said}" in ran.err
    assert west.tree.get("level") is None
    found = east.tree.get("upgrade")
    assert found is not None
    east.tree.set("upgrade", json.dumps({"to": "9.9.0", "state": "complete"}).encode(), found.version)
    assert halog(*finish).code == 0
