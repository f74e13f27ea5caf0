"""Two sites that have parted are made one again, and a node that takes part is killed, at each step of it: it ends
right by itself, or once it is asked for again."""

from __future__ import annotations

import pytest

from tests.faults.rounds import STEPS, Rounds
from tests.integration.sites.two import EAST, WEST, TwoSites

pytestmark = [pytest.mark.timeout(560), pytest.mark.feature("M1", "M2", "X3")]


@pytest.mark.promise(5)
@pytest.mark.parametrize("site", [EAST, WEST])
def test_a_node_that_takes_part_is_killed(two_sites: TwoSites, site: str) -> None:
    """At east it merges: nothing was changed before its epoch is open; the next active node begins again, or finds it
    done. At west it closes its branch, or gives its log away, or mirrors already: the other one goes on with that."""
    rounds = Rounds(two_sites)
    cluster = two_sites.clusters[site]
    for step in STEPS:
        rounds.part()
        active = cluster.table("p-0").active
        assert active is not None
        with rounds.restore(step) as begun:
            cluster.kill(active.node)
            rounds.ends(begun)
        rounds.check()
    rounds.check_once()
