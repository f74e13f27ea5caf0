"""The harness's arithmetic. What it measures is never judged by a timed test."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, strategies as st

from benchmarks.figures import Row, Target, median, missed, paired_ratio, percentile, row
from benchmarks.loop import summary
from benchmarks.run import arguments, document
from benchmarks.suite_failover import first_after, longest_gap
from benchmarks.table import number, verdict


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_as_many_values_lie_below_the_median_as_above(values: list[float]) -> None:
    m = median(values)
    assert sum(v < m for v in values) <= len(values) / 2
    assert sum(v > m for v in values) <= len(values) / 2


@given(st.lists(st.integers(), min_size=1), st.floats(0, 1))
def test_a_percentile_is_one_of_the_values(values: list[int], part: float) -> None:
    assert percentile(sorted(values), part) in values


@pytest.mark.parametrize("of_nothing", [lambda: median([]), lambda: percentile([], 0.5)])
def test_nothing_has_no_median(of_nothing: object) -> None:
    with pytest.raises(ValueError, match="nothing"):
        of_nothing()  # type: ignore[operator]


def test_the_ratio_is_that_of_neighbours_not_of_medians() -> None:
    """A machine that is slow for a while slows both; the pair still tells the truth."""
    assert paired_ratio([2, 20, 2], [1, 10, 1]) == 2
    assert row("x", "ms", [2, 20, 30], [1, 10, 15]).ratio == 2
    assert row("x", "ms", [2, 20, 30], [10]).ratio == 2
    assert row("x", "ms", [1, 2, 3]).ratio is None


@pytest.mark.parametrize(
    ("target", "value", "ratio", "holds"),
    [
        (Target(), 1e9, None, True),
        (Target(1.5, "ratio"), 9, 1.5, True),
        (Target(1.5, "ratio"), 9, 1.51, False),
        (Target(1.5, "ratio"), 9, None, False),
        (Target(0.6, "ratio", "higher"), 9, 0.59, False),
        (Target(300, "value"), 300, None, True),
        (Target(300, "value"), math.inf, None, False),
        (Target(200_000, "value", "higher"), 199_999, 5, False),
    ],
)
def test_a_target_bounds_a_value_or_a_ratio(target: Target, value: float, ratio: float | None, holds: bool) -> None:
    assert target.holds(value, ratio) is holds


def test_only_a_missed_hard_row_fails_the_command() -> None:
    hard = row("hard", "ms", [301], target=Target(300, "value", hard=True))
    soft = row("soft", "ms", [301], target=Target(300, "value"))
    fine = row("fine", "ms", [299], target=Target(300, "value", hard=True))
    assert [verdict(r) for r in (hard, soft, fine)] == ["MISSED", "over", "ok"]
    assert missed([hard, soft, fine]) == [hard]


def test_the_document_has_every_column() -> None:
    from benchmarks.calm import Calm
    from benchmarks.effort import QUICK

    rows = [row("x", "ms", [1], [2], clients=3, client_in="here")]
    found = json.loads(json.dumps(document(rows, 1.0, QUICK, Calm(1))))
    columns = {"name", "value", "unit", "baseline", "ratio", "target", "hard", "ok", "runs", "clients", "client_in"}
    assert found["ok"] is True
    assert found["stolen"] == {"worst": 0.0, "again": 0}
    assert set(found["rows"][0]) == columns == set(Row.__dataclass_fields__)


def test_failover_ends_with_the_first_write_begun_after_the_kill() -> None:
    """A write that was under way at the kill and came through says nothing about who serves now."""
    times = [(0.9, 0.95), (0.99, 1.2), (1.21, 1.25), (1.3, 1.31)]
    assert first_after(times, 1.0) == pytest.approx(250)
    assert first_after(times[:2], 1.0) == math.inf


def test_a_pause_is_the_longest_gap_that_ends_after_the_kill() -> None:
    times = [(0.0, 0.0), (0.5, 0.5), (0.9, 0.9), (0.95, 1.1), (1.2, 1.25)]
    assert longest_gap(times, 1.0) == pytest.approx(200)
    assert longest_gap(times[:1], 1.0) == math.inf


def test_a_summary_is_in_microseconds() -> None:
    assert summary([1000, 2000, 3000], 1.5) == {"n": 3, "per_s": 2.0, "p50_us": 2.0, "p99_us": 3.0, "max_us": 3.0}


@pytest.mark.parametrize(("value", "text"), [(None, "-"), (1234.5, "1,234"), (0.12345, "0.123"), (12.345, "12.3")])
def test_numbers_have_three_digits_that_matter(value: float | None, text: str) -> None:
    assert number(value) == text


def test_an_unknown_suite_is_a_wrong_call(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        arguments(["nonsense"])
    assert stopped.value.code == 2
    assert "nonsense" in capsys.readouterr().err
