"""Jars: fetched once, checked against pinned checksums, cheaply checked at each start."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halog.embedded import cache, ivy, jars
from halog.embedded.java import Java
from halog.errors import SiteError

JAVA = Java("/nowhere/java", "17", 17)
WANTED = ivy.IvyRequest("the servers' jars", "<ivy-module/>", 2)
CONTENT = {"kafka.jar": b"k" * 100, "zookeeper.jar": b"z" * 50}


class Silent:
    """A progress nobody sees."""

    def report(self, text: str, done: int, total: int) -> None: ...


class FakeIvy:
    """Puts files where Ivy would, and counts how often it was asked."""

    def __init__(self) -> None:
        self.runs = 0
        self.content: dict[str, bytes] = dict(CONTENT)

    def __call__(self, java: str, ivy: Path, wanted: Any, scratch: Path, target: Path, progress: Any) -> None:
        self.runs += 1
        target.mkdir()
        for name, data in self.content.items():
            (target / name).write_bytes(data)

    def ensure(self) -> tuple[Path, bool]:
        """The jars, by this Ivy."""
        return jars.ensure(JAVA, Silent(), ivy_jar=Path("ivy.jar"), run=self)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeIvy:
    """A manifest of two jars, an empty cache, and an Ivy that delivers them."""
    pinned = {name: hashlib.sha256(data).hexdigest() for name, data in CONTENT.items()}
    monkeypatch.setattr(jars, "manifest", lambda of=jars.SERVERS: pinned)
    monkeypatch.setenv("HALOG_CACHE", str(tmp_path / "cache"))
    return FakeIvy()


def test_the_first_start_fetches_and_later_ones_do_not(fake: FakeIvy) -> None:
    where, cached = fake.ensure()
    assert (fake.runs, cached) == (1, False)
    assert fake.ensure() == (where, True)
    assert fake.runs == 1


def test_a_wrong_checksum_is_refused_and_leaves_no_jars(fake: FakeIvy) -> None:
    fake.content["kafka.jar"] = b"evil"
    with pytest.raises(SiteError, match="not the ones halog was tested with"):
        fake.ensure()
    assert not jars.directory().exists()
    assert os.listdir(cache.root()) == ["lock"]


def test_a_missing_jar_is_refused(fake: FakeIvy) -> None:
    del fake.content["zookeeper.jar"]
    with pytest.raises(SiteError, match=r"zookeeper\.jar"):
        fake.ensure()


def test_a_jar_nobody_asked_for_is_dropped(fake: FakeIvy) -> None:
    fake.content["extra.jar"] = b"?"
    where, _ = fake.ensure()
    assert sorted(os.listdir(where)) == [jars.STAMP, "kafka.jar", "zookeeper.jar"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: (d / "kafka.jar").write_bytes(b"x" * 100),
        lambda d: (d / "kafka.jar").write_bytes(b"short"),
        lambda d: (d / "kafka.jar").unlink(),
    ],
)
def test_a_damaged_cache_is_fetched_again(fake: FakeIvy, damage: Callable[[Path], object]) -> None:
    where, _ = fake.ensure()
    damage(where)
    assert fake.ensure() == (where, False)
    assert jars.mismatches(where) == []


@pytest.mark.parametrize("stamp", [None, "", "[]", "{}"])
def test_right_jars_without_a_right_stamp_are_only_checked_again(fake: FakeIvy, stamp: str | None) -> None:
    """A copied or restored cache has other times, not other jars."""
    where, _ = fake.ensure()
    if stamp is None:
        os.utime(where / "kafka.jar", (1, 1))
    else:
        (where / jars.STAMP).write_text(stamp)
    assert fake.ensure() == (where, True)
    assert fake.runs == 1
    assert jars.is_checked(where)


def test_without_pyspark_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)  # type: ignore[arg-type]
    with pytest.raises(SiteError, match=r"pip install 'halog\[embedded\]'"):
        jars.find_ivy()


def test_a_cache_that_cannot_be_made_is_an_error(fake: FakeIvy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALOG_CACHE", "/proc/halog-cache")
    with pytest.raises(SiteError, match="set HALOG_CACHE"):
        fake.ensure()


def test_the_class_path_holds_pinned_jars_only() -> None:
    every = {Path(p).name for p in jars.classpath(Path("/j"), "kafka").split(":")}
    assert every == set(jars.manifest())
    zookeeper = jars.classpath(Path("/j"), "zookeeper").split(":")
    assert any("zookeeper-3" in p for p in zookeeper)
    assert not any("kafka" in p for p in zookeeper)


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("Server access error at url x (java.net.ConnectException: Connection refused)", "Connection refused"),
        ("host is unknown: java.net.UnknownHostException: repo1.maven.org", "UnknownHostException"),
        ("unresolved dependency: org.apache.kafka#kafka_2.13;4.3.0: not found", "unresolved dependency"),
        ("strange", "strange"),
    ],
)
def test_a_failing_ivy_becomes_one_sentence(tmp_path: Path, output: str, reason: str) -> None:
    program = tmp_path / "java"
    program.write_text(f"#!/bin/sh\necho ':: loading'\necho '{output}'\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(SiteError, match=f"(?s)cannot fetch .*{reason}.*check the network") as caught:
        ivy.run_ivy(str(program), Path("ivy.jar"), WANTED, tmp_path, tmp_path / "out", Silent())
    assert "\n" not in caught.value.message


def test_a_silent_network_ends(tmp_path: Path) -> None:
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    with pytest.raises(SiteError, match="is silent"):
        ivy.run_ivy(str(program), Path("ivy.jar"), WANTED, tmp_path, tmp_path / "out", Silent(), silence_s=0.1)
