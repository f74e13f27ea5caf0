"""Circles among imports are found, and only those; a contract that names a module that is not there is refused."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from tools.imports import all_imports, circle

pytestmark = pytest.mark.feature("O1")


def test_a_circle_is_found_however_long_and_nothing_else() -> None:
    assert circle({"a": ["b", "c"], "b": ["c"], "c": []}) == []
    assert circle({"a": ["b"], "b": ["a"], "c": ["a"]}) in (["a", "b", "a"], ["b", "a", "b"])
    ring = {str(i): [str((i + 1) % 1_500)] for i in range(1_500)}
    found = circle({**ring, "outside": ["0"]})
    assert len(found) == 1_501
    assert all(following in ring[module] for module, following in itertools.pairwise(found))


def test_the_repository_is_looked_at_whole() -> None:
    modules = all_imports()
    assert {"halog.cli.main", "tests.unit.tools.test_imports", "spark_jobs.site", "benchmarks.run"} <= modules.keys()
    assert "halog.core.partition" in modules["halog.runtime.replica.driver"]
    assert circle(modules) == []


def test_a_contract_that_names_a_missing_module_is_refused(tmp_path: Path) -> None:
    """A wall that is forgotten with its module would stand in the file for ever, and hold nothing."""
    (tmp_path / "pyproject.toml").write_text(
        '[tool.importlinter]\nroot_packages = ["mappers"]\n[[tool.importlinter.contracts]]\nname = "walls"\n'
        'type = "layers"\nlayers = ["mappers.nowhere", "mappers.ring"]\n'
    )
    linter = Path(sys.executable).parent / "lint-imports"
    root = Path(__file__).resolve().parents[3]
    told = subprocess.run(
        [str(linter), "--no-cache"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode != 0
    assert "mappers.nowhere" in told.stdout + told.stderr
