"""This module has what driver programs share: where Spark runs, a directory while a command runs, progress, exit
codes."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from halog.errors import HalogError
from spark_jobs.micro_batches import told_by_executor

LOCAL: Final = "local[*]"

spark_master_option: Final = click.option(
    "--spark-master",
    show_default=f"{LOCAL}; under spark-submit, its own",
    metavar="URL",
    help="The Spark cluster that the job runs on, as spark://master:7077.",
)
format_option: Final = click.option(
    "--format",
    "format_",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="A table for people, or one JSON document.",
)


def default_master() -> str:
    """Return this machine, or under spark-submit what spark-submit was told."""
    return "" if "PYSPARK_GATEWAY_PORT" in os.environ else LOCAL


@contextlib.contextmanager
def session(master: str, name: str, modules: Iterable[str]) -> Iterator[Any]:
    """Hold a Spark session while a command runs."""
    from spark_jobs.spark import session as made

    spark = made(master, name, modules=modules)
    try:
        yield spark
    finally:
        spark.stop()


@contextlib.contextmanager
def checkpoints(given: Path | None, job: str) -> Iterator[Path]:
    """Yield the directory where a job notes how far it is: the given one, or a temporary one while a command runs."""
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix=f"halog-{job}-") as scratch:
        yield Path(scratch)


@contextlib.contextmanager
def told() -> Iterator[Callable[[str], None]]:
    """Show progress on stderr, where that is a terminal; the function it yields takes the text to show."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task("starting Spark")
        yield lambda text: shown.update(task, description=text)


def stdout() -> Console:
    """Return a console for tables: as wide as the terminal, or wide enough."""
    return Console(width=None if sys.stdout.isatty() else 200)


def run(command: click.Command, name: str, args: Sequence[str] | None) -> int:
    """Run a command line, and return the exit code: of an error of halog's also where an executor raised it and Spark
    tells it in its own."""
    try:
        command.main(args=None if args is None else list(args), prog_name=name, standalone_mode=False)
        return 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("halog: interrupted", err=True)
        return 130
    except Exception as raised:
        ours = raised if isinstance(raised, HalogError) else told_by_executor(raised)
        if ours is None:
            raise
        if os.environ.get("HALOG_DEBUG"):
            traceback.print_exc()
        click.echo(f"halog: {' '.join(ours.message.split())}", err=True)
        return ours.exit_code
