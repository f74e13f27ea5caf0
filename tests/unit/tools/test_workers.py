"""What one worker of `make test` runs: files that use the same servers are not shared out."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.workers import WHOLE, is_last, unit

ROOT = Path(__file__).resolve().parents[3]


def test_tests_that_use_the_same_servers_are_one_workers_and_others_go_by_file() -> None:
    assert unit("tests/contract/test_log.py::test_a[x]") == unit("tests/contract/test_rocks.py::test_b")
    assert unit("tests/integration/sites/test_line.py::test_a") == unit("tests/integration/spark/test_example.py::b")
    own = "tests/integration/cluster/test_kill.py"
    assert unit(f"{own}::test_a") == unit(f"{own}::test_b[x::y]") == own
    assert unit("tests/unit/sites/test_three.py::test_a") == "tests/unit/sites/test_three.py"


def test_the_last_test_of_a_directory_has_none_behind_it_though_others_come_between() -> None:
    session = SimpleNamespace(items=[])
    items: list[Any] = [
        SimpleNamespace(path=Path(directory, "test_it.py"), session=session, number=number)
        for number, directory in enumerate(("contract", "contract", "sites", "spark", "sites", "objects"))
    ]
    session.items += items
    following = [*items[1:], None]
    assert [is_last(one, after) for one, after in zip(items, following, strict=True)] == [
        False, True, False, True, True, True,
    ]  # fmt: skip


def test_every_directory_that_is_kept_together_is_there() -> None:
    assert all((ROOT / directory).is_dir() for directory in WHOLE)


def test_two_files_of_the_contract_suite_are_run_by_one_worker_of_two(tmp_path: Path) -> None:
    files = [f"tests/contract/{name}.py" for name in ("test_rocks", "test_store")] + ["tests/unit/tools/test_warm.py"]
    argv = [sys.executable, "-m", "pytest", "-vv", "-n", "2", "--dist", "loadfile", f"--basetemp={tmp_path / 'run'}"]
    said = subprocess.run([*argv, *files], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False).stdout
    ran = set(re.findall(r"^\[(gw\d)\].*PASSED (.*?)::", said, re.MULTILINE))
    assert {file for _, file in ran} == set(files), said
    assert len(ran) == len(files)
    assert len({worker for worker, file in ran if "contract" in file}) == 1
