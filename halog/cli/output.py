"""How commands speak: a table for people or one JSON document for programs, on stdout; talk goes to stderr."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])


def format_option(command: _F) -> _F:
    """`--format table|json`, passed to the command as `format_`."""
    return click.option(
        "--format",
        "format_",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="A table for people, or one JSON document.",
    )(command)


def emit_json(document: Any) -> None:
    """One document on one line."""
    click.echo(json.dumps(document, default=str))


def emit_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns as wide as their widest cell, never cut off: a table must survive `| grep`."""
    cells = [[str(c) for c in columns], *[["" if c is None else str(c) for c in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    for row in cells:
        click.echo("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip())


def emit(format_: str, document: Any, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """The document or the table, as asked for."""
    if format_ == "json":
        emit_json(document)
    else:
        emit_table(columns, rows)
