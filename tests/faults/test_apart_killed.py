"""Two sites that have parted are made one again, and a node that takes part is killed, at each step of it: it ends
right by itself, or once it is asked for again."""

from __future__ import annotations

import pytest

from tests.faults.rounds import STEPS, Rounds
from tests.integration.cluster.harness import Cluster
from tests.integration.sites.two import EAST, WEST, TwoSites

pytestmark = [pytest.mark.timeout(560), pytest.mark.feature("M1", "M2", "X3")]


TRIES = 4
"""The last steps take milliseconds."""


@pytest.mark.promise(5)
@pytest.mark.parametrize("site", [EAST, WEST])
def test_a_node_that_takes_part_is_killed(two_sites: TwoSites, site: str) -> None:
    """At east it merges: nothing was changed before its epoch is open; the next active node begins again, or finds it
    done. At west it closes its branch, or gives its log away, or mirrors already: the other one goes on with that."""
    rounds = Rounds(two_sites)
    cluster = two_sites.clusters[site]
    for step in STEPS:
        assert any(killed_in_time(rounds, cluster, step) for _ in range(TRIES)), f"{step}: the merge was always over"
    rounds.check_once()


def killed_in_time(rounds: Rounds, cluster: Cluster, step: str) -> bool:
    """One round. Was the node killed before the merge was over?"""
    rounds.part()
    active = cluster.table("p-0").active
    assert active is not None
    with rounds.restore(step) as begun:
        cluster.kill(active.node)
        over = rounds.is_over("p-0")
        rounds.ends(begun)
    rounds.check()
    return not over
