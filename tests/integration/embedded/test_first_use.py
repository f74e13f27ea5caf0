"""The very first start on a machine: an empty cache, the real Maven Central."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from halog.embedded import EmbeddedSite, jars, read_site
from tests.integration.embedded.support import ROOT, changed


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.feature("O3")
def test_two_first_starts_share_one_fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both wait for one fetch and one build of class archives; everything is checked and private afterwards."""
    monkeypatch.setenv("HALOG_CACHE", str(tmp_path / "cache"))
    directories = [tmp_path / "a", tmp_path / "b"]
    starts = [
        subprocess.Popen(
            [sys.executable, "-m", "halog.cli.main", "up", "--data-dir", str(d)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=changed({}),
        )
        for d in directories
    ]
    try:
        said = [p.communicate(timeout=500)[1] for p in starts]
        assert [p.returncode for p in starts] == [0, 0], said
        assert {read_site(d).cached for d in directories} <= {True, False}
        assert sum("fetching the servers' jars" in s for s in said) == 1
        assert jars.mismatches(jars.directory()) == []
        kinds = sorted(name.split("-")[0] for name in os.listdir(tmp_path / "cache"))
        assert kinds == ["cds", "jars", "lock"]
    finally:
        for d in directories:
            EmbeddedSite(d).stop()
