"""What the rebalance benchmark calls lost, doubled, misplaced and moved, and what those that kill call lost."""

from __future__ import annotations

import pytest

from benchmarks.judged import NEW, Verdict, Writes, judge

pytestmark = pytest.mark.feature("S1")


def before(number: int) -> str:
    return "p-0"


def now(number: int) -> str:
    return f"p-{number % 2}"


def ref(number: int) -> bytes:
    return b"%d" % number


RIGHT = [("p-0", 0, ref(0)), ("p-1", 1, ref(1)), ("p-0", 2, ref(2)), ("p-1", 3, ref(3))]
MADE = ("p-0", NEW, ref(NEW))


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ([*RIGHT, MADE], Verdict(5, 0, 0, 0, 2)),
        ([*RIGHT[1:], MADE], Verdict(4, 1, 0, 0, 2)),
        (RIGHT, Verdict(4, 1, 0, 0, 2)),
        ([*RIGHT, MADE, ("p-0", 3, ref(3))], Verdict(6, 0, 1, 1, 2)),
        ([*RIGHT, MADE, ("p-1", 3, b"x")], Verdict(6, 0, 1, 0, 2)),
        ([*RIGHT[:3], ("p-1", 3, ref(0)), MADE], Verdict(5, 0, 1, 0, 2)),
        ([*RIGHT[:3], ("p-0", 3, ref(3)), MADE], Verdict(5, 0, 0, 1, 1)),
        ([*RIGHT, MADE, ("p-0", NEW + 2, ref(NEW + 2))], Verdict(6, 0, 0, 0, 2)),
        ([*RIGHT, MADE, ("p-0", NEW + 4, ref(NEW + 4))], Verdict(6, 0, 1, 0, 2)),
    ],
    ids=[
        "right",
        "one lost",
        "a new one lost",
        "in two partitions",
        "twice in one",
        "one reference of two",
        "misplaced",
        "perhaps made",
        "never made, or deleted",
    ],
)
def test_every_object_is_counted(found: list[tuple[str, int, bytes]], verdict: Verdict) -> None:
    assert judge(found, 4, {NEW}, {NEW + 2}, before, now) == verdict


@pytest.mark.feature("R1", "X1")
@pytest.mark.parametrize(
    ("happened", "wrong"),
    [
        (["a", "b"], 0),
        (["a", "b", "unknown"], 0),
        (["a", "unknown"], 1),
        (["a", "b", "failed"], 1),
        (["a", "b", "b"], 1),
    ],
    ids=["as told", "an unknown one landed", "one lost behind an unknown one that landed", "a failed one", "twice"],
)
def test_writes_are_counted_by_their_ids(happened: list[str], wrong: int) -> None:
    """As many as were acknowledged may be there, and one of them be lost."""
    writes = Writes()
    writes.told(["a"], [])
    writes.told(["b"], ["failed"])
    assert writes.wrong(happened) == wrong
