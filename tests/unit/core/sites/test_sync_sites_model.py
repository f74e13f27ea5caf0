"""Whatever happens to lines, answers and epochs: what was told is in the log of a site that is waited for."""

from __future__ import annotations

import pytest

from tests.unit.core.sites.sync_sites_model import World, failure_of

pytestmark = pytest.mark.feature("M5", "R1")


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_nothing_is_acknowledged_that_a_site_does_not_have_while_it_is_waited_for(first: int) -> None:
    assert [failure for seed in range(first, first + 50) if (failure := failure_of(seed))] == []


def test_the_plays_come_to_what_they_are_about() -> None:
    """Sites are dropped, let go of and waited for again, epochs end, logs change hands, and much is committed."""
    acknowledged = epochs = dropped = let_go = given_back = 0
    for seed in range(100):
        world = World(seed)
        world.play()
        world.heal()
        acknowledged += world.acknowledged
        epochs += len(world.p.state.chain.state.lineage)
        dropped += world.dropped
        let_go += world.let_go
        given_back += world.there.state.fenced > 0
    assert acknowledged > 1_000
    assert epochs > 90
    assert dropped > 10
    assert let_go > 5
    assert given_back > 40
