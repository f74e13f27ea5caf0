"""What a failed test's report says of its cluster: whatever goes wrong while it is asked, the run goes on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.integration.cluster import reports


class Silent:
    """A cluster that does not answer until the test's time is over, which pytest-timeout says by an alarm."""

    name, site = "c", SimpleNamespace()

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "A.err").write_text("its last words\n")

    def describe(self) -> str:
        pytest.fail("Timeout (>180.0s) from pytest-timeout.")

    def running(self) -> list[str]:
        return []


def test_a_cluster_that_does_not_answer_in_time_does_not_end_the_run(tmp_path: Path) -> None:
    report: Any = SimpleNamespace(sections=[])
    silent: Any = Silent(tmp_path)
    reports.add(report, [silent])
    said = dict(report.sections)
    assert "Timeout" in said["c as it is"]
    assert said["c A"] == "its last words"
