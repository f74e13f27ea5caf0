"""Forked processes (`tests.forked`) are what executed ones are: else tests of nodes would be about something else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.integration.cluster.processes import Process, wait

pytestmark = pytest.mark.timeout(300)

SHOWS = """
import faulthandler, gc, json, os, random, signal, sys, threading, uuid

def caught(name):
    return next(line.split()[1] for line in open("/proc/self/status") if line.startswith(name))

print(json.dumps({
    "same": [sys.argv, __name__, __file__, os.getcwd(), sys.flags, sys.warnoptions, os.umask(0o22), dict(os.environ),
             list(dict.fromkeys(sys.path)), sorted(os.listdir("/proc/self/fd")), os.readlink("/proc/self/fd/0"),
             [[f.encoding, f.errors, f.line_buffering, f.write_through] for f in (sys.stdin, sys.stdout, sys.stderr)],
             [caught(name) for name in ("SigBlk", "SigIgn", "SigCgt")], os.getsid(0) == os.getpid(),
             threading.active_count(), len(os.listdir("/proc/self/task")), sys.modules["__main__"].__file__,
             faulthandler.is_enabled(), gc.isenabled(), gc.get_threshold(), sys.getswitchinterval()],
    "other": [random.random(), str(uuid.uuid4()), hash("a"), os.getpid()],
}))
sys.exit(int(sys.argv[1]))
"""

WAITS = "import os, time\nprint(os.getppid(), flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "shows.py").write_text(SHOWS)
    (tmp_path / "waits.py").write_text(WAITS)
    return tmp_path


def shown(directory: Path, **more: str) -> dict[str, Any]:
    ran = forked.run(["shows", "7"], cwd=directory, env={**os.environ, **more}, timeout=60)
    assert (ran.returncode, ran.stderr) == (7, "")
    return dict(json.loads(ran.stdout))


def test_a_forked_process_has_what_an_executed_one_has(directory: Path) -> None:
    env = {"PYTHONPATH": f"{forked.ROOT}:{directory}", "PYTHONFAULTHANDLER": "1", "HALOG_X": "1"}
    argv = [sys.executable, "-m", "halog.testing.child", str(os.getpid()), "shows", "7"]
    executed = subprocess.run(
        argv,
        cwd=directory,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
        start_new_session=True,
    )
    assert executed.returncode == 7
    assert shown(directory, **env)["same"] == json.loads(executed.stdout)["same"]


def test_forked_processes_have_no_chance_in_common(directory: Path) -> None:
    """Of two that follow each other not even the hash seed is the same."""
    before, after = shown(directory)["other"], shown(directory)["other"]
    assert all(a != b for a, b in zip(before, after, strict=True))


def test_variables_that_are_obeyed_at_the_start_are_obeyed(directory: Path) -> None:
    assert shown(directory, PYTHONOPTIMIZE="1")["same"][4] != shown(directory)["same"][4]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
def test_a_signal_ends_a_forked_process(directory: Path, number: signal.Signals) -> None:
    process = Process("waits", directory, ["waits"])
    process.ready()
    process.freeze()
    process.signal(number)
    process.signal(signal.SIGCONT)
    assert process.exit_code() == -number
    assert not Path(f"/proc/{process.pid}").exists()


def test_forked_processes_die_with_whoever_had_them_started(directory: Path) -> None:
    """Their server ends with pytest, be that killed, and they with their server."""
    code = (
        "import os, time; from pathlib import Path; from tests.integration.cluster.processes import Process;"
        "process = Process('waits', Path(os.sys.argv[1]), ['waits']); process.ready();"
        "print(process.pid, *process.lines(), flush=True); time.sleep(600)"
    )
    argv = [sys.executable, "-c", code, str(directory)]
    with subprocess.Popen(argv, cwd=forked.ROOT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        started = [int(pid) for pid in owner.stdout.readline().split()]
        assert len(started) == 2
        owner.kill()
    wait(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started), "the process and its server have ended")
