"""Two sites that part and are made one again and again, while everything lands late (F5): see `merging_world`."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from tests.unit.core.sites.merge_model import World
from tests.unit.core.sites.merge_steps import STEP, Step, failure_of, play

pytestmark = pytest.mark.feature("M2", "M3", "X3")


@settings(max_examples=150)
@given(st.lists(STEP, min_size=10, max_size=60), st.booleans(), st.integers(0, 4))
def test_whatever_lands_late_both_sites_end_with_one_history_and_nothing_is_lost(
    steps: list[Step], keeps_before: bool, verdicts: int
) -> None:
    play(World(keeps_before=keeps_before, verdicts=verdicts), steps)


@pytest.mark.parametrize("part", range(4))
def test_worlds_by_chance(part: int) -> None:
    """With other proportions than those that hypothesis picks: most of them merge, a third of those more than once."""
    for seed in range(part * 60, part * 60 + 60):
        assert not failure_of(seed), seed
