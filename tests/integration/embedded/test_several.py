"""`halog up --sites`: several sites side by side, all of them or none."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from halog.config import Config, RemoteSiteConfig
from halog.config.model import ClusterConfig, SiteConfig
from halog.embedded import EmbeddedSite, SiteInfo, datadir, read_site
from halog.errors import UnreachableError
from halog.runtime.node.wiring import remote_site
from tests.integration.embedded.support import (
    ROOT,
    SOON_S,
    STARTS_S,
    alive,
    eventually,
    gone_after,
    halog,
    make_topic,
    topics,
)

pytestmark = [pytest.mark.feature("O3", "M5"), pytest.mark.timeout(600)]

NAMES = ("west", "east")
UP = [sys.executable, "-m", "halog.cli.main", "up", "--sites", "west,east"]


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A directory in whose parts nothing runs afterwards."""
    path = tmp_path / "the sites"
    yield path
    for name in (*NAMES, "south"):
        EmbeddedSite(path / name).stop()


def both(command: str, root: Path) -> dict[str, Any]:
    """`halog up` or `halog down`, by its JSON."""
    done = halog(command, "--sites", "west,east", "--data-dir", str(root), "--format", "json")
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)["sites"]
    assert list(printed) == list(NAMES)
    return printed


def infos(root: Path) -> dict[str, SiteInfo]:
    return {name: read_site(root / name) for name in NAMES}


def runs(path: Path) -> bool:
    return datadir.is_locked(path)


@pytest.mark.slow
def test_both_are_up_on_ports_of_their_own_and_both_go_down(root: Path) -> None:
    """Another start goes on with the data of each, on the same ports."""
    printed, first = both("up", root), infos(root)
    for name in NAMES:
        assert set(printed[name]) == {
            "kafka_ms",
            "zookeeper_ms",
            "cached",
            "bootstrap",
            "zookeeper",
            "data_dir",
            "pid",
        }
        assert (printed[name]["pid"], printed[name]["data_dir"]) == (first[name].pid, str(root / name))
    assert len({a for i in first.values() for a in (i.bootstrap, i.zookeeper)}) == 4
    make_topic(first["west"].bootstrap, "kept")
    assert "kept" not in topics(first["east"].bootstrap), "they have nothing to do with each other"
    assert {name: d["stopped"] for name, d in both("down", root).items()} == {"west": True, "east": True}
    assert not any(alive(pid) for i in first.values() for pid in i.pids.values())
    assert {name: d["stopped"] for name, d in both("down", root).items()} == {"west": False, "east": False}
    both("up", root)
    again = infos(root)
    assert {n: (i.bootstrap, i.zookeeper) for n, i in again.items()} == {
        n: (i.bootstrap, i.zookeeper) for n, i in first.items()
    }
    assert "kept" in topics(again["west"].bootstrap)


def test_each_is_a_site_like_any_other(root: Path) -> None:
    """A configuration finds it, the table shows it, and it can be stopped alone."""
    done = halog("up", "--sites", "west, east", "--data-dir", str(root))
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    found = infos(root)
    assert [row[:3] for row in rows[1:]] == [
        [name, server, getattr(found[name], key)]
        for name in NAMES
        for server, key in (("kafka", "bootstrap"), ("zookeeper", "zookeeper"))
    ]
    config = Config(
        ClusterConfig("t"),
        SiteConfig("east", embedded=root / "east"),
        sites={"west": RemoteSiteConfig(embedded=root / "west")},
    ).validate()
    assert remote_site(config, "west") == (found["west"].bootstrap, found["west"].zookeeper)
    assert halog("down", "--data-dir", str(root / "west")).returncode == 0
    with pytest.raises(UnreachableError, match=r"site west cannot be reached: .*halog up --data-dir"):
        remote_site(config, "west")
    assert runs(root / "east")


def test_what_stands_against_one_keeps_all_from_being_begun(root: Path) -> None:
    """Found before anything is made."""
    with EmbeddedSite(root / "east"):
        done = halog("up", "--sites", "south,east", "--data-dir", str(root))
        assert (done.returncode, done.stdout) == (1, "")
        assert "site east: a site is already running" in done.stderr
        assert not (root / "south").exists()
        assert runs(root / "east"), "it is not ours to stop"
    alone = halog("up", "--sites", "south", "--data-dir", str(root / "east"))
    assert (alone.returncode, "is that of one site" in alone.stderr) == (1, True), alone.stderr
    (root / "west").write_text("a letter")
    done = halog("up", "--sites", "south,west", "--data-dir", str(root))
    assert (done.returncode, "site west: " in done.stderr, (root / "south").exists()) == (1, True, False), done.stderr


def test_one_that_fails_takes_the_other_with_it(root: Path) -> None:
    """Its Kafka finds the data of another one."""
    meta = root / "east/kafka/data/meta.properties"
    datadir.prepare(root / "east")
    meta.write_text("version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id=7\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n")
    done = halog("up", "--sites", "west,east", "--data-dir", str(root))
    assert done.returncode == 1
    assert "site east: kafka ended while starting" in done.stderr, done.stderr
    assert (root / "west").exists(), "it had been begun"
    assert not runs(root / "west")
    assert not runs(root / "east")


def test_interrupting_a_start_leaves_nothing_behind(root: Path) -> None:
    process = subprocess.Popen([*UP, "--data-dir", str(root)], stderr=subprocess.PIPE, text=True, cwd=ROOT)
    with process:
        while not all((root / name / "control.sock").exists() for name in NAMES):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(STARTS_S) == 130
        assert process.stderr is not None
        assert process.stderr.read().strip() == "halog: interrupted"
    assert not any(runs(root / name) for name in NAMES)


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGKILL])
def test_foreground_ends_all_with_the_command(root: Path, number: signal.Signals) -> None:
    command = [*UP, "--foreground", "--format", "json", "--data-dir", str(root)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    with process:
        assert process.stdout is not None
        assert set(json.loads(process.stdout.readline())["sites"]) == set(NAMES)
        pids = [pid for info in infos(root).values() for pid in info.pids.values()]
        process.send_signal(number)
        assert process.wait(2 * SOON_S) == (-9 if number == signal.SIGKILL else 0)
        gone_after(pids, SOON_S)


def test_foreground_ends_when_all_were_stopped_and_fails_with_the_first_that_fails(root: Path) -> None:
    command = [*UP, "--foreground", "--format", "json", "--data-dir", str(root)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline()
        assert halog("down", "--data-dir", str(root / "west")).returncode == 0
        assert process.poll() is None, "one was stopped on purpose; the other goes on"
        east = read_site(root / "east")
        subprocess.run(["kill", "-KILL", str(east.pid)], check=True)
        assert process.wait(2 * SOON_S) == 1
        assert process.stderr is not None
        assert f"see {root / 'east'}/logs" in process.stderr.read()
    eventually(lambda: not any(alive(p) for p in east.pids.values()), SOON_S, "its servers are gone")
