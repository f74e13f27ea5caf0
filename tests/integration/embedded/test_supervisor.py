"""Who owns whom: the servers live exactly as long as their supervisor, and the supervisor as long as it should."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from halog.embedded import EmbeddedSite, SiteInfo, archives, attach, jars, read_site
from halog.embedded.datadir import read_marker
from halog.embedded.java import find_java
from halog.embedded.model import Launch, boot_clock
from halog.embedded.ports import pick
from halog.embedded.progress import LogProgress
from halog.errors import SiteError, UnreachableError
from tests.integration.embedded.support import (
    ROOT,
    SOON_S,
    STARTS_S,
    alive,
    changed,
    cpu_s,
    gone_after,
    halog,
    make_topic,
    topics,
    znode,
)

pytestmark = [pytest.mark.feature("O3"), pytest.mark.timeout(480)]


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """A directory nothing runs in afterwards."""
    path = tmp_path / "a site"  # a space: nothing may be split at it
    yield path
    EmbeddedSite(path).stop()


def up(data_dir: Path, *args: str) -> SiteInfo:
    """`halog up`, by its JSON."""
    done = halog("up", "--data-dir", str(data_dir), "--format", "json", *args)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert set(printed) == {"kafka_ms", "zookeeper_ms", "cached", "bootstrap", "zookeeper", "data_dir", "pid"}
    info = read_site(data_dir)
    assert printed["pid"] == info.pid
    return info


def test_a_cached_start_costs_what_class_archives_leave_of_it(site: EmbeddedSite, data_dir: Path) -> None:
    """In CPU time, which other people's load leaves as it is: on a quiet machine it is up within three seconds."""
    used = []
    for _ in range(3):
        info = up(data_dir)
        assert info.cached
        used.append(sum(cpu_s(info.pids[server]) for server in ("kafka", "zookeeper")))
        assert halog("down", "--data-dir", str(data_dir)).returncode == 0
        if used[-1] <= 5.0:  # 2.6 measured; without class archives it is 9
            return
    raise AssertionError(f"{used} s of CPU time")


def test_up_leaves_one_supervisor_and_down_ends_it(data_dir: Path) -> None:
    """Both servers are its children; after down nothing runs, and down again is no error."""
    info = up(data_dir)
    for server in ("kafka", "zookeeper"):
        stat = Path(f"/proc/{info.pids[server]}/stat").read_text()
        assert int(stat.rsplit(")", 1)[1].split()[1]) == info.pid
    assert halog("down", "--data-dir", str(data_dir)).returncode == 0
    assert not any(alive(p) for p in info.pids.values())
    with pytest.raises(UnreachableError, match="halog up"):
        read_site(data_dir)
    again = halog("down", "--data-dir", str(data_dir), "--format", "json")
    assert (again.returncode, json.loads(again.stdout)["stopped"]) == (0, False)


def test_killing_the_supervisor_ends_both_servers_and_up_continues_with_the_data(data_dir: Path) -> None:
    """kill -9: both are gone with it. The next start finds the same data on the same ports."""
    info = up(data_dir)
    make_topic(info.bootstrap, "kept")
    znode(info.zookeeper, "/kept", b"yes")
    os.kill(info.pid, signal.SIGKILL)
    gone_after(list(info.pids.values()), SOON_S)
    again = up(data_dir)
    assert (again.bootstrap, again.zookeeper) == (info.bootstrap, info.zookeeper)
    assert "kept" in topics(again.bootstrap)
    assert znode(again.zookeeper, "/kept") == b"yes"


@pytest.mark.long
def test_up_right_after_a_kill_does_not_meet_the_dying_servers(data_dir: Path) -> None:
    """No waiting in between: the new supervisor waits for the old servers' end."""
    info = up(data_dir)
    os.kill(info.pid, signal.SIGKILL)
    again = up(data_dir)
    assert again.bootstrap == info.bootstrap
    assert not any(alive(p) for p in info.pids.values())


def test_a_port_taken_meanwhile_is_replaced(data_dir: Path) -> None:
    """The data is what counts, not the number."""
    site = EmbeddedSite(data_dir)
    info = site.start()
    make_topic(info.bootstrap, "kept")
    site.stop()
    ports = read_marker(data_dir).ports
    assert ports is not None
    with socket.create_server(("127.0.0.1", ports.kafka)):
        again = site.start()
    assert again.bootstrap != info.bootstrap
    assert again.zookeeper == info.zookeeper
    assert "kept" in topics(again.bootstrap)


def overtaken(data_dir: Path, server: str, **asked: Any) -> dict[str, Any]:
    """What a supervisor says whose port of this server somebody takes when it has just been chosen."""
    java, progress = find_java(), LogProgress()
    jar_dir, _ = jars.ensure(java, progress)
    archive_dir, _ = archives.ensure(java, jar_dir, progress)
    launch = Launch(str(data_dir), java.path, str(jar_dir), archive_dir, cached=True, since=boot_clock(), **asked)
    argv = [sys.executable, "-m", "tests.integration.embedded.overtaken", launch.to_json(), server]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=changed({})) as process:
        assert process.stdout is not None
        said: dict[str, Any] = json.loads(process.stdout.readline())
        process.terminate()
    return said


