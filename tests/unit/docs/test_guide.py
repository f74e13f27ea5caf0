"""The code of docs/guides/getting-started.md is run as an application's own tests would be, in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = (Path(__file__).parents[3] / "docs/guides/getting-started.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE, re.S)


@pytest.mark.timeout(120)
@pytest.mark.feature("X5", "D1")
def test_the_guides_code_runs(tmp_path: Path) -> None:
    """Classes, transactions and the application's tests do what the guide says, with nothing but halog installed."""
    classes, transactions, errors, tests = BLOCKS
    body = transactions.replace('halog.node("halog.toml")', "halog_cluster(nodes=3).client()")
    indented = "".join(f"    {line}" for line in body.splitlines(keepends=True))
    begin = "    with node.transaction():\n        node.create(Aircraft(tail='N14228'))\n"
    asks = "".join(f"    {line}" for line in errors.splitlines(keepends=True))
    program = f"{classes}\n\ndef test_transactions(halog_cluster):\n{indented}\n\n{tests}"
    program += f"\n\ndef test_errors(halog_node):\n    node = halog_node\n{begin}{asks}"
    (tmp_path / "test_example.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert re.search(r"\b4 passed", done.stdout), done.stdout + done.stderr
