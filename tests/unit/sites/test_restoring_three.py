"""What three sites cannot make one history of is refused before anything is closed for it (M2, P5)."""

from __future__ import annotations

import time
from functools import partial

import pytest

from halog.errors import RefusedError
from halog.metadata import restore_requests as restores
from halog.metadata.restore_requests import DONE, RestoreRequest
from halog.ports import TopicPartition
from halog.runtime.merge import closed_branch
from halog.runtime.merge.restore_command import RestoreCommand
from halog.runtime.support.adapters import SiteAccess
from halog.runtime.topics.topic_names import state_topic
from halog.testing.cluster import Cluster, wait_until
from restore.branch import Side
from tests.unit.sites.test_restoring import coordinator, note, noted
from tests.unit.sites.test_restoring_hindered import TAKES_S, reuniting
from tests.unit.sites.test_switching import NAMES, owners, switching
from tests.unit.sites.test_three import IMPATIENT, dr, east, west
from tests.unit.sites.two import fly, level

pytestmark = pytest.mark.feature("M2", "P5")
__all__ = ["dr", "east", "west"]


def alone(*clusters: Cluster) -> None:
    """They serve, whoever else does."""
    for cluster in clusters:
        switching(cluster, 1).promote(NAMES, may_fork=True)
        cluster.settle()


def kill_all(cluster: Cluster) -> None:
    for node in cluster.names:
        cluster.kill(node)


def merged_and_gone_on(one: Cluster, source: Cluster) -> None:
    """Its branch is merged at the source; it goes on from where that ended, and follows nobody."""
    switching(one).demote(NAMES, source.site)
    remote = source.node(source.names[0]).runtime.adapters.reach(one.site)

    def are_closed() -> bool:
        return all(
            isinstance(closed_branch.closed_side(remote, source.site, name, TopicPartition(t.topic, t.index)), Side)
            for name, t in one.tables().items()
        )

    wait_until(are_closed, "they are closed")
    kill_all(one)
    while not are_closed():  # a node that saw the demotion late had begun an epoch meanwhile
        one.start()
        wait_until(are_closed, "they are closed")
        kill_all(one)
    remote.close()
    for name in NAMES:
        restores.ask(
            coordinator(source), name, RestoreRequest(site=one.site, by="test", at_ms=time.time_ns() // 1_000_000)
        )

    def is_done() -> bool:
        found = [restores.restore_of(coordinator(source), name) for name in NAMES]
        return all(r is not None and r.site == one.site and r.phase == DONE for r in found)

    wait_until(is_done, "it is merged", TAKES_S)
    one.cut_off(source.site)
    one.start()
    alone(one)


def named(initiating: Cluster, source: str, others: list[str]) -> dict[str, str]:
    """`halog restore --source`."""
    adapters = initiating.node(initiating.names[0]).runtime.adapters
    tables = list(initiating.tables().values())
    own, topics = (
        SiteAccess(initiating.site, adapters.log, adapters.coordinator),
        partial(state_topic, initiating.config),
    )
    with RestoreCommand(own, topics, adapters.reach, others, TAKES_S) as asked:
        sources = asked.sources(tables, dict.fromkeys(NAMES, source))
        ended = asked.restore(tables, sources, told=lambda name, now: None)
    return {name: r.phase for name, r in ended.items()}


def test_histories_that_parted_behind_several_records_are_refused_and_both_serve_on(
    west: Cluster, east: Cluster, dr: Cluster
) -> None:
    """West's branch was merged into dr's, and so was east's; both went on, and became one without dr."""
    fly(west, *range(6))
    level(west, east), level(west, dr)
    west.cut_off(), east.cut_off()
    alone(east, dr)
    for cluster in (west, east, dr):
        note(cluster, 1, cluster.site), note(cluster, 3, cluster.site), note(cluster, 4, cluster.site)
    west.mend(), east.mend()
    for cluster in (west, east):
        merged_and_gone_on(cluster, dr)
        for number in range(6):
            note(cluster, number, f"{cluster.site} later")
    assert set(reuniting(east, west).values()) == {DONE}
    level(east, west)
    west.mend()
    before = noted(dr), noted(west)
    with pytest.raises(RefusedError, match=r"parted behind several records \(lsn .*Nothing was changed"):
        reuniting(dr, west)
    assert owners(dr) == owners(west) == {""}
    note(dr, 1, "serves on"), note(west, 2, "serves on, too")
    assert (noted(dr), noted(west)) == (before[0] | {1: "serves on"}, before[1] | {2: "serves on, too"})


@pytest.mark.parametrize("paces", [IMPATIENT])
def test_a_branch_that_another_site_serves_is_not_merged_by_who_mirrors_it(
    west: Cluster, east: Cluster, dr: Cluster
) -> None:
    """East's nodes are not closed by what dr does; once east cannot be asked, what dr has of it can be merged."""
    fly(west, *range(6))
    level(west, east), level(west, dr)
    west.cut_off()
    alone(east)
    wait_until(lambda: owners(dr) == {"east"}, "dr mirrors east")
    for number in range(6):
        note(east, number, "east")
    fly(west, 10)
    level(east, dr)
    west.mend()
    with pytest.raises(RefusedError, match=r"site dr mirrors site east, which serves .*Nothing was changed"):
        named(dr, "west", ["west", "east"])
    assert owners(dr) == {"east"}
    note(east, 1, "east later")
    level(east, dr)
    east.cut_off()
    assert set(named(dr, "west", ["west", "east"]).values()) == {DONE}
    level(west, dr)
    assert noted(west) == noted(dr) == {10: "", 1: "east later", **dict.fromkeys((0, 2, 3, 4, 5), "east")}
