"""This module draws a split: both sites side by side, and the line between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from halog.demo.scene import NodeScene
from halog.demo.split.scene import CUT, SplitScene
from halog.demo.split.steps import EAST, WEST
from halog.demo.view import nodes_table, story_of

NODE_COLUMNS: Mapping[str, Callable[[NodeScene], str]] = {"pid": lambda n: str(n.pid), "lag": lambda n: f"{n.lag:,}"}


def progress_line(scene: SplitScene) -> str:
    """Return a line that says where the run is, for output that is no terminal."""
    sites = ", ".join(
        f"{name} serves {scene.serves[name]} and has {site.acknowledged:,} acknowledged"
        for name, site in scene.sites.items()
    )
    return f"{scene.seconds:6.1f} s  … {scene.phase}: line {scene.line}, {sites}"


def draw(scene: SplitScene) -> RenderableType:
    """Return the live picture."""
    grid = Table.grid(padding=(0, 1))
    for _ in range(3):
        grid.add_column(vertical="middle")
    grid.add_row(_site(scene, WEST), _line(scene), _site(scene, EAST))
    return Group(Text(f"{scene.seconds:6.1f} s  {scene.phase}", style="bold"), grid, story_of(scene))


def _line(scene: SplitScene) -> Text:
    return Text("──╳ ╳──\n  cut", style="bold red") if scene.line == CUT else Text("───────\n open", style="green")


def _site(scene: SplitScene, name: str) -> Panel:
    site = scene.sites[name]
    told = f"{site.acknowledged:,} acknowledged   {site.rate.value:,.0f} transactions/s"
    bar = ProgressBar(total=max(1, site.rows), completed=site.done, width=44)
    serves = f"serves {scene.serves[name]} partitions" if scene.serves[name] else "mirrors"
    return Panel(Group(Text(told), bar, nodes_table(site, NODE_COLUMNS)), title=f"{name}: {serves}", width=50)
