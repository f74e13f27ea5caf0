"""The command line's frame: errors become one line and a code, commands are imported when called."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest

import halog
from halog import errors
from halog.cli import main as frame


def every_error(root: type[errors.HalogError]) -> list[type[errors.HalogError]]:
    """The tree, flat."""
    return [root, *(e for child in root.__subclasses__() for e in every_error(child))]


@click.command()
@click.pass_obj
def fail(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("kind", every_error(errors.HalogError))
def test_each_error_is_one_line_and_its_exit_code(
    kind: type[errors.HalogError], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(frame.COMMANDS, "fail", (f"{__name__}:fail", "Fail."))
    assert frame.main(["fail"], kind("first\nsecond")) == kind.exit_code
    assert capsys.readouterr().err == "halog: first second\n"


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (KeyboardInterrupt(), 130, "halog: interrupted\n"),
        (
            click.UsageError("what?"),
            2,
            "Usage: halog fail [OPTIONS]\nTry 'halog fail --help' for help.\n\nError: what?\n",
        ),
        (
            ZeroDivisionError("x"),
            1,
            "halog: ZeroDivisionError: x (this is a bug in halog; HALOG_DEBUG=1 shows where)\n",
        ),
    ],
)
def test_other_endings(
    error: BaseException, code: int, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(frame.COMMANDS, "fail", (f"{__name__}:fail", "Fail."))
    monkeypatch.delenv("HALOG_DEBUG", raising=False)
    assert frame.main(["fail"], error) == code
    assert capsys.readouterr().err.lstrip() == line


@pytest.mark.parametrize("name", list(frame.COMMANDS))
def test_every_registered_command_exists_and_has_an_example(name: str) -> None:
    module, _, attribute = frame.COMMANDS[name][0].partition(":")
    command = getattr(import_module(module), attribute)
    assert isinstance(command, click.Command)
    assert command.help
    commands = list(command.commands.values()) if isinstance(command, click.Group) else [command]
    assert any("Example" in (c.help or "") for c in [command, *commands])


@pytest.mark.parametrize("arguments", [["--help"], ["version", "--help"], ["up", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    """`halog up` is measured from the start of the command."""
    code = (
        "import sys; from halog.cli.main import main; main(sys.argv[1:]);"
        "heavy = {'confluent_kafka', 'kazoo', 'rich', 'pyspark', 'rocksdict', 'fastavro', 'halog.core'};"
        "sys.exit(','.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: halog" in done.stdout


def in_a_shell(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.feature("O1")
@pytest.mark.parametrize("ending", ["> /dev/full", "--format json > /dev/full"])
def test_a_disk_that_is_full_is_no_bug_of_the_command(ending: str) -> None:
    ran = in_a_shell(f"{sys.executable} -m halog version {ending}")
    said = "halog: what the command says cannot be written: No space left on device\n"
    assert (ran.returncode, ran.stderr) == (1, said)


@pytest.mark.feature("O1")
@pytest.mark.parametrize("command", ["status --config /nope.toml", "nosuch", "status --nosuch", "version beside"])
def test_an_error_that_cannot_be_told_keeps_its_exit_code(command: str) -> None:
    """The configuration's, and those of the command line itself."""
    assert in_a_shell(f"{sys.executable} -m halog {command} 2> /dev/full").returncode == 2


@pytest.mark.feature("O1")
@pytest.mark.parametrize("command", ["version", "version --format json", "--help", "status --help", "--version"])
def test_a_reader_that_has_seen_enough_is_no_failure(command: str) -> None:
    ran = in_a_shell(f"{sys.executable} -m halog {command} | true; exit ${{PIPESTATUS[0]}}")
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.feature("O1")
@pytest.mark.parametrize("ending", ["2> /dev/full", "2> >(true)"])
def test_what_is_said_beside_stops_no_command_where_nobody_takes_it(ending: str) -> None:
    code = "import time; from halog.cli.shared.messages import say; time.sleep(0.2); say(1); say(2); print(3)"
    assert in_a_shell(f'{sys.executable} -c "{code}" {ending}').stdout == "3\n"


NOTHING = """
import sys
from halog.cli import main as frame
from halog.cli.shared import output
from halog.errors import NothingToDoError
def nothing(**more):
    output._want(None, None, "json")
    raise NothingToDoError("no plan")
frame.cli.main = nothing
frame.sys.exit(frame.main())
"""


@pytest.mark.feature("O1")
@pytest.mark.parametrize(
    ("ending", "code", "said"),
    [
        ("> /dev/full", 1, "halog: what the command says cannot be written: No space left on device\n"),
        ("| true; exit ${PIPESTATUS[0]}", 0, ""),
    ],
)
def test_that_there_is_nothing_to_do_where_stdout_takes_nothing_ends_as_any_other_output(
    ending: str, code: int, said: str
) -> None:
    ran = in_a_shell(f"{sys.executable} -c '{NOTHING}' {ending}")
    assert (ran.returncode, ran.stderr) == (code, said)


@pytest.mark.feature("O1")
def test_files_that_were_closed_are_there_for_the_processes_that_are_started_too(tmp_path: Path) -> None:
    code = (
        "import os, pathlib; from halog.cli import main; main._open_standard_files();"
        'pathlib.Path("found").write_text(str([os.get_inheritable(n) for n in range(3)]))'
    )
    in_a_shell(f"cd {tmp_path}; exec {sys.executable} -c '{code}' <&- >&- 2>&-")
    assert (tmp_path / "found").read_text() == "[True, True, True]"


@pytest.mark.feature("O1")
@pytest.mark.parametrize("command", [["-m", "halog"], ["-m", "halog.cli.main"]])
def test_the_version_and_the_module_that_is_the_command(command: list[str]) -> None:
    ran = subprocess.run([sys.executable, *command, "--version"], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"halog {halog.__version__}\n", "")


@pytest.mark.feature("O1")
def test_the_longest_timeout_is_one_that_the_client_of_kafka_waits_for() -> None:
    """Beyond 2^31 - 1 ms it fails at once, as if no broker were there."""
    code = (
        "from confluent_kafka.admin import AdminClient; from halog.cli.shared.options import MOST_S;"
        "print('asked', flush=True);"
        "AdminClient({'bootstrap.servers': '127.0.0.1:1', 'log_level': 0}).list_topics(timeout=MOST_S)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as asking:
        try:
            assert asking.stdout is not None
            assert asking.stdout.readline() == b"asked\n"
            with pytest.raises(subprocess.TimeoutExpired):
                asking.wait(2)
        finally:
            asking.kill()
