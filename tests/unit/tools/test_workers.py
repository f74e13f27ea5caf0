"""What one worker of `make test` runs: files that use the same servers are not shared out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import Listed
from tests.workers import FIRST, WHOLE, is_last, turn, unit

ROOT = Path(__file__).resolve().parents[3]


def test_tests_that_use_the_same_servers_are_one_workers_and_others_go_by_file() -> None:
    assert unit("tests/contract/test_log.py::test_a[x]") == unit("tests/contract/test_rocks.py::test_b")
    assert unit("tests/integration/sites/test_line.py::test_a") == unit("tests/integration/spark/test_example.py::b")
    assert unit("tests/faults/test_apart.py::test_a") == unit("tests/faults/test_packets.py::test_b[cut]")
    own = "tests/integration/cluster/test_kill.py"
    assert unit(f"{own}::test_a") == unit(f"{own}::test_b[x::y]") == own
    assert unit("tests/unit/sites/test_three.py::test_a") == "tests/unit/sites/test_three.py"


SITES, SPARK, CONTRACT = "tests/integration/sites", "tests/integration/spark", "tests/contract"


def collected(*directories: str) -> list[Any]:
    """A test in each of these, in the order in which they were collected."""
    session = SimpleNamespace(items=[])
    session.items += [
        SimpleNamespace(nodeid=f"{directory}/test_it.py::test_{n}", path=Path(directory, "test_it.py"), session=session)
        for n, directory in enumerate(directories)
    ]
    return session.items


def last(order: list[Any]) -> list[bool]:
    """Of each of them, run one after the other: is it called its directory's last one?"""
    return [is_last(one, after) for one, after in zip(order, [*order[1:], None], strict=True)]


def test_the_last_test_of_a_directory_has_none_behind_it_though_others_come_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    items = collected(CONTRACT, CONTRACT, SITES, SPARK, SITES, "tests/integration/objects")
    assert last(items) == [False, True, False, True, True, True]


def test_a_worker_that_goes_back_to_what_was_collected_before_is_done_with_a_units_directories_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Units with many tests begin first: behind one there may come one that stands in front of it. Within a unit a
    directory is done when none of its tests is left, though another one's are."""
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    cluster, contract, *unit_of_two = collected("tests/integration/cluster", CONTRACT, SITES, SITES, SPARK, SPARK)
    assert last([*unit_of_two, cluster, contract]) == [False, True, False, True, True, True]


def test_all_that_is_kept_together_is_there() -> None:
    assert all((ROOT / place).exists() for place in WHOLE)


def test_the_longest_units_are_there_and_are_begun_before_all_others() -> None:
    assert {name for name in FIRST if not (ROOT / name).is_file()} < set(WHOLE.values())
    assert sorted(["tests/a.py", *reversed(FIRST), "tests/b.py"], key=turn) == [*FIRST, "tests/a.py", "tests/b.py"]


def test_only_listed_files_are_collected() -> None:
    """Folders are walked through; a list that names nothing leaves nothing."""
    listed = Listed(ROOT, "tests/unit/tools/test_workers.py\n")
    assert listed.pytest_ignore_collect(Path(__file__).resolve()) is None
    assert listed.pytest_ignore_collect(ROOT / "tests/unit") is None
    assert listed.pytest_ignore_collect(ROOT / "tests/unit/tools/test_long.py") is True
    assert Listed(ROOT, "").pytest_ignore_collect(Path(__file__).resolve()) is True


CONFTEST = "from tests.conftest import pytest_xdist_make_scheduler\n"
TESTS = "import pytest\n\n@pytest.mark.parametrize('n', range(3))\ndef test_it(n: int) -> None: ...\n"
FILES = ("tests/contract/test_one.py", "tests/contract/test_two.py", "tests/unit/test_three.py")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """One with this one's scheduling, and nothing else of it: what a run writes down here is not this run's."""
    for file, text in {"pytest.ini": "[pytest]\n", "conftest.py": CONFTEST, **dict.fromkeys(FILES, TESTS)}.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    return tmp_path


def run(project: Path, *files: str, workers: int) -> list[tuple[str, str]]:
    """(worker, file) of each test, in the order in which they ended."""
    argv = [sys.executable, "-m", "pytest", "-vv", "-n", str(workers), "--dist", "loadfile", "-p", "no:cacheprovider"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env["PYTHONPATH"] = str(ROOT)
    piped = subprocess.PIPE
    done = subprocess.run([*argv, *files], cwd=project, env=env, stdout=piped, stderr=piped, text=True, timeout=100)
    ran = re.findall(r"^\[(gw\d)\].*PASSED (.*?)::", done.stdout, re.MULTILINE)
    assert {file for _, file in ran} == set(files), done.stdout + done.stderr
    return ran


def test_a_file_that_takes_long_is_begun_first_though_others_have_more_tests(project: Path) -> None:
    longest = FIRST[-1]
    (project / longest).parent.mkdir(parents=True)
    (project / longest).write_text("def test_it() -> None: ...\n")
    assert run(project, *FILES[2:], longest, workers=1)[0] == ("gw0", longest)


def test_two_files_of_the_contract_suite_are_run_by_one_worker_of_two(project: Path) -> None:
    ran = set(run(project, *FILES, workers=2))
    assert len(ran) == len(FILES)
    assert len({worker for worker, file in ran if "contract" in file}) == 1
    assert len({worker for worker, _ in ran}) == 2
