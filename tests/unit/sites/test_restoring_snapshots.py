"""Snapshots across a merge: what was merged, and what is known to have happened, comes back from them (R8, W6)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from halog.config import SnapshotConfig
from halog.errors import RefusedError
from halog.metadata.restore_requests import DONE
from halog.runtime.host import snapshotter as snapshots
from halog.runtime.replica.driver import Copy
from halog.testing.cluster import Cluster, wait_until
from tests.unit.sites.model import Flight, registry
from tests.unit.sites.snapshotting import level, lose
from tests.unit.sites.test_restoring import drop, mend, note, noted, restore, split
from tests.unit.sites.test_switching import NAMES, owners
from tests.unit.sites.two import fly, west

pytestmark = pytest.mark.feature("M2", "R8")
__all__ = ["west"]

SOON = SnapshotConfig(every_records=5, every_ms=200, keep_records=1)


def copies(cluster: Cluster, node: str) -> dict[str, Copy]:
    return dict(cluster.node(node).runtime.copies)


def happened(cluster: Cluster, node: str) -> dict[str, dict[bytes, int]]:
    return {name: dict(copy.core.state.outcomes.items()) for name, copy in copies(cluster, node).items()}


def test_lost_disks_of_both_sites_come_back_with_what_was_merged(
    west: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "IDS", 3)
    west.config = replace(west.config, snapshot=SOON)
    with Cluster(2, partitions=3, registry=registry, site="east", home=west) as east:
        fly(west, *range(20))
        split(west, east)
        fly(west, *range(20, 40)), fly(east, *range(40, 60)), drop(west, 1), note(west, 2, "west"), note(east, 2, "e")
        drop(east, 3), note(west, 3, "west"), drop(west, 4), fly(west, 4), fly(east, 70), fly(west, 70)
        mine = {tx for ids in happened(west, west.names[0]).values() for tx in ids}
        mend(west, east)
        assert {r.phase for r in restore(west, east).values()} == {DONE}
        wait_until(lambda: owners(west) == {"east"}, "west mirrors")
        level(west, east)
        expected = noted(east)
        for name in NAMES:
            for cluster in (west, east):
                take(cluster, name)
        for cluster in (west, east):
            name = cluster.names[1]
            before = happened(cluster, name)
            lose(cluster, name)
            wait_until(lambda c=cluster, n=name, b=before: happened(c, n) == b, "what happened is known")  # type: ignore[misc]
            assert mine <= {tx for ids in before.values() for tx in ids}
            began = [copy.began_at for copy in copies(cluster, name).values()]
            assert min(began) > 0, "restored from a snapshot"
            with cluster.node(name).transaction(read="local") as tx:
                assert {f.number: f.note for f in tx.extent(Flight)} == expected


def take(cluster: Cluster, partition: str) -> None:
    """By whoever takes them."""
    for name in cluster.names:
        host = cluster.node(name).runtime.host
        assert host is not None
        copy = host.copies[partition]
        if copy.serving or cluster.site == "west":
            wait_until(lambda h=host, c=copy: taken(h.snapshots, c), "no snapshot")  # type: ignore[misc]
            return


def taken(by: snapshots.Snapshots, copy: Copy) -> bool:
    """Unless the node takes one itself just now."""
    try:
        by.take(copy)
    except RefusedError:
        return False
    return True
