"""A command's result is written to stdout: a table for people, or one JSON document for programs. Messages go to
stderr."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])


_wanted = "table"


def _want(ctx: click.Context, option: click.Parameter, format_: str) -> str:
    global _wanted
    _wanted = format_
    return format_


def emit_nothing() -> None:
    """Write null for a program that reads JSON, where there is nothing of what was asked for."""
    if _wanted == "json":
        emit_json(None)


def format_option(command: _F) -> _F:
    """Add `--format table|json`, passed to the command as `format_`."""
    return click.option(
        "--format",
        "format_",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        callback=_want,
        help="A table for people, or one JSON document.",
    )(command)


def emit_json(document: Any, *, aside: bool = False) -> None:
    """Write one document on one line. With `aside` it goes to stderr, because stdout has something else."""
    click.echo(json.dumps(document, default=str), err=aside)


def emit_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, aside: bool = False) -> None:
    """Write a table."""
    for line in table_lines(columns, rows):
        click.echo(line, err=aside)


def table_lines(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a table, the head first. Columns are as wide as their widest cell and are never cut off: a
    table must survive `| grep`."""
    cells = [[str(c) for c in columns], *[["" if c is None else printable(str(c)) for c in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    for row in cells:
        yield "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()


def printable(text: str) -> str:
    """Return the text on one line. What would end the line or move a terminal's cursor stands as Python writes it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def emit(
    format_: str, document: Any, columns: Sequence[str], rows: Iterable[Sequence[object]], *, aside: bool = False
) -> None:
    """Write the document or the table, as asked for."""
    if format_ == "json":
        emit_json(document, aside=aside)
    else:
        emit_table(columns, rows, aside=aside)
