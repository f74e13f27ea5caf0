"""The README's example runs as it is written there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[3] / "README.md").read_text()
FILES = dict(re.findall(r"^`([\w.]+)`, [^\n]*:\n\n```\w+\n(.*?)```$", README, re.S | re.M))
SCRIPT = re.search(r"^Run it:\n\n```sh\n(.*?)```$", README, re.S | re.M)


@pytest.mark.timeout(180)
@pytest.mark.feature("O3", "R5", "P10")
def test_the_readme_example_survives_the_kill_it_shows(tmp_path: Path) -> None:
    """A reader who copies the files and the commands sees one landing, a kill, and the second landing."""
    assert set(FILES) == {"fleet.py", "halog.toml", "app.py"}
    assert SCRIPT is not None
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-m", "-c", SCRIPT[1]], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=170, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("N14228")]
    assert lines == ["N14228 1 1400", "N14228 2 2800"], done.stdout + done.stderr
