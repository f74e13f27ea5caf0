"""What `make faults` leaves: each fault with its promise, those that this machine cannot make too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.promises import PROMISES

pytestmark = pytest.mark.feature("R1")

ROOT = Path(__file__).parents[3]
FAULTS = """
import pytest

@pytest.fixture
def root():
    pytest.skip("only root may")

@pytest.fixture
def brittle():
    yield
    raise OSError("a cluster that cannot be closed")

@pytest.mark.promise(1)
def test_held(): pass

@pytest.mark.promise(2)
def test_broken(): assert False

@pytest.mark.promise(3)
def test_not_here(root): pass

@pytest.mark.promise(3)
def test_not_today(): pytest.skip("no compiler")

@pytest.mark.promise(3)
@pytest.mark.skipif(True, reason="needs strace")
def test_nowhere(): pass

@pytest.mark.promise(5)
@pytest.mark.xfail
def test_known(): assert False

@pytest.mark.promise(8)
def test_broken_at_its_end(brittle): pass
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, object]], str]:
    """The report, and what was printed."""
    there = tmp_path_factory.mktemp("suite")
    faults = there / "other" / "tests" / "faults"  # modules of its own name
    faults.mkdir(parents=True)
    (there / "pytest.ini").write_text("[pytest]\nmarkers = promise(number): as in the suite\n")
    (faults / "conftest.py").write_text("from tests.faults.conftest import pytest_addoption, pytest_configure\n")
    (faults / "test_few.py").write_text(FAULTS)
    argv = [sys.executable, "-m", "pytest", "--import-mode=importlib", "-p", "no:cacheprovider", str(faults)]
    argv += ["--rootdir", str(there), "-c", str(there / "pytest.ini")]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env["PYTHONPATH"] = str(ROOT)
    report = there / "build" / "faults.json"
    done = subprocess.run([*argv, f"--faults-report={report}"], cwd=ROOT, env=env, capture_output=True, text=True)
    return json.loads(report.read_text()), done.stdout


def test_each_is_listed_with_its_promise(run: tuple[list[dict[str, object]], str]) -> None:
    found = {str(fault["name"]): fault for fault in run[0]}
    assert {name.partition("::")[2]: fault["passed"] for name, fault in found.items()} == {
        "test_held": True,
        "test_broken": False,
        "test_not_here": None,
        "test_not_today": None,
        "test_nowhere": None,
        "test_known": False,
        "test_broken_at_its_end": False,
    }
    assert found["test_few.py::test_held"] == {
        "name": "test_few.py::test_held",
        "promise": f"1. {PROMISES[1]}",
        "passed": True,
    }


def test_one_that_this_machine_cannot_make_says_why(run: tuple[list[dict[str, object]], str]) -> None:
    reasons = [fault["skipped"] for fault in run[0] if fault["passed"] is None]
    assert reasons == ["only root may", "no compiler", "needs strace"]
    assert all("skipped" not in fault for fault in run[0] if fault["passed"] is not None)


def test_the_run_ends_with_those_that_were_not_made(run: tuple[list[dict[str, object]], str]) -> None:
    assert "3 of 7 faults were NOT made on this machine" in run[1]
    assert "test_few.py::test_not_here: only root may" in run[1]
