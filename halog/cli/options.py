"""The options every command shares, spelled once."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

TIMEOUT_S = 10.0
"""How long a command waits for an answer: a failover takes under a second, a broker's restart a few."""

LONGEST_S = 1_000_000.0
"""A bound of eleven days: what the libraries take, in milliseconds of 31 bits."""


class Seconds(click.FloatRange):
    """A time to wait: a number within bounds, so neither infinite nor NaN, which lies between no two numbers."""

    def __init__(self) -> None:
        super().__init__(min=0.05, max=LONGEST_S)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value!r} is no number", param, ctx)
        return seconds


def config_option(command: F) -> F:
    """`--config`: the configuration file."""
    return click.option(
        "--config",
        "config_path",
        type=click.Path(path_type=Path),
        envvar="HALOG_CONFIG",
        default="halog.toml",
        show_default="./halog.toml or $HALOG_CONFIG",
        help="The cluster's configuration.",
    )(command)


def timeout_after(default_s: float, help_: str) -> Callable[[F], F]:
    """`--timeout`, with another default."""
    return click.option(
        "--timeout",
        "timeout_s",
        type=Seconds(),
        default=default_s,
        show_default=True,
        metavar="SECONDS",
        help=help_,
    )


timeout_option = timeout_after(TIMEOUT_S, "Give up (exit 3 or 6) after this long.")
"""`--timeout`: how long to wait for an answer."""


def output_option(command: F) -> F:
    """`--output`: a file, which appears when it is complete (`halog.cli.export.written_whole`)."""
    return click.option(
        "-o",
        "--output",
        "target",
        type=click.Path(path_type=Path, dir_okay=False),
        required=True,
        help="The file to write.",
    )(command)
