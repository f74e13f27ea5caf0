"""Many commands have the same options. They are spelled once, here."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from halog.errors import FieldTypeError

F = TypeVar("F", bound=Callable[..., Any])

MOST = 1_000_000_000
"""No count is larger than this: there is nowhere more, and every frame and file takes it."""
MOST_BYTES = 2**62
MOST_S = 2_000_000.0
"""The longest timeout: three weeks. More is as good as for ever; Kafka's client gives up at once beyond 2^31 - 1 ms."""


class Number(click.IntRange):
    """Takes a count. Its upper end keeps mistyped numbers out; an error names it, the help texts do not."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = click.INT.convert(value, param, ctx)
        if self.max is not None and found > self.max:
            self.fail(f"{str(value)[:40]} is more than {self.max:.0f}", param, ctx)
        return super().convert(value, param, ctx)

    def _describe_range(self) -> str:
        return f"x>={self.min}"


def number_of(least: int = 0, most: int = MOST) -> click.IntRange:
    """Return the type of a number on the command line. A mistyped number of thirty digits is a usage error, too."""
    return Number(least, most)


class Seconds(click.FloatRange):
    """Takes a time to wait for, in seconds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = click.FLOAT.convert(value, param, ctx)
        if math.isnan(found):  # a range check does not refuse NaN
            self.fail(f"{value!r} is no number of seconds", param, ctx)
        if self.max is not None and found > self.max:
            self.fail(f"{str(value)[:40]} is more than {self.max:.0f} seconds", param, ctx)
        return super().convert(value, param, ctx)

    def _describe_range(self) -> str:
        return f"x>={self.min}"


class Text(click.ParamType[str]):
    """Takes a text that can be stored. Arguments that are not UTF-8 arrive with lone surrogates, which no encoder
    takes."""

    name = "text"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail(f"{text!a} is no UTF-8", param, ctx)
        return text


class Name(Text):
    """Takes a name. An empty one is a script's variable that is not set, and does not mean everything there is. A path
    is no name: it would be looked up somewhere else."""

    name = "name"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = super().convert(value, param, ctx)
        if not _is_default(param, ctx) and (not text.strip() or text in (".", "..") or set(text) & NO_NAME):
            self.fail(f"{text!a} is no name", param, ctx)
        return text


class NodeAt(click.ParamType[tuple[str, str]]):
    """Takes PARTITION=NODE, and gives both names. If the partition may be left out, it is "" then."""

    name = "node of a partition"

    def __init__(self, *, partition_needed: bool) -> None:
        self._needed = partition_needed

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        partition, said, node = Text()(str(value), param, ctx).rpartition("=")
        if self._needed and not said:
            self.fail(f"{node!a} names no partition: say PARTITION=NODE", param, ctx)
        name = Name()
        return name(partition, param, ctx) if said else "", name(node, param, ctx)


NO_NAME = {"/", *map(chr, range(32)), chr(127)}
"""These characters stand in no name: names are parts of paths, and of lines."""


def _is_default(param: click.Parameter | None, ctx: click.Context | None) -> bool:
    given = None if param is None or ctx is None else ctx.get_parameter_source(param.name or "")
    return given is ParameterSource.DEFAULT


class Hex(click.ParamType[bytes]):
    """Takes bytes as hex digits."""

    name = "hex"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> bytes:
        if isinstance(value, bytes):
            return value
        try:
            return bytes.fromhex(str(value))
        except ValueError:
            return self.fail(f"{str(value)!a} is not hex digits, two for each byte", param, ctx)


@contextmanager
def of_arguments() -> Iterator[None]:
    """Turn a FieldTypeError of a value from the command line into a usage error."""
    try:
        yield
    except FieldTypeError as error:
        raise click.UsageError(error.message) from error


TIMEOUT_S = 10.0
"""A command waits this long for an answer: a failover takes under a second, a broker's restart a few."""


def config_option(command: F) -> F:
    """Add `--config`: the configuration file."""
    return click.option(
        "--config",
        "config_path",
        type=click.Path(path_type=Path),
        envvar="HALOG_CONFIG",
        default="halog.toml",
        show_default="./halog.toml or $HALOG_CONFIG",
        help="The cluster's configuration; - is standard input.",
    )(command)


def timeout_after(default_s: float, help_: str) -> Callable[[F], F]:
    """Return the option `--timeout` with this default."""
    return click.option(
        "--timeout",
        "timeout_s",
        type=Seconds(0.05, MOST_S),
        default=default_s,
        show_default=True,
        metavar="SECONDS",
        help=help_,
    )


timeout_option = timeout_after(TIMEOUT_S, "Give up (exit 3 or 6) after this long.")
"""This option is `--timeout`: how long to wait for an answer."""


def output_option(command: F) -> F:
    """Add `--output`: a file, which appears when it is complete (`halog.cli.shared.files.written_whole`)."""
    return click.option(
        "-o",
        "--output",
        "target",
        type=click.Path(path_type=Path, dir_okay=False),
        required=True,
        help="The file to write; - is standard output, and the summary goes to stderr.",
    )(command)


_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class Duration(click.ParamType[int]):
    """Takes a duration as `90s`, `15m`, `2h` or `1d`, and gives milliseconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"([1-9]\d{0,5})([smhd])", str(value))
        if found is None:
            self.fail(f"{value!r} is no duration; give a number and a unit, as 90s, 15m, 2h or 1d", param, ctx)
        return int(found[1]) * _UNITS[found[2]] * 1_000


for_option = click.option("--for", "for_ms", type=Duration(), default=None, help="It ends by itself after this time.")


reason_option = click.option(
    "--reason", type=Text(), default="", metavar="TEXT", help="Why; stands in the event history."
)
