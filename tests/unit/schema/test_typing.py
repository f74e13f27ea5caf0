"""mypy --strict sees managed classes as what they are: it accepts tests/typing/good.py and finds all of wrong.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "tests" / "typing"


def mypy(path: Path, tmp_path: Path) -> str:
    options = ["--strict", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(tmp_path)]
    out, err, _status = api.run([*options, "--no-error-summary", "--hide-error-context", str(path)])
    assert not err, err
    return out


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy")


def test_good_lines_pass(cache: Path) -> None:
    """Construction, fields, methods, references, inheritance: typed as written."""
    assert mypy(EXAMPLES / "good.py", cache) == ""


def test_wrong_lines_are_reported(cache: Path) -> None:
    """Each marked line is reported, and nothing else."""
    path = EXAMPLES / "wrong.py"
    marked = {n for n, line in enumerate(path.read_text().splitlines(), 1) if line.endswith("# wrong")}
    reported = {int(n) for n in re.findall(r"wrong\.py:(\d+): error:", mypy(path, cache))}
    assert len(marked) >= 10
    assert reported == marked
