"""The result is one document of exactly the agreed keys, and a table that says the same."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from halog.demo.report import report
from halog.demo.result import CopyCheck, Latencies, PlannedChange, Result, RowCounts
from halog.demo.scene import Rate, Scene
from halog.demo.view import LiveView, draw

KEYS = [
    "ok",
    "transactions",
    "acknowledged",
    "lost",
    "doubled",
    "unknown",
    "copies_equal",
    "copies",
    "failover_ms",
    "frozen_ms",
    "restart_ms",
    "catch_up_ms",
    "join",
    "rebalance",
    "leave",
    "throughput",
    "rows",
    "seconds",
]


def test_the_document_has_exactly_the_agreed_keys() -> None:
    document = Result().to_dict()
    assert list(document) == KEYS
    assert list(document["copies"]) == ["partitions", "objects", "mismatches", "misplaced"]
    for change in ("join", "rebalance", "leave"):
        assert list(document[change]) == ["at_s", "seconds", "partitions", "objects", "pause_ms"]
        assert list(document[change]["pause_ms"]) == ["median", "worst", "count"]
    assert list(document["failover_ms"]) == list(document["frozen_ms"]) == ["median", "worst", "count"]
    assert list(document["rows"]) == ["landed", "cancelled", "diverted", "no_tail"]


def test_a_spread_is_median_worst_and_count() -> None:
    assert Latencies.of([30.0, 10.0, 20.04]) == Latencies(20.0, 30.0, 3)
    assert Latencies.of([]) == Latencies(None, None, 0)


def printed(result: Result, scene: Scene) -> str:
    out = io.StringIO()
    report(result, scene, Console(file=out))
    return out.getvalue()


def test_the_table_says_what_was_found_wrong() -> None:
    scene = Scene(10)
    scene.tell("WRONG: 1 acknowledged transactions are lost")
    text = printed(Result(lost=1, rows=RowCounts(9, 1, 0, 0)), scene)
    assert "WRONG: 1 acknowledged" in text
    assert "NOT ok" in text
    assert "9 landed" in text


def test_the_table_of_a_good_run() -> None:
    good = Result(
        ok=True, copies_equal=True, copies=CopyCheck(12, 5, 0), failover_ms=Latencies(80.0, 120.0, 4), restart_ms=9
    )
    moved = PlannedChange(7.0, 2.5, 0, 900, Latencies(20.0, 45.0, 12))
    text = " ".join(printed(replace(good, rebalance=moved), Scene(10)).split())
    assert "80 ms (worst 120, of 4)" in text
    assert "rebalance 2.5 s at 7.0 s: 900 objects" in text
    assert "20 ms (worst 45, of 12)" in text
    assert "nothing was lost" in text


def test_the_rate_looks_back_two_seconds() -> None:
    rate = Rate()
    for second in range(6):
        rate.note(second * 100, float(second))
    assert rate.value == 100.0


def test_without_a_terminal_the_story_is_told_line_by_line() -> None:
    out = io.StringIO()
    scene = Scene(10)
    with LiveView(scene, Console(file=out)):
        scene.tell("kill -9 of node A")
    assert out.getvalue().count("kill -9 of node A") == 1


def test_the_live_picture_can_be_drawn() -> None:
    out = io.StringIO()
    Console(file=out, width=160).print(draw(Scene(10)))
    assert "0 of 10 flights" in out.getvalue()
