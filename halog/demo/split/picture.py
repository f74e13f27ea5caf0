"""Draws a split: both sites side by side, and the line between them."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from halog.demo.scene import Scene
from halog.demo.split.scene import CUT, SplitScene
from halog.demo.split.steps import EAST, WEST
from halog.demo.view import STORY_LINES, STYLE


def progress_line(scene: SplitScene) -> str:
    """Where the run is, for who has no terminal."""
    sites = ", ".join(
        f"{name} serves {scene.serves[name]} and has {site.acknowledged:,} acknowledged"
        for name, site in scene.sites.items()
    )
    return f"{scene.seconds:6.1f} s  … {scene.phase}: line {scene.line}, {sites}"


def draw(scene: SplitScene) -> RenderableType:
    """The live picture."""
    grid = Table.grid(padding=(0, 1))
    for _ in range(3):
        grid.add_column(vertical="middle")
    grid.add_row(_site(scene, WEST), _line(scene), _site(scene, EAST))
    story = Text("\n".join(f"{at:6.1f} s  {text}" for at, text in scene.story[-STORY_LINES:]), style="dim")
    return Group(Text(f"{scene.seconds:6.1f} s  {scene.phase}", style="bold"), grid, story)


def _line(scene: SplitScene) -> Text:
    return Text("──╳ ╳──\n  cut", style="bold red") if scene.line == CUT else Text("───────\n open", style="green")


def _site(scene: SplitScene, name: str) -> Panel:
    site = scene.sites[name]
    told = f"{site.acknowledged:,} acknowledged   {site.rate.value:,.0f} transactions/s"
    bar = ProgressBar(total=max(1, site.rows), completed=site.done, width=44)
    serves = f"serves {scene.serves[name]} partitions" if scene.serves[name] else "mirrors"
    return Panel(Group(Text(told), bar, _nodes(site)), title=f"{name}: {serves}", width=50)


def _nodes(site: Scene) -> Table:
    table = Table(box=None, padding=(0, 2))
    for column in ("node", "state", "pid", "lag"):
        table.add_column(column, justify="left" if column in ("node", "state") else "right")
    for name, n in site.nodes.items():
        table.add_row(name, Text(n.state, style=STYLE.get(n.state, "")), str(n.pid), f"{n.lag:,}")
    return table
