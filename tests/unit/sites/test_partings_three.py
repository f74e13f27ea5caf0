"""Three sites have all gone on: what is told of one parting is not told of another, and is not told again (M1)."""

from __future__ import annotations

import time

import pytest

from halog.metadata import restore_requests as restores
from halog.ports import TopicPartition
from halog.runtime.topics.topic_names import events_topic
from halog.testing.cluster import Cluster, wait_until
from tests.unit.sites.test_partings import paces, told
from tests.unit.sites.test_restoring_hindered import reuniting
from tests.unit.sites.test_switching import NAMES, switching
from tests.unit.sites.test_three import dr, east, west
from tests.unit.sites.two import fly, level

pytestmark = pytest.mark.feature("M1", "M4", "P5")
__all__ = ["dr", "east", "paces", "west"]


def partings(cluster: Cluster) -> int:
    """Events that say so."""
    log = cluster.node(cluster.names[0]).runtime.adapters.log
    tp = TopicPartition(events_topic(cluster.config.cluster.name), 0)
    return sum(b"HALOG-1041" in e.value for e in log.read(tp, 0, log.bounds(tp)[1]))


def test_that_three_sites_have_gone_on_is_told_once_with_the_numbers(west: Cluster, east: Cluster, dr: Cluster) -> None:
    """Of one other site at a time; of the next one once that parting is over."""
    fly(west, *range(6))
    level(west, east)
    level(west, dr)
    east.cut_off()
    dr.cut_off()
    for cluster in (east, dr):
        switching(cluster).promote(NAMES, may_fork=True)
        cluster.settle()
    fly(west, 10)
    fly(east, 11, 12)
    fly(dr, 13, 14, 15)
    east.mend()
    dr.mend()
    wait_until(lambda: counted(west, "east") == (1, 2), "it is not known what west and east have done")
    time.sleep(0.5)
    assert counted(west, "east") == (1, 2)
    assert partings(west) == len(NAMES)
    assert set(reuniting(east, west).values()) <= {restores.DONE, restores.NOTHING}
    wait_until(lambda: counted(west, "dr") == (3, 3), "it is not known what west and dr have done")


def counted(cluster: Cluster, other: str) -> tuple[int, int] | None:
    """What both have touched, all partitions together; None: it is not known of all, or told of others."""
    found = list(told(cluster).values())
    if {p.site for p in found} != {other} or len(found) < len(NAMES) or any(p.fork is None for p in found):
        return None
    return sum(p.here.objects for p in found if p.here), sum(p.there.objects for p in found if p.there)
