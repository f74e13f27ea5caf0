"""These helpers are for what is no table and no document: facts, lines of a stream, progress on stderr."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from halog.cli.shared.output import printable

if TYPE_CHECKING:
    from rich.progress import Progress


def echo_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Write names and values, one pair a line, the values under each other."""
    known = [(name, "-" if value is None else printable(str(value))) for name, value in facts]
    width = max((len(name) for name, _ in known), default=0)
    for name, value in known:
        click.echo(f"{name:<{width}}  {value}")


def echo_line(document: Any) -> None:
    """Write one document of a stream as a compact line; text stays as it is."""
    click.echo(json.dumps(document, ensure_ascii=False, separators=(",", ":")))


def say(text: str) -> None:
    """Write a message to stderr, so that stdout stays the result. If stderr takes nothing, the command goes on without
    it."""
    with suppress(OSError):
        click.echo(text, err=True)


def progress() -> Progress:
    """Return a progress bar for stderr. It disappears when it is done, and is not shown where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
