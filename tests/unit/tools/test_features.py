"""The table of features: ids checked, outcomes added up over runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import features
from tools.features import Ended


@pytest.mark.parametrize(
    ("ids", "wrong"),
    [(("P1", "O3"), None), (("P99",), "unknown"), ((), "0 feature"), (("P1", "P2", "P3", "P4"), "4 feature")],
)
def test_a_test_carries_one_to_three_known_ids(ids: tuple[str, ...], wrong: str | None) -> None:
    problem = features.problem_with(ids)
    assert problem is None if wrong is None else problem and wrong in problem


def test_runs_add_up_and_the_last_outcome_counts(tmp_path: Path) -> None:
    features.save({"a": Ended(("P1",), "failed"), "b": Ended(("P1", "O3"), "passed")}, tmp_path)
    before = features.load(tmp_path / "outcomes.json")
    features.save({**before, "a": Ended(("P1",), "passed"), "c": Ended(("O3",), "skipped")}, tmp_path)
    table = json.loads((tmp_path / "features.json").read_text())
    assert table == {
        "P1": {"title": features.TITLES["P1"], "tests": 2, "passed": 2, "failed": 0, "skipped": 0},
        "O3": {"title": features.TITLES["O3"], "tests": 2, "passed": 1, "failed": 0, "skipped": 1},
    }
