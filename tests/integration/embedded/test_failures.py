"""What can be in the way of `halog up`: each is one line on stderr that says what to do, an exit code, no traceback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from halog.embedded import EmbeddedSite
from tests.integration.embedded.support import ROOT, changed, halog

pytestmark = [pytest.mark.feature("O3"), pytest.mark.timeout(400)]


@dataclass
class Case:
    """What stands in the way of one start."""

    tmp: Path
    site: EmbeddedSite
    cleanup: ExitStack
    args: list[str] = field(default_factory=list)
    env: dict[str, str | None] = field(default_factory=dict)

    @property
    def data_dir(self) -> Path:
        return self.tmp / "site"


def no_java(case: Case) -> None:
    case.env |= {"JAVA_HOME": None, "PATH": str(case.tmp)}


def old_java(case: Case) -> None:
    (case.tmp / "jdk/bin").mkdir(parents=True)
    (case.tmp / "jdk/bin/java").write_text("#!/bin/sh\n")
    (case.tmp / "jdk/bin/java").chmod(0o755)
    (case.tmp / "jdk/release").write_text('JAVA_VERSION="11.0.2"\n')
    case.env["JAVA_HOME"] = str(case.tmp / "jdk")


def broken_java_home(case: Case) -> None:
    case.env["JAVA_HOME"] = str(case.tmp / "nothing")


def no_network(case: Case) -> None:
    """A proxy nobody runs, and a cache with nothing in it."""
    proxy = "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=1 -Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=1"
    case.env |= {"HALOG_CACHE": str(case.tmp / "cache"), "JAVA_TOOL_OPTIONS": proxy}


def unusable_cache(case: Case) -> None:
    (case.tmp / "file").write_text("")
    case.env["HALOG_CACHE"] = str(case.tmp / "file" / "cache")


def taken_port(case: Case) -> None:
    taken = case.cleanup.enter_context(socket.create_server(("127.0.0.1", 0)))
    case.args += ["--kafka-port", str(taken.getsockname()[1])]


def one_port_twice(case: Case) -> None:
    case.args += ["--kafka-port", "20999", "--zookeeper-port", "20999"]


def impossible_port(case: Case) -> None:
    case.args += ["--zookeeper-port", "70000"]


def foreign_directory(case: Case) -> None:
    case.data_dir.mkdir()
    (case.data_dir / "thesis.tex").write_text("mine")


def file_as_directory(case: Case) -> None:
    case.data_dir.write_text("")


def directory_below_a_file(case: Case) -> None:
    (case.tmp / "file").write_text("")
    case.args += ["--data-dir", str(case.tmp / "file" / "site")]


def directory_of_another_user(case: Case) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make one")
    case.data_dir.mkdir()
    os.chown(case.data_dir, 65534, 65534)


def damaged_marker(case: Case) -> None:
    case.data_dir.mkdir()
    (case.data_dir / ".halog-site").write_text("{")


def full_disk(case: Case) -> None:
    case.data_dir.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=20m,mode=0700", "halog-test", str(case.data_dir)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode != 0:
        pytest.skip("no small file system can be mounted here; tests/unit/embedded/test_datadir.py has the rule")
    case.cleanup.callback(subprocess.run, ["umount", str(case.data_dir)], check=False)


def running_already(case: Case) -> None:
    case.args += ["--data-dir", str(case.site.data_dir)]


FETCHING = "fetching the servers' jars (once)"


@pytest.fixture
def case(tmp_path: Path, site: EmbeddedSite) -> Iterator[Case]:
    with ExitStack() as cleanup:
        yield Case(tmp_path, site, cleanup)


@pytest.mark.parametrize(
    ("obstacle", "code", "says", "to_do"),
    [
        (no_java, 1, "no Java found", "install openjdk-17-jre-headless"),
        (old_java, 1, "Java 17 or newer is needed", "install openjdk-17-jre-headless"),
        (broken_java_home, 1, "JAVA_HOME is", "install"),
        (no_network, 1, "cannot fetch the servers' jars", "check the network"),
        (unusable_cache, 1, "cache directory", "set HALOG_CACHE"),
        (taken_port, 1, "is taken by another program", "choose another"),
        (one_port_twice, 2, "are both 20999", "needs its own"),
        (impossible_port, 2, "--zookeeper-port 70000", "1 to 65535"),
        (foreign_directory, 1, "holds files that are not halog's", "choose an empty"),
        (file_as_directory, 1, "is a file", "choose another"),
        (directory_below_a_file, 1, "Not a directory", "choose another"),
        (directory_of_another_user, 1, "belongs to another user", "choose another"),
        (damaged_marker, 1, "damaged", "choose another"),
        (full_disk, 1, "MB are free", "free some space"),
        (running_already, 1, "already running", "halog down"),
    ],
)
def test_each_obstacle_is_one_line_that_says_what_to_do(
    case: Case, obstacle: Callable[[Case], None], code: int, says: str, to_do: str
) -> None:
    case.args += ["--data-dir", str(case.data_dir)]
    obstacle(case)
    done = halog("up", *case.args, env=case.env)
    lines = done.stderr.splitlines()
    if lines and lines[0] == FETCHING:  # said of what lasts: how long Ivy takes to find nobody depends on the machine
        del lines[0]
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("halog: ")
    assert says in lines[0]
    assert to_do in lines[0]


def test_without_pyspark_it_says_what_to_install(tmp_path: Path) -> None:
    """A plain node has no pyspark; only the first start of an embedded site needs it."""
    code = "import sys; sys.modules['pyspark'] = None; from halog.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, "up", "--data-dir", str(tmp_path / "s")],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=changed({"HALOG_CACHE": str(tmp_path / "cache")}),
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == ("halog: pyspark is needed, whose Ivy fetches the jars: pip install 'halog[embedded]'\n")


def test_a_server_that_cannot_start_is_named_with_its_last_words(tmp_path: Path) -> None:
    """Its data is damaged: the reason is in the line, nothing stays running, nothing is deleted."""
    site = EmbeddedSite(tmp_path / "s")
    with site:
        pass
    meta = tmp_path / "s/kafka/data/meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=2"))
    done = halog("up", "--data-dir", str(tmp_path / "s"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "kafka ended while starting" in done.stderr
    assert "node" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert meta.exists()
