"""Mutants are played every trace, with everything it is told with; else one survives unseen. And what is not broken
passes: else every one of them is noticed.
"""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.mutants.traces import FILES, failure, plays
from tests.mutants.votes import told

pytestmark = pytest.mark.feature("M2", "X3")


def test_every_trace_is_played() -> None:
    """Trace 23 with each number of parts that landed, early and late."""
    told = [name for name, _ in plays(*FILES)]
    assert sum("test_the_active_node_dies_in_the_middle_of_writing_a_merge" in name for name in told) == 6
    written = {name for file in FILES for name in vars(file) if name.startswith("test_")}
    assert {name.partition("{")[0] for name in told} == written
    assert not failure(*FILES)


def test_a_trace_that_fails_with_one_pair_only_is_noticed() -> None:
    """Also one in which nothing is raised that should have been."""

    @pytest.mark.parametrize(("one", "other"), [(1, 1), (1, 2)])
    @pytest.mark.parametrize("third", [0, 3])
    def test_it(one: int, other: int, third: int) -> None:
        if (one, other, third) == (1, 2, 3):
            with pytest.raises(ValueError, match="never"):
                pass

    file = ModuleType("file")
    file.test_it = test_it  # type: ignore[attr-defined]
    assert len([*plays(file)]) == 4
    assert "DID NOT RAISE" in failure(file)


@pytest.mark.feature("D4")
def test_the_traces_of_transactions_over_several_partitions_pass() -> None:
    assert told(0) == ""
