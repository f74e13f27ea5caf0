"""Help texts: every command has examples, and every example is a command line that parses."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from halog.cli.main import cli


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Every command by its words."""
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        words = (*path, name)
        yield " ".join(words), command
        if isinstance(command, click.Group):
            yield from commands(command, words)


ALL = dict(commands(cli))


def examples(command: click.Command) -> list[str]:
    """The example command lines of a help text; what stands behind three spaces is a remark."""
    lines = [line.strip() for line in (command.help or "").splitlines()]
    found = [line for line in lines if line.startswith("halog ") and not line.startswith("halog keeps")]
    return [re.split(r"\s{3,}|\s*\|\|", line)[0] for line in found]


@pytest.mark.feature("O1")
@pytest.mark.parametrize("name", ALL)
def test_every_help_text_has_an_example_that_parses(name: str) -> None:
    """`--help` shows an example of this very command, and click accepts it."""
    found = examples(ALL[name])
    assert any(line.startswith(f"halog {name}") for line in found), f"halog {name} has no example"
    for line in found:
        parse(cli, shlex.split(line)[1:])


@pytest.mark.feature("O1")
def test_every_command_writes_a_document_for_programs() -> None:
    """But for the one whose text is for programs as it is."""
    ends = {n: c for n, c in ALL.items() if not isinstance(c, click.Group) or c.invoke_without_command}
    without = {n for n, c in ends.items() if not any("--format" in p.opts for p in c.params)}
    assert without == {"site metrics"}


def parse(group: click.Command, words: list[str], parent: click.Context | None = None) -> None:
    """As the command line would, but without running it."""
    ctx = group.make_context("halog", list(words), parent=parent)
    if isinstance(group, click.Group):
        rest = [*ctx._protected_args, *ctx.args]
        if group.invoke_without_command and not rest:
            return
        name, command, left = group.resolve_command(ctx, rest)
        assert command is not None, name
        parse(command, left, ctx)


DOCS = Path(__file__).parents[3] / "docs"
GUIDE = DOCS / "guides" / "operations.md"
SHOWN = [
    (page.name, line)
    for page in sorted(DOCS.rglob("*.md"))
    for line in re.findall(r"^(?:\$ | {4})(halog [^#|>&\n]+)", page.read_text(), re.MULTILINE)
]


@pytest.mark.parametrize(("page", "line"), dict.fromkeys(SHOWN))
def test_every_command_of_the_guides_parses(page: str, line: str) -> None:
    """No page shows a command, or an option, that does not exist."""
    parse(cli, shlex.split(line)[1:])


@pytest.mark.parametrize("page", ["operations.md", "sites.md", "placement.md", "migration.md", "spark.md", "zones.md"])
def test_pages_that_show_commands_are_looked_at(page: str) -> None:
    assert any(name == page for name, _ in SHOWN)


def test_the_guide_covers_every_command() -> None:
    """Each command of the operator's groups stands in the guide."""
    text = GUIDE.read_text()
    missing = [n for n, c in ALL.items() if not isinstance(c, click.Group) and f"$ halog {n}" not in text]
    assert missing == []


@pytest.mark.parametrize("name", ALL)
def test_every_option_says_what_it_does(name: str) -> None:
    """An option without a help text is a riddle."""
    for option in ALL[name].params:
        if isinstance(option, click.Option):
            assert option.help or option.hidden, f"halog {name} {option.opts}"


@pytest.mark.feature("O1")
@pytest.mark.parametrize("name", ALL)
def test_no_help_text_names_an_end_that_is_nobodys_limit(name: str) -> None:
    """It only keeps mistyped numbers out."""
    shown = ALL[name].get_help(click.Context(ALL[name]))
    riddles = [float(end) for end in re.findall(r"<=x?<?=?([\d.]+)", shown) if float(end) >= 1_000_000]
    assert riddles == [], shown


@pytest.mark.feature("O1")
def test_an_error_shows_where_it_came_from_only_when_asked(
    halog: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One line without --debug, the traceback and the same line with it."""
    monkeypatch.setenv("HALOG_DEBUG", "")
    ran = halog("status", "--config", tmp_path / "none.toml")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    debugged = halog("--debug", "status", "--config", tmp_path / "none.toml")
    assert debugged.code == 2
    assert "Traceback" in debugged.err
    assert debugged.err.endswith(ran.err)
