"""This module draws a run on stderr: live on a terminal, else a line per event. It never writes to stdout.

rich's own thread redraws the live picture from the plain values of `scene`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from halog.demo.scene import NodeScene, Scene

FRAMES_PER_S = 4
"""Enough to look alive; a frame costs 5 ms of a processor the cluster needs."""
STORY_LINES = 9
PLAIN_S = 5.0
"""Seconds between two lines of progress without a terminal."""

STYLE = {"up": "green", "killed": "bold red", "stopped": "bold yellow", "starting": "cyan", "silent": "red"}
NODE_COLUMNS: Mapping[str, Callable[[NodeScene], str]] = {
    "pid": lambda n: str(n.pid),
    "active for": lambda n: str(n.active),
    "replica of": lambda n: str(n.replicas),
    "lag (records)": lambda n: f"{n.lag:,}",
}


class LiveView:
    """A `LiveView` is a with-block during which the scene is shown."""

    def __init__(
        self,
        scene: Scene,
        console: Console | None = None,
        *,
        picture: Callable[[], RenderableType] | None = None,
        line: Callable[[], str] | None = None,
    ) -> None:
        self.scene = scene
        self._picture = picture or (lambda: draw(scene))
        self._line = line or (lambda: progress_line(scene))
        self.console = console or Console(stderr=True)
        self._told = 0
        self._closing = threading.Event()
        self._plain = threading.Thread(target=self._print_on, daemon=True)
        self._live: Live | None = None
        if self.console.is_terminal:
            self._live = Live(
                get_renderable=self._picture,
                console=self.console,
                refresh_per_second=FRAMES_PER_S,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        else:
            self._plain.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._closing.set()
        if self._live is not None:
            self._live.stop()
        else:
            self._plain.join()
        self._print_story()

    def _print_on(self) -> None:
        waited = 0.0
        while not self._closing.wait(0.2):
            self._print_story()
            waited += 0.2
            if waited >= PLAIN_S:
                waited = 0.0
                self.console.print(Text(self._line()), soft_wrap=True)

    def _print_story(self) -> None:
        new = self.scene.story[self._told :]
        self._told += len(new)
        for at, text in new:
            self.console.print(Text(f"{at:6.1f} s  {text}"), soft_wrap=True)


def progress_line(scene: Scene) -> str:
    """Return a line that says where the run is."""
    lag = max((n.lag for n in scene.nodes.values()), default=0)
    counts = f"{scene.done:,} of {scene.rows:,} rows, {scene.rate.value:,.0f} transactions/s, lag {lag:,}"
    return f"{scene.seconds:6.1f} s  … {scene.phase}: {counts}"


def draw(scene: Scene) -> RenderableType:
    """Return the live picture."""
    progress = ProgressBar(total=scene.rows, completed=scene.done)
    return Group(_headline(scene), progress, nodes_table(scene, NODE_COLUMNS), story_of(scene))


def story_of(scene: Scene) -> Text:
    """Return the last lines of the story."""
    return Text("\n".join(f"{at:6.1f} s  {text}" for at, text in scene.story[-STORY_LINES:]), style="dim")


def _headline(scene: Scene) -> Text:
    line = Text(f"{scene.seconds:6.1f} s  {scene.phase}", style="bold")
    line.append(
        f"   {scene.done:,} of {scene.rows:,} flights   {scene.rate.value:,.0f} transactions/s   "
        f"{scene.acknowledged:,} acknowledged   {scene.repeated:,} conflicts run again",
        style="not bold",
    )
    return line


def nodes_table(scene: Scene, columns: Mapping[str, Callable[[NodeScene], str]]) -> Table:
    """Return a table of the nodes: name, state, and these columns."""
    table = Table(box=None, padding=(0, 2))
    for column in ("node", "state", *columns):
        table.add_column(column, justify="left" if column in ("node", "state") else "right")
    for name, n in scene.nodes.items():
        table.add_row(name, Text(n.state, style=STYLE.get(n.state, "")), *(of(n) for of in columns.values()))
    return table
