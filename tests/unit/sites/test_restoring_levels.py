"""A branch whose log states a higher level is merged behind a record that states it here, too (U1)."""

from __future__ import annotations

import pytest

from halog.core.log import records
from halog.metadata import cluster_level
from halog.metadata.cluster_level import raise_level, read_level
from halog.metadata.restore_requests import DONE
from halog.ports import TopicPartition
from halog.runtime.store import encoding
from halog.testing.cluster import Cluster, wait_until
from tests.unit.sites.test_restoring import coordinator, mend, note, noted, restore, split
from tests.unit.sites.test_switching import owners
from tests.unit.sites.two import east, fly, level, west

pytestmark = [pytest.mark.feature("U1", "M2"), pytest.mark.timeout(120)]
__all__ = ["east", "west"]


@pytest.fixture(autouse=True)
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """This halog knows level 2."""
    for module in (records, cluster_level, encoding):
        monkeypatch.setattr(module, "LEVEL", 2)


def stated(cluster: Cluster) -> set[int]:
    nodes = [cluster.node(name) for name in cluster.names]
    return {c.core.state.chain.state.level for node in nodes for c in node.runtime.copies.values()}


def test_what_a_branch_states_stands_in_front_of_its_merge(west: Cluster, east: Cluster) -> None:
    """West was raised while the line was cut; east merges its branch, and has stated level 2 before that."""
    fly(west, *range(6))
    split(west, east)
    raise_level(coordinator(west), 2, "ops", 1)
    wait_until(lambda: stated(west) == {2}, "west's logs state it")
    note(west, 1, "west"), note(east, 2, "east")
    mend(west, east)
    assert stated(east) == {1}
    assert {r.phase for r in restore(west, east).values()} <= {DONE}
    wait_until(lambda: owners(west) == {"east"}, "west mirrors east")
    level(west, east)
    assert noted(west) == noted(east)
    assert (stated(east), read_level(coordinator(east)).level) == ({2}, 2)
    log = east.node(east.names[0]).runtime.adapters.log
    for table in east.tables().values():
        tp = TopicPartition(table.topic, table.index)
        kinds = [type(records.decode(entry.value)) for entry in log.read(tp, 0, log.bounds(tp)[1])]
        merges = [i for i, kind in enumerate(kinds) if kind in (records.MergePart, records.EpochMerged)]
        levels = [i for i, kind in enumerate(kinds) if kind is records.LevelStated]
        assert not merges or (levels[0] < merges[0] and levels[-1] > merges[-1]), kinds
