"""Children of the demo are ended by it, and its directory is its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from halog.demo import processes
from halog.demo.staging import prepared
from halog.errors import SiteError


def test_stop_all_ends_a_child_that_is_stopped(tmp_path: Path) -> None:
    child = processes.Child("X", ["http.server", "0"], tmp_path, pipes=True)
    child.freeze()
    processes.stop_all([child], 5.0)
    assert not child.running


def test_a_foreign_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(SiteError, match=r"thesis\.tex"):
        prepared(tmp_path)


def test_a_directory_of_an_earlier_run_is_taken(tmp_path: Path) -> None:
    for name in ("site", "run-20260101-120000-ab12"):
        (tmp_path / name).mkdir()
    assert prepared(tmp_path) == tmp_path
