"""Processes of a test end with it, and are killed, frozen and thawed by it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from halog.embedded.archives import child_environment
from halog.errors import HalogError
from halog.testing.processes import ChildProcess, start_node

SLEEPER = "import sys; from halog.testing.child import die_with; die_with({parent}); print('ready', flush=True); {then}"
SLEEP = "import time; time.sleep(60)"


def test_a_child_ends_when_its_parent_is_killed_also_while_it_is_stopped() -> None:
    """kill -9 leaves the parent no chance to do anything: the kernel ends the child."""
    inner = SLEEPER.format(parent="int(sys.argv[1])", then=SLEEP)
    outer = (
        "import os, subprocess, sys, time;"
        f"p = subprocess.Popen([sys.executable, '-c', {inner!r}, str(os.getpid())], stdout=subprocess.PIPE);"
        "p.stdout.readline(); print(p.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", outer], stdout=subprocess.PIPE, env=child_environment())
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    os.kill(child, signal.SIGSTOP)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_gone(child)


def test_a_child_whose_parent_is_another_ends_at_once() -> None:
    code = SLEEPER.format(parent="1 << 30", then=SLEEP)
    done = subprocess.run([sys.executable, "-c", code], env=child_environment(), timeout=20, capture_output=True)
    assert done.returncode == 127
    assert done.stdout == b""


@pytest.fixture
def counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that says a line again and again, and ends in order at SIGTERM."""
    (tmp_path / "counting.py").write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\n"
        "while True:\n"
        "    print('up', flush=True)\n"
        "    time.sleep(0.01)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def test_a_frozen_process_says_nothing_until_it_is_thawed(counting: Path) -> None:
    child = ChildProcess("X", ["counting"], counting)
    child.ready()
    child.freeze()
    said = len(child.lines())
    time.sleep(0.1)
    assert len(child.lines()) == said
    child.thaw()
    until = time.monotonic() + 20
    while len(child.lines()) == said and time.monotonic() < until:
        time.sleep(0.01)
    assert len(child.lines()) > said
    assert child.terminate() == 3


def test_a_killed_process_is_gone(counting: Path) -> None:
    child = ChildProcess("X", ["counting"], counting)
    child.ready()
    child.check()
    child.kill()
    assert child.exit_code() == -signal.SIGKILL
    with pytest.raises(HalogError, match=r"X ended unasked \(exit code -9\)"):
        child.check()


def test_a_process_that_is_told_something_answers(tmp_path: Path) -> None:
    child = ChildProcess("X", ["json.tool", "--json-lines"], tmp_path, pipes=True)
    child.tell('{"a": 1}')
    assert child.said.readline() == b"{\n"
    child.finish(time.monotonic())
    assert not child.running


def test_a_node_that_cannot_start_tells_why(tmp_path: Path) -> None:
    node = start_node("A", tmp_path / "halog.toml", tmp_path)
    with pytest.raises(HalogError, match=r"A ended unasked .*halog\.toml.*; see .*A\.log"):
        node.ready()


def test_a_process_is_started_on_the_main_thread(tmp_path: Path) -> None:
    """The kernel would kill it with another one."""
    refused: list[str] = []

    def start() -> None:
        try:
            ChildProcess("X", ["counting"], tmp_path)
        except HalogError as error:
            refused.append(str(error))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert refused == ["child processes are started on the main thread, with which they die"]


def wait_gone(pid: int) -> None:
    until = time.monotonic() + 5
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        if state == "Z":
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} is still there")
