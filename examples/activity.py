"""What happens to the objects of a type, over time: a Spark job over the log, and its plot.

    python -m examples.activity --config halog.toml --type Aircraft --out activity.svg

Counts creates, updates and deletes in slices of time, from the changes that the log still holds, and draws them as
stacked bars. The plot is an SVG file, which every browser shows and which needs no library.
"""

from __future__ import annotations

import argparse
import datetime as dt
import html
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPS = {"create": "#2a9d8f", "update": "#457b9d", "delete": "#e76f51"}
WIDTH, HEIGHT, MARGIN = 900, 360, 50
MOST_SLICES = 120
"""More bars than that are no bars."""


class Slice(NamedTuple):
    """How many changes of each kind a slice of time has."""

    begin: dt.datetime
    counts: dict[str, int]


def activity(spark: SparkSession, config: Path, type_name: str) -> tuple[list[Slice], float]:
    """The slices, without holes, and how many seconds each is."""
    from pyspark.sql import functions as f

    import spark_jobs

    changes = spark_jobs.changes(spark, config, type_name).select("time", "op").cache()
    first, last = changes.agg(f.min("time"), f.max("time")).collect()[0]
    if first is None:
        return [], 0.0
    seconds = max(1.0, (last - first).total_seconds() / MOST_SLICES)
    begin = first.timestamp()
    number = f.floor((f.col("time").cast("double") - f.lit(begin)) / f.lit(seconds)).alias("slice")
    found = changes.groupBy(number, "op").count().collect()
    changes.unpersist()
    slices = [
        Slice(dt.datetime.fromtimestamp(begin + i * seconds, dt.UTC), dict.fromkeys(OPS, 0))
        for i in range(1 + max(row["slice"] for row in found))
    ]
    for row in found:
        slices[row["slice"]].counts[row["op"]] = row["count"]
    return slices, seconds


def plot(slices: Sequence[Slice], seconds: float, title: str) -> str:
    """Stacked bars as SVG."""
    high = max((sum(s.counts.values()) for s in slices), default=0) or 1
    width = (WIDTH - 2 * MARGIN) / max(1, len(slices))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(MARGIN, 24, html.escape(title)),
        _text(MARGIN - 8, MARGIN + 4, f"{high:,}", "end"),
        _text(MARGIN - 8, HEIGHT - MARGIN, "0", "end"),
    ]
    for i, one in enumerate(slices):
        parts += _bar(one, MARGIN + i * width, width, high)
    for i, (op, colour) in enumerate(OPS.items()):
        x = WIDTH - MARGIN - 80 * (len(OPS) - i)
        parts += [f'<rect x="{x}" y="14" width="12" height="12" fill="{colour}"/>', _text(x + 17, 24, op)]
    if slices:
        end = slices[-1].begin + dt.timedelta(seconds=seconds)
        parts += [
            _text(MARGIN, HEIGHT - 20, _time(slices[0].begin)),
            _text(WIDTH - MARGIN, HEIGHT - 20, _time(end), "end"),
        ]
    return "\n".join([*parts, "</svg>\n"])


def _bar(one: Slice, x: float, width: float, high: int) -> list[str]:
    parts, y = [], float(HEIGHT - MARGIN)
    for op, colour in OPS.items():
        tall = one.counts[op] / high * (HEIGHT - 2 * MARGIN)
        y -= tall
        if tall:
            box = f'x="{x:.1f}" y="{y:.1f}" width="{max(0.5, width - 1):.1f}" height="{tall:.1f}"'
            said = f"{_time(one.begin)}: {one.counts[op]:,} {op}s"
            parts.append(f'<rect {box} fill="{colour}"><title>{said}</title></rect>')
    return parts


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" font-size="13" text-anchor="{anchor}">{text}</text>'


def _time(at: dt.datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def main(argv: Sequence[str] | None = None) -> None:
    """Run."""
    parser = argparse.ArgumentParser(prog="python -m examples.activity", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--config", type=Path, default=Path("halog.toml"))
    parser.add_argument("--type", required=True, dest="type_name")
    parser.add_argument("--out", type=Path, default=Path("activity.svg"))
    parser.add_argument("--spark-master", default="local[*]")
    asked = parser.parse_args(argv)
    import spark_jobs

    spark = spark_jobs.session(asked.spark_master, "halog activity")
    slices, seconds = activity(spark, asked.config, asked.type_name)
    asked.out.write_text(plot(slices, seconds, f"Changes of {asked.type_name}, {seconds:.3g} s each bar"))
    total = sum(sum(s.counts.values()) for s in slices)
    print(f"{asked.out}: {total:,} changes in {len(slices)} slices of {seconds:.3g} s")


if __name__ == "__main__":
    main()
