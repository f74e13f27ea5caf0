"""The arithmetic of a benchmark: medians over interleaved runs, ratios, and whether a row meets its target. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Better = Literal["lower", "higher"]
AtMost = Literal["ratio", "value", "none"]


def median(values: Iterable[float]) -> float:
    """The middle value, or the mean of the two middle ones; ValueError for none."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("the median of nothing")
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def percentile(ordered: Sequence[float], part: float) -> float:
    """The value below which `part` (0..1) of an ascending sequence lies."""
    if not ordered:
        raise ValueError("a percentile of nothing")
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def paired_ratio(values: Sequence[float], baselines: Sequence[float]) -> float:
    """The median of the ratios of neighbours: each pair ran within the same seconds, in one mood of the machine."""
    return median(v / b for v, b in zip(values, baselines, strict=True) if b > 0)


@dataclass(frozen=True)
class Target:
    """What a figure must reach: a bound on the ratio to the baseline, or on the value itself."""

    bound: float | None = None
    on: AtMost = "none"
    better: Better = "lower"
    hard: bool = False

    def holds(self, value: float, ratio: float | None) -> bool:
        """True where there is no bound."""
        if self.bound is None or self.on == "none":
            return True
        measured = ratio if self.on == "ratio" else value
        if measured is None:
            return False
        return measured <= self.bound if self.better == "lower" else measured >= self.bound

    def __str__(self) -> str:
        if self.bound is None:
            return "-"
        return f"{'≤' if self.better == 'lower' else '≥'} {self.bound:g}{' ×' if self.on == 'ratio' else ''}"


@dataclass(frozen=True)
class Row:
    """One line of the table and of build/bench.json."""

    name: str
    value: float
    unit: str
    baseline: float | None
    ratio: float | None
    target: str
    hard: bool
    ok: bool
    runs: int
    clients: int
    client_in: str

    def to_dict(self) -> dict[str, Any]:
        """As written to build/bench.json."""
        return asdict(self)


def row(
    name: str,
    unit: str,
    values: Sequence[float],
    baselines: Sequence[float] = (),
    *,
    target: Target = Target(),
    clients: int = 1,
    client_in: str = "",
) -> Row:
    """Medians over runs; the ratio is that of interleaved pairs where runs were paired, else of the medians."""
    value = median(values)
    baseline = median(baselines) if baselines else None
    ratio = None
    if baseline:
        paired = len(values) == len(baselines)
        ratio = paired_ratio(values, baselines) if paired else value / baseline
    ok = target.holds(value, ratio)
    return Row(name, value, unit, baseline, ratio, str(target), target.hard, ok, len(values), clients, client_in)


def missed(rows: Iterable[Row]) -> list[Row]:
    """Hard rows that do not meet their target."""
    return [r for r in rows if r.hard and not r.ok]