@pytest.mark.parametrize(
    "server", ["kafka", *(pytest.param(one, marks=pytest.mark.long) for one in ("controller", "zookeeper"))]
)
def test_a_port_taken_between_its_choice_and_the_servers_start_is_replaced(data_dir: Path, server: str) -> None:
    """Two sites that start at once may choose the same one: both come up."""
    said = overtaken(data_dir, server)
    ports = read_marker(data_dir).ports
    assert ports is not None
    assert SiteInfo.from_dict(said["ok"]).bootstrap == f"127.0.0.1:{ports.kafka}"
    assert SiteInfo.from_dict(said["ok"]).zookeeper == f"127.0.0.1:{ports.zookeeper}"
    log = (data_dir / "logs" / "supervisor.log").read_text()
    assert log.count("a port was taken meanwhile, starting on others") == 1, log


def test_a_port_that_was_asked_for_and_taken_meanwhile_is_an_error(data_dir: Path) -> None:
    """Whoever names a port wants that one."""
    port = pick(set())
    said = overtaken(data_dir, "zookeeper", zookeeper_port=port)
    assert f"port {port} is taken by another program" in said["error"]


def test_the_servers_end_with_the_python_process_that_started_them(data_dir: Path) -> None:
    """kill -9 of the caller; a child it forked lives on and must not keep the site alive."""
    code = (
        "import os, sys, time\n"
        "from halog.embedded import EmbeddedSite\n"
        "info = EmbeddedSite(sys.argv[1]).start()\n"
        "child = os.fork()\n"
        "if child == 0:\n    os.close(1); time.sleep(600); os._exit(0)\n"
        "print(*info.pids.values(), child, flush=True)\n"
        "time.sleep(600)\n"
    )
    caller = subprocess.Popen(
        [sys.executable, "-c", code, str(data_dir)], stdout=subprocess.PIPE, text=True, cwd=ROOT, env=changed({})
    )
    assert caller.stdout is not None
    *pids, child = map(int, caller.stdout.readline().split())
    caller.kill()
    caller.wait()
    caller.stdout.close()
    try:
        gone_after(pids, SOON_S)
        assert alive(child)
    finally:
        os.kill(child, signal.SIGKILL)


def test_the_servers_outlive_the_thread_that_started_them(data_dir: Path) -> None:
    """The kernel's parent-death signal means the thread; ours means the process."""
    site = EmbeddedSite(data_dir)
    thread = threading.Thread(target=site.start)
    thread.start()
    thread.join()
    info = site.info
    assert all(alive(p) for p in info.pids.values())
    assert topics(info.bootstrap) is not None
    site.stop()
    assert not any(alive(p) for p in info.pids.values())


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGINT, signal.SIGKILL]
)
def test_foreground_ends_everything_with_the_command(data_dir: Path, number: signal.Signals) -> None:
    """Ctrl-C, SIGTERM, and even kill -9 of the command."""
    command = [sys.executable, "-m", "halog.cli.main", "up", "--foreground", "--format", "json"]
    process = subprocess.Popen(
        [*command, "--data-dir", str(data_dir)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    with process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["kafka_ms"] > 0
        pids = list(read_site(data_dir).pids.values())
        process.send_signal(number)
        assert process.wait(2 * SOON_S) == (-9 if number == signal.SIGKILL else 0)
        gone_after(pids, SOON_S)
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def test_interrupting_a_start_leaves_nothing_behind(data_dir: Path) -> None:
    """SIGINT before the servers answer: no supervisor, no server, and the directory is free."""
    process = subprocess.Popen(
        [sys.executable, "-m", "halog.cli.main", "up", "--data-dir", str(data_dir)],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with process:
        socket_file = data_dir / "control.sock"
        while not socket_file.exists():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(STARTS_S) == 130
        assert process.stderr is not None
        assert process.stderr.read().strip() == "halog: interrupted"
    with pytest.raises(UnreachableError):
        read_site(data_dir)
    up(data_dir)


def test_one_site_per_directory_and_two_directories_two_sites(site: EmbeddedSite, data_dir: Path) -> None:
    """A second start is refused from Python as from the command line; another directory has its own ports."""
    with EmbeddedSite(data_dir) as info:
        assert {info.bootstrap, info.zookeeper}.isdisjoint({site.info.bootstrap, site.info.zookeeper})
        with pytest.raises(SiteError, match="already running"):
            EmbeddedSite(data_dir).start()
        assert attach(data_dir).info == info
    with pytest.raises(UnreachableError):
        attach(data_dir)


@pytest.mark.parametrize("killed", [True, False], ids=["servers killed", "servers run"])
def test_a_site_whose_directory_is_deleted_ends(data_dir: Path, killed: bool) -> None:
    """Nobody could find it any more, to use it or to stop it."""
    info = up(data_dir)
    pids = [info.pids["kafka"], info.pids["zookeeper"]]
    if killed:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    while data_dir.exists():  # a server that runs writes meanwhile
        shutil.rmtree(data_dir, ignore_errors=True)
    gone_after([info.pid, *pids], 2 * SOON_S)
