"""The table a person reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.figures import Row


def number(value: float | None) -> str:
    """Three digits that matter, thousands with commas."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def verdict(row: Row) -> str:
    """In a word."""
    if row.target == "-":
        return ""
    return "ok" if row.ok else "MISSED" if row.hard else "over"


def show(rows: Sequence[Row], document: Mapping[str, object], beside: str = "raw") -> None:
    """Print it; `beside` heads the baselines."""
    what = "raw Kafka from Python" if beside == "raw" else "its peers"
    stolen: Any = document["stolen"]
    taken = f"the host took at most {stolen['worst']:.0%} of the CPUs in a round that counts, {stolen['again']} do not"
    table = Table(title=f"halog beside {what} ({document['seconds']} s, medians over runs; {taken})")
    table.add_column("what", overflow="fold")
    for name in ("halog", beside, "ratio"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("unit", "target", "", "client in"):
        table.add_column(name, no_wrap=True)
    for r in rows:
        style = "red" if verdict(r) == "MISSED" else None
        figures = (number(r.value), number(r.baseline), number(r.ratio))
        table.add_row(r.name, *figures, r.unit, r.target, verdict(r), r.client_in, style=style)
    Console(width=150).print(table)
