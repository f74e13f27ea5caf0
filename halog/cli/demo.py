"""`halog demo`: the main job, visible."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from halog.cli.output import emit_json, format_option

if TYPE_CHECKING:
    from halog.demo.options import Options
    from halog.demo.result import Result
    from halog.demo.scene import Scene

MAX_ROWS = 336_776
DEFAULT_ROWS = 20_000  # three weeks
MIN_ROWS = 100  # below, a fault has no middle to happen in


@click.command()
@click.option(
    "--rows",
    type=click.IntRange(MIN_ROWS, MAX_ROWS),
    default=DEFAULT_ROWS,
    show_default=True,
    help="How many flights, the first ones of the year.",
)
@click.option("--all", "all_rows", is_flag=True, help=f"All {MAX_ROWS:,} flights.")
@click.option("--partitions", type=click.IntRange(3, 256), default=12, show_default=True, help="Of all nodes together.")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Keep data, logs and journals there.  [default: a temporary directory, removed at the end]",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Decides at which flights the nodes are hurt.")
@click.option("--sabotage", type=click.Choice(["", "drop-commit"]), default="", hidden=True)
@format_option
def demo(
    rows: int, all_rows: bool, partitions: int, data_dir: Path | None, seed: int, sabotage: str, format_: str
) -> int:
    """Replay real flights while nodes join, leave, are killed and stopped, and check that nothing is lost.

    Starts a Kafka, a ZooKeeper and three nodes; a client process replays the flights that left New York in 2013.
    Meanwhile a fourth node joins and gets its share, nearly all objects move to other partitions, one node is drained
    and leaves, one is killed and started again, and one is stopped and woken. At the end every object, where it is,
    every copy and every acknowledged transaction is checked. Exit code 0 only if all of it holds.

    \b
    Examples:
      halog demo
      halog demo --rows 6000
      halog demo --all --format json
    """
    from halog.demo.options import Options

    options = Options(MAX_ROWS if all_rows else rows, partitions, data_dir, seed, sabotage)
    result, scene = _play(options)
    if format_ == "json":
        emit_json(result.to_dict())
    else:
        from halog.demo.report import report

        report(result, scene)
    return 0 if result.ok else 1


def _play(options: Options) -> tuple[Result, Scene]:
    import signal

    from halog.demo import dataset
    from halog.demo.run import play
    from halog.demo.scene import Scene
    from halog.demo.view import View
    from halog.embedded.progress import BarProgress, LogProgress

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # told to go, it ends its children like on Ctrl-C
    with BarProgress() as progress:  # before the live picture begins: two of them cannot share a terminal
        dataset.ensure(progress)
    scene = Scene(options.rows)
    with View(scene):
        return play(options, scene, LogProgress()), scene
