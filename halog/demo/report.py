"""This module prints the result for people: the story in one table, on stdout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from halog.demo.result import Latencies, PlannedChange, Result
from halog.demo.scene import Scene

WIDTH = 120
"""The width for pipes and files, which have none of their own."""


OK = "ok: nothing was lost, nothing happened twice, every copy is the same"


def report(result: Result, scene: Scene, console: Console | None = None) -> None:
    """Print the result."""
    tell(lines(result), scene, OK if result.ok else "", console)


def tell(told: Iterable[tuple[str, str, str]], scene: Scene, ok: str, console: Console | None = None) -> None:
    """Print a table, what was wrong, and the verdict; `ok` is empty if something was wrong."""
    out = console or Console()
    if not out.is_terminal:
        out = Console(file=out.file, width=WIDTH)
    table = Table(box=None, show_header=False, padding=(0, 2))
    for no_wrap in (True, True, False):
        table.add_column(no_wrap=no_wrap)
    for what, value, why in told:
        table.add_row(Text(what), Text(value, style="bold"), Text(why))
    out.print(table)
    for _, text in scene.story:
        if text.startswith("WRONG"):
            out.print(Text(text, style="bold red"), soft_wrap=True)
    if ok:
        out.print(Text(ok, style="bold green"))
    else:
        out.print(Text("NOT ok", style="bold red"))


def lines(r: Result) -> Iterator[tuple[str, str, str]]:
    """Yield rows of the table: what, how much, and what that means."""
    rows = r.rows
    total = rows.landed + rows.cancelled + rows.diverted
    ends = f"{rows.landed:,} landed, {rows.cancelled:,} cancelled, {rows.diverted:,} diverted"
    held = f"{r.copies.objects:,} objects in every copy of {r.copies.partitions} partitions"
    moved = f"{r.rebalance.objects:,} objects to other partitions"
    yield "flights", f"{total:,}", f"{ends}; {rows.no_tail:,} without a tail number"
    yield "transactions", f"{r.transactions:,}", f"{r.acknowledged:,} acknowledged, {r.unknown:,} of unknown outcome"
    yield "lost", f"{r.lost:,}", "acknowledged, but not in the log"
    yield "doubled", f"{r.doubled:,}", "in the log more than once"
    yield "copies", "equal" if r.copies_equal else "NOT equal", f"{held}, {r.copies.mismatches:,} differ"
    yield (
        "misplaced",
        f"{r.copies.misplaced:,}",
        "in another partition than the mapper says, asked again for every object",
    )
    yield "join", *_change(r.join, f"a fourth node took {r.join.partitions} partitions")
    yield "rebalance", *_change(r.rebalance, moved)
    yield "leave", *_change(r.leave, f"a node was drained of {r.leave.partitions} partitions, and ended")
    yield "failover", _spread(r.failover_ms), "from kill -9 to the first new acknowledged write, per partition"
    yield "frozen", _spread(r.frozen_ms), "the same for the node that was stopped (SIGSTOP)"
    yield "restart", _ms(r.restart_ms), "until the killed node answered again"
    yield "catch-up", _ms(r.catch_up_ms), "until it was level, in every node list"
    yield "throughput", f"{r.throughput:,.0f}/s", "acknowledged transactions while the client ran, faults included"
    yield "seconds", f"{r.seconds:,.1f}", "all in all"


def _change(change: PlannedChange, what: str) -> tuple[str, str]:
    """Return how long a change took, and what it was; and what a writer noticed of it."""
    if change.seconds is None:
        return "-", what
    pause = f"slowest write of a partition {_spread(change.pause_ms)}"
    return f"{change.seconds:,.1f} s", f"at {change.at_s:,.1f} s: {what}; {pause}"


def _ms(value: int | None) -> str:
    return "-" if value is None else f"{value:,} ms"


def _spread(s: Latencies) -> str:
    if s.median is None or s.worst is None:
        return "-"
    return f"{s.median:,.0f} ms (worst {s.worst:,.0f}, of {s.count})"
