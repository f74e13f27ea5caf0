"""A step of `make test` whose only failure passes alone goes on, and says so; nothing else is forgiven."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
STEADY = "def test_steady(): pass\n"
ONCE = """
import pathlib
def test_{name}():
    seen = pathlib.Path("{name}.seen")
    before = seen.exists()
    seen.touch()
    assert before
"""
TWICE = ONCE.format(name="a") + ONCE.format(name="b")
BROKEN = "def test_broken(): assert False\n"


def step(where: Path, text: str, *, name: str = "nodes") -> subprocess.CompletedProcess[str]:
    (where / "test_it.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "tools.again", name, "test_it.py", "-p", "no:halog", "-q"],
        cwd=where, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_what_passes_is_run_once(tmp_path: Path) -> None:
    done = step(tmp_path, STEADY)
    assert done.returncode == 0
    assert "again" not in done.stdout
    assert not (tmp_path / "build/unsteady.json").exists()


def test_a_single_failure_that_passes_alone_is_named(tmp_path: Path) -> None:
    """Also behind an earlier run's failures, which are no matter of this one."""
    assert step(tmp_path, BROKEN).returncode == 1
    done = step(tmp_path, STEADY + ONCE.format(name="a"))
    assert done.returncode == 0, done.stdout
    assert "assert before" in done.stdout, "its failure is told"
    assert "UNSTEADY" in done.stdout
    named = [{"step": "nodes", "test": "test_it.py::test_a"}]
    assert json.loads((tmp_path / "build/unsteady.json").read_text()) == named
    done = step(tmp_path, ONCE.format(name="b"), name="integration")
    assert done.returncode == 0
    named.append({"step": "integration", "test": "test_it.py::test_b"})
    assert json.loads((tmp_path / "build/unsteady.json").read_text()) == named


@pytest.mark.parametrize(
    "text",
    [STEADY + BROKEN, TWICE, ONCE.format(name="a") + BROKEN, "import nothing_there"],
    ids=["fails again", "two of them", "one that passes, one that does not", "no test ran"],
)
def test_all_else_fails(tmp_path: Path, text: str) -> None:
    done = step(tmp_path, text)
    assert done.returncode != 0
    assert "UNSTEADY" not in done.stdout
    assert not (tmp_path / "build/unsteady.json").exists()
