"""The very first start on a machine: an empty cache, the real Maven Central; and one that finds only the jars."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from halog.embedded import EmbeddedSite, jars, read_site
from halog.embedded.model import SERVERS
from tests.integration.embedded.support import ROOT, changed


def started(cache: Path, directories: list[Path]) -> list[str]:
    """Both at once; what each has said on stderr."""
    starts = [
        subprocess.Popen(
            [sys.executable, "-m", "halog.cli.main", "up", "--data-dir", str(d)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=changed({"HALOG_CACHE": str(cache)}),
        )
        for d in directories
    ]
    said = [p.communicate(timeout=500)[1] for p in starts]
    assert [p.returncode for p in starts] == [0, 0], said
    return said


@pytest.fixture
def directories(tmp_path: Path) -> Iterator[list[Path]]:
    """Of two sites, which are down afterwards."""
    found = [tmp_path / "a", tmp_path / "b"]
    yield found
    for directory in found:
        EmbeddedSite(directory).stop()


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.feature("O3")
def test_two_starts_share_one_build_of_class_archives(
    site: EmbeddedSite, tmp_path: Path, directories: list[Path]
) -> None:
    """The jars are there, and nothing else: they are not fetched again, and there is one set of archives afterwards."""
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    shutil.copytree(jars.directory(), cache / jars.directory().name)
    said = started(cache, directories)
    assert not any("fetching" in s for s in said)
    assert all(read_site(d).pids.keys() >= set(SERVERS) for d in directories)
    assert sorted(name.split("-")[0] for name in os.listdir(cache)) == ["cds", "jars", "lock"]
    (archives,) = cache.glob("cds-*")
    assert sorted(os.listdir(archives)) == ["kafka.jsa", "zookeeper.jsa"]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.feature("O3")
def test_two_first_starts_share_one_fetch(
    tmp_path: Path, directories: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both wait for one fetch and one build of class archives; everything is checked and private afterwards."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("HALOG_CACHE", str(cache))
    said = started(cache, directories)
    assert {read_site(d).cached for d in directories} <= {True, False}
    assert sum("fetching the servers' jars" in s for s in said) == 1
    assert jars.mismatches(jars.directory()) == []
    assert sorted(name.split("-")[0] for name in os.listdir(cache)) == ["cds", "jars", "lock"]
