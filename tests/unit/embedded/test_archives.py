"""Class archives: whole ones are kept, half ones never (a JVM that maps one crashes); a killed build proves nothing."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from halog.embedded import archives, cache
from halog.embedded.java import Java
from halog.embedded.model import SERVERS
from halog.embedded.process import Server

JAVA = Java("/nowhere/java", "17", 17)

WRITES = 'for name in kafka zookeeper; do touch "$5/$name.jsa"; done'
"""What a builder does whose fifth argument is the directory."""

STOPS = """
import signal, sys, time
from pathlib import Path
def dump(*_):
    Path(sys.argv[1]).write_text("half")
    time.sleep(float(sys.argv[2]))
    sys.exit(143)
signal.signal(signal.SIGTERM, dump)
print("up", flush=True)
time.sleep(60)
"""
"""A server that writes its archive, for so long, when it is told to stop."""


class Silent:
    """A progress nobody sees."""

    def report(self, text: str, done: int, total: int) -> None: ...


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No jar is needed here, and the cache is empty."""
    monkeypatch.setattr(archives, "manifest", dict)
    monkeypatch.setenv("HALOG_CACHE", str(tmp_path / "cache"))
    return tmp_path / "jars"


def builder(tmp_path: Path, does: str) -> str:
    """What is run in Python's place."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o755)
    return str(program)


def test_archives_are_built_once(jars: Path, tmp_path: Path) -> None:
    python = builder(tmp_path, WRITES)
    where, cached = archives.ensure(JAVA, jars, Silent(), python=python)
    assert (Path(where), cached) == (archives.directory(JAVA, jars), False)
    assert sorted(os.listdir(where)) == sorted(f"{name}.jsa" for name in SERVERS)
    assert archives.ensure(JAVA, jars, Silent(), python=python) == (where, True)


def test_two_starts_share_one_build(jars: Path, tmp_path: Path) -> None:
    """The second one waits until the archives are there, and says so."""
    begun, goes_on = tmp_path / "begun", tmp_path / "goes on"
    python = builder(tmp_path, f"echo >> '{begun}'; until [ -e '{goes_on}' ]; do sleep 0.01; done; {WRITES}")

    class Waits(Silent):
        def report(self, text: str, done: int, total: int) -> None:
            if text == "another halog process is filling the cache":
                goes_on.touch()

    with ThreadPoolExecutor(2) as pool:
        ends = [pool.submit(archives.ensure, JAVA, jars, Waits(), python=python) for _ in range(2)]
        found = [end.result(60) for end in ends]
    where = str(archives.directory(JAVA, jars))
    assert sorted(found) == [(where, False), (where, True)]
    assert begun.read_text() == "\n"


def test_a_build_that_fails_is_not_tried_again(jars: Path, tmp_path: Path) -> None:
    python = builder(tmp_path, "echo no such option; exit 1")
    assert archives.ensure(JAVA, jars, Silent(), python=python) == ("", False)
    python = builder(tmp_path, WRITES)
    assert archives.ensure(JAVA, jars, Silent(), python=python) == ("", True)
    assert "no such option" in (archives.directory(JAVA, jars) / archives.FAILED).read_text()


def test_a_build_that_was_killed_is_tried_again(jars: Path, tmp_path: Path) -> None:
    """Whoever ended it, as a machine does that is shut down, has not shown that it cannot be done."""
    python = builder(tmp_path, f"{WRITES}; kill -9 $$")
    assert archives.ensure(JAVA, jars, Silent(), python=python) == ("", False)
    python = builder(tmp_path, WRITES)
    assert archives.ensure(JAVA, jars, Silent(), python=python) == (str(archives.directory(JAVA, jars)), False)


def test_what_a_killed_process_was_making_is_gone_with_the_next_one(jars: Path, tmp_path: Path) -> None:
    """Hundreds of megabytes, which nobody else would ever remove."""
    with cache.locked(Silent()), cache.scratch() as killed:
        shutil.copytree(killed, f"{killed}-and-left")
    python = builder(tmp_path, WRITES)
    archives.ensure(JAVA, jars, Silent(), python=python)
    assert sorted(name.partition("-")[0] for name in os.listdir(cache.root())) == ["cds", "lock"]


@pytest.mark.parametrize(("dumps_s", "whole"), [(0.0, True), (60.0, False)])
def test_an_archive_whose_server_did_not_end_by_itself_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dumps_s: float, whole: bool
) -> None:
    """The JVM writes it while it stops: one that is too slow is killed in the middle of it."""
    target = tmp_path / "cds"
    target.mkdir()

    def servers(java: str, jars: Path, target: Path, root: Path, *_: Any) -> list[Server]:
        def up(name: str) -> bool:
            return (root / "logs" / f"{name}.out").read_text() == "up\n"

        def one(name: Any) -> Server:
            argv = [sys.executable, "-c", STOPS, str(target / f"{name}.jsa"), str(dumps_s)]
            return Server(name, root, argv, lambda: up(name))

        return [one(name) for name in SERVERS]

    monkeypatch.setattr(archives, "_servers", servers)
    monkeypatch.setattr(archives, "_use", lambda chosen: None)
    mask = os.umask(0o077)
    try:
        if whole:
            archives.build("java", tmp_path, target, dump_s=10.0 if whole else 0.5)
        else:
            with pytest.raises(SystemExit, match=f"was killed by {signal.SIGKILL.name}"):
                archives.build("java", tmp_path, target, dump_s=10.0 if whole else 0.5)
    finally:
        os.umask(mask)
