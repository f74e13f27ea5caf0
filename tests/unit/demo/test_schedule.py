"""The faults come in order, in the middle, at rows the seed decides."""

from __future__ import annotations

from hypothesis import given, strategies as st

from halog.demo.schedule import plan, sabotaged_row

ROWS = st.integers(100, 336_776)
SEEDS = st.integers(-(2**40), 2**40)


@given(ROWS, SEEDS)
def test_every_fault_comes_before_the_gate_that_waits_for_it(rows: int, seed: int) -> None:
    s = plan(rows, seed)
    assert 0 < s.kill_at < s.restart_at < s.gate_restart < s.freeze_at < s.gate_freeze < rows
    assert 0 < s.join_at < s.gate_join < s.ring_at < s.gate_ring < s.leave_at < s.gate_leave < s.kill_at


@given(ROWS, SEEDS)
def test_the_sabotaged_row_exists(rows: int, seed: int) -> None:
    assert 0 <= sabotaged_row(rows, seed) < rows


def test_a_seed_is_a_schedule() -> None:
    assert plan(60_000, 1) == plan(60_000, 1) != plan(60_000, 2)
