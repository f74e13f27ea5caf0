"""This module prints the result of a split for people: the story in one table, on stdout."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from halog.demo.report import tell
from halog.demo.split.result import SplitResult
from halog.demo.split.scene import SplitScene

OK = "ok: no acknowledged write of either site was lost, and both sites are the same"


def report(result: SplitResult, scene: SplitScene, console: Console | None = None) -> None:
    """Print the result."""
    tell(lines(result), scene, OK if result.ok else "", console)


def lines(r: SplitResult) -> Iterator[tuple[str, str, str]]:
    """Yield rows of the table: what, how much, and what that means."""
    written = r.acknowledged.west + r.acknowledged.east
    overruled = written - r.merged - r.superseded - r.unaccounted
    yield "acknowledged", f"{written:,}", f"writes: {r.acknowledged.west:,} at west, {r.acknowledged.east:,} at east"
    yield "merged", f"{r.merged:,}", "stand, or are contained in a total"
    yield "superseded", f"{r.superseded:,}", "by a later write of their own branch"
    yield "overruled", f"{overruled:,}", "in the report of conflicts, with both sites' states"
    yield "unaccounted", f"{r.unaccounted:,}", "anything else"
    c = r.conflicts
    yield "instances added", f"{c.instance_added:,}", "objects that only west had made: added"
    yield "key conflicts", f"{c.key:,}", "both sites had made one under the same key: east's, or the sum of both"
    yield "state conflicts", f"{c.state:,}", "both sites had changed it: as east left it, or the sum of both"
    yield "deleted, changed", f"{c.delete_update:,}", "at one site each: as east left it"
    yield "undone", "equal" if r.undone_equal else "NOT equal", "what east has after `halog restore undo`, and before"
    yield "cut to serve", _s(r.timings.cut_to_serve), "from the cut to the first write acknowledged at east"
    yield "restore", _s(r.timings.restore), "from `halog restore` until all partitions were merged"
    yield "follow", _s(r.timings.follow), "until all copies of both sites were the same"


def _s(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:,.1f} s"
