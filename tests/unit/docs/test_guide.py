"""The code of docs/guides/getting-started.md is run against a cluster in memory."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

GUIDE = (Path(__file__).parents[3] / "docs/guides/getting-started.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE, re.S)


@pytest.mark.feature("X5", "D1")
def test_the_guides_code_runs(
    halog_cluster: Any, halog_node: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Classes, transactions and the application's tests do what the guide says."""
    classes, transactions, tests = BLOCKS
    body = transactions.replace('halog.node("halog.toml")', "opened")
    indented = "".join(f"    {line}" for line in body.splitlines(keepends=True))
    (tmp_path / "guide_example.py").write_text(f"{classes}\n\ndef run(opened):\n{indented}\n\n{tests}")
    monkeypatch.syspath_prepend(tmp_path)
    guide = importlib.import_module("guide_example")
    cluster = halog_cluster(nodes=3)
    guide.run(cluster.client())
    guide.test_nothing_is_lost(lambda nodes: cluster)
    guide.test_landing(halog_node)
