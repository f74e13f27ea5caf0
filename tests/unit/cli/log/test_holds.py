"""`halog log hold|holds|release`."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.unit.cli.conftest import Ran

pytestmark = pytest.mark.feature("O1", "N4")


def test_a_hold_is_listed_until_it_is_released(cluster: Any, halog: Any) -> None:
    made: Ran = halog("log", "hold", "p-3", "audit", "--for", "2d", "--reason", "auditors are in", "--format", "json")
    (one,) = made.json
    assert (one["partition"], one["name"], one["reason"]) == ("p-3", "audit", "auditors are in")
    assert 0 <= one["until_ms"] - time.time_ns() // 1_000_000 - 2 * 86_400_000 + 60_000 <= 60_000
    assert halog("log", "holds", "--format", "json").json == [one]
    assert halog("log", "holds", "p-2", "--format", "json").json == []
    shown = halog("log", "holds").out
    assert "auditors are in" in shown
    assert "UTC" in shown
    released = halog("log", "release", "p-3", "audit", "--format", "json")
    assert (released.code, released.json) == (0, {"partition": "p-3", "name": "audit", "released": True})
    assert halog("log", "holds", "--format", "json").json == []


@pytest.mark.parametrize(
    ("said", "code", "why"),
    [
        (("hold", "p-77", "audit", "--for", "1h"), 2, "there is no partition p-77"),
        (("hold", "p-3", "audit"), 2, "--for"),
        (("hold", "p-3", "../x", "--for", "1h"), 2, "no name of a hold"),
        (("hold", "p-3", "..", "--for", "1h"), 2, "no name of a hold"),
        (("hold", "p-3", "restore-A", "--for", "1h"), 2, "nodes that restore"),
        (("hold", "p-3", "audit", "--for", "soon"), 2, "no duration"),
        (("hold", "p-3", "audit", "--for", "1h", "--offset", "999999"), 2, "is not there yet"),
        (("release", "p-3", "audit"), 2, "held as audit"),
    ],
)
def test_what_makes_no_sense_is_one_line(cluster: Any, halog: Any, said: tuple[str, ...], code: int, why: str) -> None:
    ran = halog("log", *said)
    assert (ran.code, ran.out) == (code, "")
    assert why in ran.err
    assert halog("log", "holds", "--format", "json").json == []
