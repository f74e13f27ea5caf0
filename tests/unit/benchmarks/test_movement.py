"""What joins, leaves and rings move is counted as a cluster would copy it, and never less than the least is found."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from benchmarks.movement import RINGS, SIZES, Moved, Size, joined, keys, left, remapped, unevenness, worst

pytestmark = pytest.mark.feature("P2", "P6", "P13")

SMALL = st.builds(Size, st.integers(2, 7), st.integers(1, 20), st.integers(1, 3))


@given(SMALL)
def test_a_new_node_takes_its_share_and_no_more_moves(size: Size) -> None:
    if size.nodes < size.copies:
        return  # the new node brings copies that were missing
    found = joined(size)
    assert found.minimum == size.partitions * size.copies // (size.nodes + 1)
    assert found.minimum <= found.moved <= max(found.minimum * 1.05, found.minimum)


@given(SMALL)
def test_what_a_node_had_is_copied_where_there_are_nodes_enough(size: Size) -> None:
    found = left(size)
    assert found.moved == found.minimum
    assert (found.moved == 0) == (size.nodes <= size.copies or size.nodes > size.partitions * size.copies)


def test_the_worst_case_is_the_one_with_the_largest_ratio() -> None:
    found = {SIZES[0]: Moved(10, 10), SIZES[1]: Moved(6, 5), SIZES[2]: Moved(100, 99)}
    assert worst(found, found.__getitem__) == Moved(6, 5)
    assert Moved(1, 0).ratio == float("inf")
    assert Moved(0, 0).ratio == 1.0


def test_a_partition_more_takes_its_share_of_the_keys() -> None:
    found = remapped(keys(20_000), 12, 13)
    assert found.minimum == round(20_000 / 13)
    assert 0.9 < found.ratio < 1.1
    assert remapped(keys(100), 12, 12) == Moved(0, 0, "12 to 12 partitions")


@pytest.mark.parametrize("ring", RINGS)
def test_no_node_has_much_more_than_the_mean(ring: int) -> None:
    assert 1.0 <= unevenness(keys(5_000), ring) < 1.1
