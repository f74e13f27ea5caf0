"""The linearizability checker: each wrong history is caught, each right one passes, unknown outcomes included."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings, strategies as st

from tests.faults.history import FOREVER, Operation, Outcome
from tests.faults.linearizability import check, counter, register

OK, FAILED, UNKNOWN = Outcome.OK, Outcome.FAILED, Outcome.UNKNOWN


def op(
    kind: str, argument: int, result: int | None, invoked: float, returned: float, outcome: Outcome = OK
) -> Operation:
    return Operation("c", "x", kind, argument, result, invoked, returned, outcome)


def write(value: int, invoked: float, returned: float, outcome: Outcome = OK) -> Operation:
    return op("write", value, None, invoked, returned, outcome)


def read(value: int, invoked: float, returned: float) -> Operation:
    return op("read", 0, value, invoked, returned)


def add(result: int | None, invoked: float, returned: float, outcome: Outcome = OK) -> Operation:
    return op("add", 1, result, invoked, returned, outcome)


GOOD_REGISTERS = {
    "one after the other": [write(1, 0, 1), read(1, 2, 3), write(2, 4, 5), read(2, 6, 7)],
    "overlapping writes in either order": [write(1, 0, 5), write(2, 0, 5), read(1, 6, 7), read(1, 8, 9)],
    "a read beside a write sees it or not": [write(1, 0, 9), read(0, 1, 2), read(1, 3, 4)],
    "an unknown write that happened": [write(1, 0, FOREVER, UNKNOWN), read(0, 1, 2), read(1, 5, 6)],
    "an unknown write that never happened": [write(1, 0, FOREVER, UNKNOWN), read(0, 1, 2), read(0, 5, 6)],
    "an unknown write that happens long after": [
        write(1, 0, FOREVER, UNKNOWN),
        write(2, 1, 2),
        read(2, 3, 4),
        read(1, 5, 6),
    ],
    "a failed write nobody saw": [write(1, 0, 1, FAILED), read(0, 2, 3)],
    "swaps that chain": [op("swap", 1, 0, 0, 9), op("swap", 2, 1, 0, 9), op("swap", 3, 2, 0, 9)],
    "nothing": [],
}
BAD_REGISTERS = {
    "a stale read": [write(1, 0, 1), read(0, 2, 3)],
    "a read before its write": [read(1, 0, 1), write(1, 2, 3)],
    "a value that goes back": [write(1, 0, 9), read(1, 1, 2), read(0, 3, 4)],
    "a lost write": [write(1, 0, 1), write(2, 2, 3), read(1, 4, 5)],
    "a failed write somebody saw": [write(1, 0, 1, FAILED), read(1, 2, 3)],
    "an unknown write seen before it was asked for": [read(1, 0, 1), write(1, 2, FOREVER, UNKNOWN)],
    "an unknown write that happens twice": [
        write(1, 0, FOREVER, UNKNOWN),
        read(1, 1, 2),
        write(2, 3, 4),
        read(2, 5, 6),
        read(1, 7, 8),
    ],
    "two swaps of one value": [op("swap", 1, 0, 0, 9), op("swap", 2, 0, 0, 9)],
    "two readers who see two orders": [
        write(1, 0, 9),
        write(2, 0, 9),
        read(1, 1, 2),
        read(2, 3, 4),
        read(1, 5, 6),
    ],
}
GOOD_COUNTERS = {
    "concurrent sums": [add(2, 0, 9), add(1, 0, 9), add(3, 5, 9)],
    "an unknown add that counts later": [add(None, 0, FOREVER, UNKNOWN), add(1, 1, 2), add(3, 3, 4)],
    "an unknown add that never counts": [add(None, 0, FOREVER, UNKNOWN), add(1, 1, 2), add(2, 3, 4)],
}
BAD_COUNTERS = {
    "a lost update": [add(1, 0, 1), add(1, 2, 3)],
    "an acknowledged add forgotten": [add(1, 0, 1), add(2, 2, 3), read(1, 4, 5)],
    "an add applied twice": [add(1, 0, 1), add(3, 2, 3)],
    "an unknown add counted twice": [add(None, 0, FOREVER, UNKNOWN), add(2, 1, 2), add(4, 3, 4)],
    "a failed add that counted": [add(None, 0, 1, FAILED), add(2, 2, 3)],
    "sums that contradict real time": [add(2, 0, 1), add(1, 2, 3)],
}


@pytest.mark.parametrize("name", GOOD_REGISTERS)
def test_a_register_that_keeps_its_promise_passes(name: str) -> None:
    assert check(GOOD_REGISTERS[name], register) == []


@pytest.mark.parametrize("name", BAD_REGISTERS)
def test_a_register_that_breaks_it_is_caught(name: str) -> None:
    (found,) = check(BAD_REGISTERS[name], register)
    assert found.key == "x"
    assert found.explained < len(found.operations)


@pytest.mark.parametrize("name", GOOD_COUNTERS)
def test_a_counter_that_keeps_its_promise_passes(name: str) -> None:
    assert check(GOOD_COUNTERS[name], counter) == []


@pytest.mark.parametrize("name", BAD_COUNTERS)
def test_a_counter_that_breaks_it_is_caught(name: str) -> None:
    assert len(check(BAD_COUNTERS[name], counter)) == 1


def test_each_key_is_judged_alone() -> None:
    """One bad key among good ones is named."""
    good = [o._replace(key="good") for o in GOOD_REGISTERS["one after the other"]]
    bad = [o._replace(key="bad") for o in BAD_REGISTERS["a stale read"]]
    assert [v.key for v in check([*good, *bad], register)] == ["bad"]


def simulated(seed: int, count: int, unknown: float) -> list[Operation]:
    """A real counter's history: four clients, each operation takes effect at one moment between call and return."""
    rng = random.Random(seed)
    moments = []
    for client in range(4):
        at = rng.random()
        for _ in range(count // 4):
            called, effect, back = at, at + rng.random(), at + 1 + rng.random()
            moments.append((effect, f"c{client}", called, back, rng.random() < unknown, rng.random() < 0.5))
            at = back + rng.random() * 0.1
    state, history = 0, []
    for _, name, called, back, lost, happens in sorted(moments):
        state += 1 if happens or not lost else 0
        told = (None, FOREVER, UNKNOWN) if lost else (state, back, OK)
        history.append(Operation(name, "x", "add", 1, told[0], called, told[1], told[2]))
    return history


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_what_a_real_counter_does_passes_and_one_forgotten_sum_does_not(seed: int) -> None:
    """Any history with a point of effect is explained; the same with one acknowledged sum changed is not."""
    history = simulated(seed, 60, 0.03)
    assert check(history, counter) == []
    at = next(i for i, o in enumerate(history) if i > 30 and o.outcome is OK)
    wrong = history[at]._replace(result=(history[at].result or 0) + 100)
    assert check([*history[:at], wrong, *history[at + 1 :]], counter)


def test_five_hundred_operations_are_judged_within_seconds() -> None:
    """The size clients keep their keys to."""
    began = time.thread_time()
    assert check(simulated(1, 500, 0.01), counter) == []
    assert time.thread_time() - began < 10
