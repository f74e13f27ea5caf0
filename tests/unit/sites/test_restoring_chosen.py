"""At which site a branch is merged, of several that serve: the same one, however often it is asked for (M2, M4)."""

from __future__ import annotations

import time
from collections.abc import Collection
from functools import partial

import pytest

from halog.errors import RefusedError
from halog.metadata.restore_requests import DONE, RestoreRequest, restore_of
from halog.runtime.merge.restore_command import RestoreCommand
from halog.runtime.support.adapters import SiteAccess
from halog.runtime.topics.topic_names import state_topic
from halog.testing.cluster import Cluster, wait_until
from tests.unit.sites.test_restoring import coordinator, mend, noted, split
from tests.unit.sites.test_restoring_hindered import reuniting
from tests.unit.sites.test_switching import NAMES, owners, switching
from tests.unit.sites.test_three import CURIOUS, dr, east, west
from tests.unit.sites.two import fly, level, stands

pytestmark = [pytest.mark.feature("M2", "M4"), pytest.mark.timeout(120)]
__all__ = ["dr", "east", "west"]


def asked(
    at: Cluster, others: list[str], *, last: str = "", back: Collection[str] = (), timeout_s: float = 20
) -> tuple[dict[str, str], dict[str, RestoreRequest]]:
    """Which sources are chosen, and what becomes of it. `last`: the site that answers last."""
    adapters = at.node(at.names[0]).runtime.adapters
    own = SiteAccess(at.site, adapters.log, adapters.coordinator)

    def reach(site: str) -> SiteAccess:
        if site == last:
            time.sleep(0.5)
        return adapters.reach(site)

    with RestoreCommand(own, partial(state_topic, at.config), reach, others, timeout_s) as command:
        tables = list(at.tables().values())
        sources = command.sources(tables, {}, back)
        return sources, command.restore(tables, sources, told=lambda name, now: None)


def gone_on(cluster: Cluster) -> None:
    """By itself, cut off."""
    cluster.cut_off()
    switching(cluster).promote(NAMES, may_fork=True)
    cluster.settle()


def was_given_back(west: Cluster, east: Cluster) -> None:
    """Long ago west was merged at east, and took over again."""
    reuniting(west, east)
    switching(west).promote(NAMES)
    west.settle()
    wait_until(lambda: owners(east) == {"west"}, "east mirrors west", 30)
    level(west, east)


@pytest.mark.parametrize("paces", [CURIOUS])
def test_a_command_that_died_is_gone_on_with_at_the_same_site(west: Cluster, east: Cluster, dr: Cluster) -> None:
    """Whoever answers last by then: a branch that is merged at two sites is one that these can never be merged with."""
    fly(west, *range(6))
    level(west, east), level(west, dr)
    for n, cluster in enumerate((east, dr), 1):
        gone_on(cluster)
        fly(cluster, 10 * n)
    fly(west, 30)
    east.mend(), dr.mend()
    assert set(asked(west, ["east", "dr"], last="east", timeout_s=0.05)[0].values()) == {"east"}
    sources, ended = asked(west, ["east", "dr"], last="dr")
    assert set(sources.values()) == {"east"}
    assert {one.phase for one in ended.values()} == {DONE}
    assert [restore_of(coordinator(dr), name) for name in NAMES] == [None] * len(NAMES)
    sources, ended = asked(west, ["east", "dr"], last="dr")
    assert set(sources.values()) == {"east"}, "it follows east: there is nothing to do"
    assert {one.phase for one in ended.values()} == {DONE}


@pytest.mark.parametrize("paces", [CURIOUS])
def test_what_was_merged_and_given_back_long_ago_is_not_what_is_asked_for(
    west: Cluster, east: Cluster, dr: Cluster
) -> None:
    """A third site serves by now: it is merged with that one."""
    fly(west, *range(6))
    level(west, east), level(west, dr)
    gone_on(east)
    fly(east, 20), fly(west, 21)
    east.mend()
    was_given_back(west, east)
    wait_until(lambda: owners(dr) == {"west"}, "dr mirrors west", 30)
    level(west, dr)
    gone_on(dr)
    fly(dr, *range(30, 36)), fly(west, *range(40, 46))
    dr.mend()
    dr.cut_off()
    with pytest.raises(RefusedError, match=r"no other site serves partition test-0 \(site dr: "):
        asked(west, ["dr", "east"], back=NAMES)
    dr.mend()
    sources, ended = asked(west, ["dr", "east"], last="east", back=NAMES)
    assert set(sources.values()) == {"dr"}
    assert {one.phase for one in ended.values()} == {DONE}
    level(west, dr)
    assert set(noted(west)) == {*range(6), 20, 21, *range(30, 36), *range(40, 46)}


def test_a_site_that_has_gone_on_since_has_given_nothing_back(west: Cluster, east: Cluster) -> None:
    """It stopped, and what it did is in nothing."""
    fly(west, *range(6))
    split(west, east)
    fly(west, 10), fly(east, 20)
    mend(west, east)
    was_given_back(west, east)
    split(west, east)
    fly(east, *range(30, 36)), fly(west, 40)
    mend(west, east)
    switching(east).demote(NAMES, "west")

    def told() -> bool:
        found = [stands(east, name) for name in NAMES]
        return all(one is not None and one.parted for one in found)

    wait_until(told, "it does not say that they have parted", 30)
    with pytest.raises(RefusedError, match="no other site serves"):
        asked(west, ["east"], back=NAMES)
