"""`halog demo` shows halog's main job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from halog.cli.shared.output import emit_json, format_option

if TYPE_CHECKING:
    from halog.demo.options import Options
    from halog.demo.result import Result
    from halog.demo.scene import Scene

MAX_ROWS = 336_776
DEFAULT_ROWS = 20_000  # three weeks
DEFAULT_PARTITIONS = 12
SPLIT_ROWS = 2_000  # each site's client makes some thousand calls with them
SPLIT_PARTITIONS = 6
MIN_ROWS = 100  # with fewer rows there is no middle for a fault to happen in


@click.command()
@click.option(
    "--rows",
    type=click.IntRange(MIN_ROWS, MAX_ROWS),
    help=f"How many flights, the first ones of the year.  [default: {DEFAULT_ROWS}; of a split {SPLIT_ROWS}]",
)
@click.option("--all", "all_rows", is_flag=True, help=f"All {MAX_ROWS:,} flights.")
@click.option(
    "--partitions",
    type=click.IntRange(3, 256),
    help=f"Of all nodes together.  [default: {DEFAULT_PARTITIONS}; of a split {SPLIT_PARTITIONS}]",
)
@click.option("--split-brain", is_flag=True, help="Two sites lose each other, both go on, and become one again.")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Keep data, logs and journals there.  [default: a temporary directory, removed at the end]",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Decides at which flights the nodes are hurt.")
@click.option("--sabotage", type=click.Choice(["", "drop-commit"]), default="", hidden=True)
@format_option
def demo(
    rows: int | None,
    all_rows: bool,
    partitions: int | None,
    split_brain: bool,
    data_dir: Path | None,
    seed: int,
    sabotage: str,
    format_: str,
) -> int:
    """Replay real flights while nodes join, leave, are killed and stopped, and check that nothing is lost.

    Starts a Kafka, a ZooKeeper and three nodes; a client process replays the flights that left New York in 2013.
    Meanwhile a fourth node joins and gets its share, nearly all objects move to other partitions, one node is drained
    and leaves, one is killed and started again, and one is stopped and woken. At the end every object, where it is,
    every copy and every acknowledged transaction is checked. Exit code 0 only if all of it holds.

    With --split-brain two sites, each with a Kafka, a ZooKeeper and two nodes, lose each other in the middle of
    traffic. Both go on, with the same flights and totals. Then the line is healed, the merge is previewed, done and
    undone, and every write that either site acknowledged must stand, be superseded by its own site, be in the report
    of conflicts, or be contained in a total.

    \b
    Examples:
      halog demo
      halog demo --rows 6000
      halog demo --all --format json
      halog demo --split-brain
      halog demo --split-brain --rows 400 --format json
    """
    from halog.demo.options import Options

    count = MAX_ROWS if all_rows else rows
    if split_brain:
        options = Options(count or SPLIT_ROWS, partitions or SPLIT_PARTITIONS, data_dir, seed, sabotage)
        return _split(options, format_)
    options = Options(count or DEFAULT_ROWS, partitions or DEFAULT_PARTITIONS, data_dir, seed, sabotage)
    result, scene = _play(options)
    if format_ == "json":
        emit_json(result.to_dict())
    else:
        from halog.demo.report import report

        report(result, scene)
    return 0 if result.ok else 1


def _play(options: Options) -> tuple[Result, Scene]:
    from halog.demo.run import play
    from halog.demo.scene import Scene
    from halog.demo.view import LiveView
    from halog.embedded.progress import LogProgress

    _prepare()
    scene = Scene(options.rows)
    with LiveView(scene):
        return play(options, scene, LogProgress()), scene


def _split(options: Options, format_: str) -> int:
    from halog.demo.split.picture import draw, progress_line
    from halog.demo.split.run import play
    from halog.demo.split.scene import SplitScene
    from halog.demo.view import LiveView
    from halog.embedded.progress import LogProgress

    _prepare()
    scene = SplitScene(options.rows)
    with LiveView(scene, picture=lambda: draw(scene), line=lambda: progress_line(scene)):
        result = play(options, scene, LogProgress())
    if format_ == "json":
        emit_json(result.to_dict())
    else:
        from halog.demo.split.report import report

        report(result, scene)
    return 0 if result.ok else 1


def _prepare() -> None:
    from halog.demo import dataset
    from halog.demo.processes import listen
    from halog.embedded.progress import BarProgress

    listen()  # at SIGTERM it ends its children, as at Ctrl-C
    with BarProgress() as progress:  # before the live picture begins: two of them cannot share a terminal
        dataset.ensure(progress)
