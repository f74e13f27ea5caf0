"""Two sites run different versions of the application: what differs in the version alone is no conflict (M3, U3)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import halog
from halog.schema.registry import Registry
from halog.testing.cluster import Cluster, wait_until
from tests.unit.cli.conftest import Ran
from tests.unit.cli.sites.test_sites import configured
from tests.unit.sites.test_restoring import mend, restore, split
from tests.unit.sites.two import level

pytestmark = pytest.mark.feature("M3", "U3")
Halog = Callable[..., Ran]


def declared(version: int, **fields: str) -> Any:
    """A version of the type, in a registry of its own. `fields`: texts, with defaults."""
    body = {"__annotations__": {"number": int, **dict.fromkeys(fields, str)}, "__module__": __name__, **fields}
    made = type("Flight", (), body)
    return halog.managed(key="number", version=version, registry=Registry())(made)


OLD, NEW = declared(1, note=""), declared(2, note="", gate="")


def write(cluster: Cluster, cls: Any, number: int, **fields: str) -> None:
    with cluster.node(cluster.names[0]).transaction() as tx:
        found = tx.get(cls, number)
        for name, value in fields.items():
            setattr(found, name, value)


@pytest.mark.timeout(120)
def test_what_both_sites_have_written_alike_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, halog: Halog
) -> None:
    """Nor what only one of them has changed, though the other one has written it anew; previews say the same."""
    with (
        Cluster(2, partitions=3, registry=OLD.__halog_registry__, site="west", others=("east",)) as west,
        Cluster(2, partitions=3, registry=NEW.__halog_registry__, site="east", home=west) as east,
    ):
        files = configured(west, east, tmp_path, monkeypatch)
        for number in range(5):
            with west.node(west.names[0]).transaction() as tx:
                tx.create(OLD(number))
        split(west, east)
        write(west, OLD, 1, note="same"), write(east, NEW, 1, note="same")
        write(west, OLD, 2, note="west"), write(east, NEW, 2, note="once"), write(east, NEW, 2, note="")
        write(west, OLD, 3, note="west"), write(east, NEW, 3, gate="B7")
        mend(west, east)
        words = ("conflicts", "list", "--source", "east", "--all", "--config", str(files["west"]), "--format", "json")
        shown = {o["key"][0]: o["is"] for d in halog(*words).json for o in d["objects"]}
        assert shown == {1: "alike", 2: "taken", 3: "state conflict"}
        found = restore(west, east)
        assert sum(n for r in found.values() for n in r.result.get("conflicts", {}).values()) == 1
        wait_until(lambda: {t.owner for t in west.tables().values()} == {"east"}, "west mirrors east")
        level(west, east)
        for cluster, cls in ((west, OLD), (east, NEW)):
            with cluster.node(cluster.names[0]).transaction(read="local") as tx:
                assert {f.number: f.note for f in tx.extent(cls)} == {0: "", 1: "same", 2: "west", 3: "", 4: ""}
