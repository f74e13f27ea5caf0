"""The checker of list-append histories: each anomaly has a history that shows it, and right histories pass."""

from __future__ import annotations

import random
import time
from collections import defaultdict

import pytest

from tests.faults.history import FOREVER, Append, Outcome, ReadList, Transaction
from tests.faults.serializability import check

OK, FAILED, UNKNOWN = Outcome.OK, Outcome.FAILED, Outcome.UNKNOWN
TOGETHER = (0.0, 100.0)
"""Overlaps with everything, so that real time says nothing."""


def a(key: str, value: int) -> Append:
    return Append(key, value)


def r(key: str, *values: int) -> ReadList:
    return ReadList(key, values)


def tx(
    *steps: Append | ReadList, at: tuple[float, float] = TOGETHER, outcome: Outcome = OK, strict: bool = True
) -> Transaction:
    returned = FOREVER if outcome is UNKNOWN else at[1]
    return Transaction("c", steps, at[0], returned, outcome, strict)


GOOD = {
    "nothing": [],
    "one after the other": [
        tx(r("x"), a("x", 1), at=(0, 1)),
        tx(r("x", 1), a("x", 2), at=(2, 3)),
        tx(r("x", 1, 2), at=(4, 5)),
    ],
    "reads between appends of one transaction": [tx(a("x", 1), r("x", 1), a("x", 2), r("x", 1, 2))],
    "overlapping, in one order": [tx(r("y"), a("x", 1)), tx(r("x", 1), a("y", 2)), tx(r("x", 1), r("y", 2))],
    "a failed append nobody saw": [tx(a("x", 1), outcome=FAILED, at=(0, 1)), tx(r("x"), at=(2, 3))],
    "an unknown append seen later": [
        tx(a("x", 1), outcome=UNKNOWN, at=(0, 1)),
        tx(r("x"), at=(2, 3)),
        tx(r("x", 1), at=(4, 5)),
    ],
    "an unknown append never seen": [tx(a("x", 1), outcome=UNKNOWN, at=(0, 1)), tx(r("x"), at=(2, 3))],
    "a plain read that is old": [tx(a("x", 1), at=(0, 1)), tx(r("x"), at=(2, 3), strict=False)],
}
BAD: dict[str, list[Transaction]] = {
    "duplicated element": [tx(a("x", 1)), tx(r("x", 1, 1))],
    "garbage": [tx(r("x", 7))],
    "G1a": [tx(a("x", 1), outcome=FAILED), tx(r("x", 1))],
    "G1b": [tx(a("x", 1), a("x", 2)), tx(r("x", 1))],
    "internal": [tx(a("x", 1), r("x"))],
    "incompatible order": [tx(a("x", 1)), tx(a("x", 2)), tx(r("x", 1, 2)), tx(r("x", 2))],
    "lost update": [tx(r("x"), a("x", 1)), tx(r("x"), a("x", 2)), tx(r("x", 1, 2))],
    "lost write": [tx(a("x", 1), at=(0, 1)), tx(a("x", 2), at=(2, 3)), tx(r("x", 2), at=(4, 5))],
    "G0": [tx(a("x", 1), a("y", 1)), tx(a("x", 2), a("y", 2)), tx(r("x", 1, 2)), tx(r("y", 2, 1))],
    "G1c": [tx(a("x", 1), r("y", 2)), tx(a("y", 2), r("x", 1))],
    "G-single": [tx(a("x", 1), a("y", 1)), tx(r("x", 1), r("y")), tx(r("x", 1), r("y", 1))],
    "G2": [tx(r("x"), a("y", 1)), tx(r("y"), a("x", 1)), tx(r("x", 1), r("y", 1))],
    "G0-realtime": [tx(a("x", 1), at=(0, 1)), tx(a("x", 2), at=(2, 3)), tx(r("x", 2, 1), at=(4, 5))],
    "G1c-realtime": [tx(r("x", 1), at=(0, 1)), tx(a("x", 1), at=(2, 3))],
    "G-single-realtime": [tx(a("x", 1), at=(0, 1)), tx(r("x"), at=(2, 3)), tx(r("x", 1), at=(2, 5))],
}
MORE_BAD = {
    "repeated read": ("internal", [tx(a("x", 1)), tx(r("x"), r("x", 1))]),
    "an acknowledged element vanishes": (
        "G-single-realtime",
        [tx(a("x", 1), at=(0, 1)), tx(r("x"), at=(2, 3)), tx(a("x", 2), at=(4, 5))],
    ),
    "a fractured plain read": (
        "G-single",
        [tx(a("x", 1), a("y", 1)), tx(r("x", 1), r("y"), strict=False), tx(r("y", 1))],
    ),
    "two plain reads that disagree on the order": (
        "G2",
        [tx(a("x", 1)), tx(a("y", 2)), tx(r("x", 1), r("y"), strict=False), tx(r("x"), r("y", 2), strict=False)],
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_history_with_a_serial_order_passes(name: str) -> None:
    assert check(GOOD[name]) == []


@pytest.mark.parametrize("kind", BAD)
def test_each_anomaly_is_caught_by_its_name(kind: str) -> None:
    assert kind in {found.kind for found in check(BAD[kind])}


@pytest.mark.parametrize("name", MORE_BAD)
def test_other_faces_of_them_are_caught(name: str) -> None:
    kind, history = MORE_BAD[name]
    assert kind in {found.kind for found in check(history)}


def test_a_value_appended_twice_proves_nothing() -> None:
    """The history itself is refused: who wrote an element could not be told."""
    with pytest.raises(AssertionError, match="not unique"):
        check([tx(a("x", 1)), tx(a("x", 1))])


def simulated(seed: int, count: int) -> list[Transaction]:
    """What a serial store gives: each transaction takes effect at one moment between call and return."""
    rng = random.Random(seed)
    lists: dict[str, list[int]] = defaultdict(list)
    history, values = [], iter(range(10 * count))
    for n in range(count):
        outcome = rng.choices([OK, FAILED, UNKNOWN], [90, 5, 5])[0]
        happens = outcome is OK or (outcome is UNKNOWN and rng.random() < 0.5)
        steps: list[Append | ReadList] = []
        mine: dict[str, list[int]] = defaultdict(list)
        for key in rng.choices("xyz", k=3):
            steps.append(ReadList(key, (*lists[key], *mine[key])))
            if rng.random() < 0.5:
                mine[key].append(next(values))
                steps.append(Append(key, mine[key][-1]))
        if happens:
            for key, added in mine.items():
                lists[key] += added
        history.append(tx(*steps, at=(n - rng.random(), n + rng.random()), outcome=outcome))
    return history


@pytest.mark.parametrize("seed", range(20))
def test_what_a_serial_store_gives_passes_and_an_old_read_does_not(seed: int) -> None:
    """A later transaction that reads an earlier list is found among 200."""
    history = simulated(seed, 200)
    assert check(history) == []
    old = next(s for s in history[20].steps if isinstance(s, ReadList))
    assert check([*history, tx(old, at=(900, 901))])


def test_three_thousand_transactions_are_judged_within_seconds() -> None:
    """What a fault test collects; lists are kept short by its clients."""
    history = [
        t._replace(
            steps=tuple(s._replace(key=f"{s.key}{block}") for s in t.steps),
            invoked=t.invoked + 200 * block,
            returned=t.returned + 200 * block,
        )
        for block in range(15)
        for t in simulated(block, 200)
    ]
    began = time.thread_time()
    assert check(history) == []
    assert time.thread_time() - began < 10
