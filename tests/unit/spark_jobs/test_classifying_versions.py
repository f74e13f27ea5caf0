"""Executors make of what two versions of a type have written what `restore.merge` makes of it (S1)."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from restore.branches import BranchComparison, outcomes
from restore.divergence import Same
from restore.merge import EQUAL, differences, touched, two_way
from restore.plan import totals
from spark_jobs.branching import INITIATING, SOURCE
from spark_jobs.counted import totals_of
from tests.unit.restore.branches import World, worlds
from tests.unit.restore.versions import DEFINITIONS, VALUES, even, old
from tests.unit.spark_jobs.test_classifying import CUTS, as_row, blind, classified, groups, plainly, rows_of

pytestmark = pytest.mark.feature("S1", "M3", "U3")


@given(worlds(VALUES, old(1)), CUTS, CUTS, CUTS, st.booleans(), st.booleans(), st.booleans())
def test_it_finds_what_the_plain_comparison_finds(
    world: World, ours: list[int], theirs: list[int], cuts: list[int], sees: bool, half: bool, three: bool
) -> None:
    """Every key once, the same kind and states; also where some keys are of one version, and others are not."""
    source, initiating = world.source, world.initiating
    if not sees:
        source, initiating = blind(source), (initiating if half else blind(initiating))
    rows = rows_of(SOURCE, source, ours) + rows_of(INITIATING, initiating, theirs)
    expected = list((differences if three else two_way)(touched(source), touched(initiating), even))
    texts = [d.text for d in DEFINITIONS]
    found = classified(rows, cuts, definitions=texts, three_way=three)
    wanted = [{**as_row(d), **({"stands": "both"} if d.kind in EQUAL else {})} for d in expected]
    assert sorted(map(plainly, found), key=lambda row: row["key"]) == wanted
    assert totals_of(groups(found)) == totals(outcomes(BranchComparison(Same(), tuple(expected))))
