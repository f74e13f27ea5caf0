"""What `make bench` measures when nobody says what."""

from __future__ import annotations

import pytest

from benchmarks.run import ASKED_FOR, OWN, SHARED, chosen

pytestmark = pytest.mark.feature("P12", "P13", "S1")


def test_everything_is_measured_that_need_not_be_asked_for_by_name() -> None:
    """Placement, the pause of a hand-over and what Spark finds among them."""
    assert {"placement", "transfer", "spark"} <= set(chosen([]))
    assert set(chosen([])) == {*SHARED, *OWN} - ASKED_FOR


def test_what_is_named_is_measured_in_the_order_of_the_suites() -> None:
    assert chosen(["spark", "commit", "merge"]) == ["commit", "spark", "merge"]
