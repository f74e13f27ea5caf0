"""Children of the demo die with it, and are ended by it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from halog.demo import processes
from halog.demo.staging import prepared
from halog.embedded.archives import child_environment
from halog.errors import SiteError

SLEEPER = "import sys; from halog.demo.child import die_with; die_with({parent}); print('ready', flush=True); {then}"
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


def test_a_child_that_fails_leaves_its_last_words(tmp_path: Path) -> None:
    child = processes.Child("X", ["halog.no_such_module"], tmp_path)
    child.reap()
    assert not child.alive
    assert "no_such_module" in child.last_words()


def test_stop_all_ends_a_child_that_is_stopped(tmp_path: Path) -> None:
    child = processes.Child("X", ["http.server", "0"], tmp_path, pipes=True)
    child.pause()
    processes.stop_all([child], 5.0)
    assert not child.alive


def test_a_foreign_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(SiteError, match=r"thesis\.tex"):
        prepared(tmp_path)


def test_a_directory_of_an_earlier_run_is_taken(tmp_path: Path) -> None:
    for name in ("site", "run-20260101-120000-ab12"):
        (tmp_path / name).mkdir()
    assert prepared(tmp_path) == tmp_path


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
