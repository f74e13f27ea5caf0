"""Ctrl-C ends a command quietly, also before and after it is at work."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

AT_AN_IMPORT = """
import os, runpy, sys

module, number = sys.argv.pop(1), int(sys.argv.pop(1))

class Look:
    def find_spec(self, name, *more):
        if name == module:
            os.kill(os.getpid(), number)

sys.meta_path.insert(0, Look())
runpy.run_module("halog", run_name="__main__", alter_sys=True)
"""
AT_THE_END = """
import atexit, os, runpy, signal
atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))
runpy.run_module("halog", run_name="__main__", alter_sys=True)
"""
FIRST = ["halog.signals", "threading", "halog.cli.main", "click", "click.core", "inspect", "halog.errors", "gettext"]
"""Imported before the command is at work."""
THEN = ["halog.cli.cluster.version", "importlib.metadata", "halog.embedded"]


def run(program: str, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.feature("O1")
@pytest.mark.parametrize("module", FIRST)
def test_ctrl_c_while_python_imports_is_no_traceback(module: str) -> None:
    ran = run(AT_AN_IMPORT, module, int(signal.SIGINT), "version")
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


@pytest.mark.feature("O1")
@pytest.mark.parametrize("module", THEN)
def test_ctrl_c_while_a_command_imports_is_told_in_a_line(module: str) -> None:
    ran = run(AT_AN_IMPORT, module, int(signal.SIGINT), "version")
    assert (ran.returncode, ran.stdout, ran.stderr.strip()) == (130, "", "halog: interrupted")


@pytest.mark.feature("O1")
@pytest.mark.parametrize("module", ["halog.signals", "click", "halog.cli.cluster.version"])
def test_sigterm_while_python_imports_ends_it_as_it_ends_any_process(module: str) -> None:
    ran = run(AT_AN_IMPORT, module, int(signal.SIGTERM), "version")
    assert (ran.returncode, ran.stdout, ran.stderr) == (-signal.SIGTERM, "", "")


@pytest.mark.feature("O1")
def test_ctrl_c_when_a_command_has_ended_is_no_traceback() -> None:
    ran = run(AT_THE_END, "version")
    assert (ran.returncode, ran.stderr) == (130, "")
    assert "\nhalog " in ran.stdout


@pytest.mark.feature("O1")
def test_who_ignores_ctrl_c_goes_on() -> None:
    """As a shell does for what it runs in the background."""
    ignoring = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN){AT_AN_IMPORT}"
    ran = run(ignoring, "click", int(signal.SIGINT), "version")
    assert (ran.returncode, ran.stderr) == (0, "")


AS_ANOTHER = """
import os, runpy, signal
from halog.cli import main as frame

def work(**_):
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt as error:
        raise RuntimeError("Error calling __set_name__") from error

frame.cli.main = work
runpy.run_module("halog", run_name="__main__", alter_sys=True)
"""


@pytest.mark.feature("O1")
def test_ctrl_c_that_comes_out_as_another_error_is_no_bug() -> None:
    """As Python makes it in the body of a class."""
    ran = run(AS_ANOTHER, "version")
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "halog: interrupted\n")
