"""Three sites have all gone on: they become one, two at a time, in whatever order they are asked to (M4)."""

from __future__ import annotations

import threading
import time

import pytest

from halog.errors import RefusedError, UnreachableError
from halog.metadata.restore_requests import DONE, NOTHING
from halog.runtime.merge.restore_command import RestoreCommand
from halog.runtime.support.adapters import SiteAccess
from halog.testing.cluster import Cluster, wait_until
from tests.unit.sites.test_restoring import note, noted
from tests.unit.sites.test_restoring_hindered import reuniting
from tests.unit.sites.test_switching import NAMES, owners, switching
from tests.unit.sites.test_three import CURIOUS, dr, east, west
from tests.unit.sites.two import fly, level

pytestmark = [pytest.mark.feature("M4", "M2"), pytest.mark.timeout(120)]
__all__ = ["dr", "east", "west"]

SITES = ("west", "east", "dr")
ORDERS = [
    (one, source, last, into)
    for source in SITES
    for one in SITES
    if one != source
    for last in SITES
    if last not in (one, source)
    for last, into in ((last, source), (source, last))
]
"""(who is merged into whom, and then who into whom): every order there is of three."""


@pytest.mark.parametrize(("one", "source", "last", "into"), ORDERS)
@pytest.mark.parametrize("paces", [CURIOUS])
def test_three_that_have_all_gone_on_become_one_two_at_a_time_in_any_order(
    west: Cluster,
    east: Cluster,
    dr: Cluster,
    one: str,
    source: str,
    last: str,
    into: str,
) -> None:
    """What only one has is there at all three in the end; of what all have changed, the last source's stands."""
    sites = {cluster.site: cluster for cluster in (west, east, dr)}
    fly(west, *range(6))
    level(west, east), level(west, dr)
    east.cut_off(), dr.cut_off()
    for cluster in (east, dr):
        switching(cluster).promote(NAMES, may_fork=True)
        cluster.settle()
    for n, (name, cluster) in enumerate(sites.items(), 1):
        note(cluster, 0, name)
        note(cluster, n, name)
        fly(cluster, *range(10 * n, 10 * n + 4))
    east.mend(), dr.mend()
    for initiating, merging in ((one, source), (last, into)):
        told = reuniting(sites[initiating], sites[merging])
        assert set(told.values()) <= {DONE, NOTHING}, told
    for name, cluster in sites.items():
        if name != into:
            wait_until(lambda c=cluster: owners(c) == {into}, f"{name} mirrors {into}", 30)  # type: ignore[misc]
            level(cluster, sites[into])
    expected = {0: into, 1: "west", 2: "east", 3: "dr", 4: "", 5: ""}
    expected |= {10 * n + i: "" for n in (1, 2, 3) for i in range(4)}
    assert noted(west) == noted(east) == noted(dr) == expected
    fly(sites[into], 99)
    for cluster in sites.values():
        level(cluster, sites[into])


@pytest.mark.parametrize("last", ["east", "dr"])
def test_the_source_is_the_last_to_answer_and_nobody_waits_for_who_does_not(
    west: Cluster, east: Cluster, dr: Cluster, last: str
) -> None:
    """All are asked at once, wherever they stand in the list."""
    fly(west, *range(6))
    level(west, east), level(west, dr)
    east.cut_off(), dr.cut_off()
    for cluster in (east, dr):
        switching(cluster).promote(NAMES, may_fork=True)
        cluster.settle()
    east.mend(), dr.mend()
    adapters, answered = west.node(west.names[0]).runtime.adapters, threading.Event()

    def reach(site: str) -> SiteAccess:
        if site == "lost":
            assert answered.wait(60)
            raise UnreachableError("site lost does not answer")
        if site == last:
            assert answered.wait(60), "the others are not asked before it has answered"
            time.sleep(0.2)  # its answer is on its way
        remote = adapters.reach(site)
        if site != last:
            threading.Timer(0.1, answered.set).start()
        return remote

    own = SiteAccess("west", adapters.log, adapters.coordinator)
    with RestoreCommand(own, lambda policy: "state", reach, ["lost", "east", "dr"], 10) as asked:
        tables = list(west.tables().values())
        assert asked.sources(tables, {}) == dict.fromkeys(NAMES, last)
        assert asked.sources(tables, {NAMES[0]: "east"})[NAMES[0]] == "east"
    west.cut_off()
    with (
        RestoreCommand(own, lambda policy: "state", adapters.reach, ["east", "dr"], 10) as asked,
        pytest.raises(RefusedError, match="no other site serves partition test-0") as error,
    ):
        asked.sources(tables, {})
    assert "site east: " in str(error.value)
    assert "site dr: " in str(error.value)
    west.mend()
