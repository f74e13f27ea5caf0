"""The commands of the documents are ones that halog takes: each is parsed as the command line would, and not run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest

from halog.cli.main import cli

pytestmark = pytest.mark.feature("O1")

ROOT = Path(__file__).parents[3]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/guides").glob("*.md"))]
_BLOCK = re.compile(r"^( *)```[^\n]*\n(.*?)^\1```", re.S | re.M)
_TYPED = re.compile(r"^ *(?:\$ )?((?:halog|python -m spark_jobs\.\w+) .*)$", re.M)
_SPARK = "python -m "
_SHELL = ("&", "&&", "||", ">", "<", "|", ";")


def typed(text: str) -> Iterator[tuple[int, str]]:
    """The commands of the code blocks, each with its line."""
    for block in _BLOCK.finditer(text):
        body = block[2].replace("\\\n", "  ")
        for command in _TYPED.finditer(body):
            yield text[: block.start(2) + command.start()].count("\n") + 1, command[1]


def arguments(command: str) -> list[str]:
    """The words of the first command of a line, without what the shell does for it."""
    words = shlex.split(command.removeprefix(_SPARK), comments=True)
    ends = [i for i, word in enumerate(words) if word in _SHELL]
    return words[: ends[0]] if ends else words


def parse(words: list[str]) -> None:
    """Raise what the command line would answer with if these are none of its commands, arguments and options."""
    program, *rest = words
    command: click.Command = cli if program == "halog" else import_module(program).command
    context = command.make_context(program, rest)
    while isinstance(command, click.Group) and (rest := [*context._protected_args, *context.args]):
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        command = found
        context = command.make_context(name, rest, parent=context)


def unknown(command: str) -> str:
    """What halog does not know of a command that may leave out arguments, and name values by capitals."""
    try:
        parse(arguments(command))
    except (click.exceptions.Exit, click.BadParameter):  # `--help`; a word that stands for a value
        return ""
    except click.UsageError as error:
        said = error.format_message()
        return said if isinstance(error, click.NoSuchOption) or said.startswith("No such command") else ""
    return ""


def test_a_command_that_there_is_not_is_noticed() -> None:
    for wrong in ("halog partition shw p-0", "halog status --nodes A", "halog zone quorum main --cluster", "halog get"):
        with pytest.raises(click.UsageError):
            parse(arguments(wrong))
    assert [bool(unknown(c)) for c in ("halog partition shw", "halog status --nodes", "halog get")] == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_is_one_that_halog_takes(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("halog.toml", "new.toml", "all.jsonl"):
        Path(file).write_text("")
    for line, command in typed(path.read_text()):
        try:
            parse(arguments(command))
        except click.ClickException as error:
            pytest.fail(f"{path.name}, line {line}: {command}: {error.format_message()}")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_all_commands_are_given_to_one_cluster(path: Path) -> None:
    text = path.read_text()
    named = set(re.findall(r"--cluster ([a-z]\S*)", "\n".join(command for _, command in typed(text))))
    declared = set(re.findall(r'\[cluster\]\nname = "(\w+)"', text))
    assert named | declared <= {"fleet"}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_the_text_names_no_command_or_option_that_there_is_not(path: Path) -> None:
    """A command in the text may leave out arguments, and name values by capitals."""
    text = _BLOCK.sub("", path.read_text())
    assert [(command, why) for command in re.findall(r"`(halog [a-z][^`]*)`", text) if (why := unknown(command))] == []
