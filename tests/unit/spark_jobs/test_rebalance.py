"""The driver program's command line, before it asks for anything (S1)."""

from __future__ import annotations

import pytest

from spark_jobs import command, rebalance

pytestmark = pytest.mark.feature("S1")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give --policy or --zone"),
        (["--policy", "p", "--zone", "z"], "give --policy or --zone"),
        (["--policy", "p", "--move", "--to-ring-size", "9"], "--to-… only counts"),
        (["--policy", "p", "--checkpoint", "c"], "--checkpoint is for --move"),
    ],
)
def test_a_wrong_call_is_refused_before_anything_is_asked(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rebalance.main(["--config", "/nonexistent.toml", *words]) == 2
    assert said in capsys.readouterr().err


def test_under_spark_submit_it_runs_where_that_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert command.default_master() == "local[*]"
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "4711")
    assert command.default_master() == ""
