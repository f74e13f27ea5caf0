"""The judge of transactions over several partitions: each lie is found."""

from __future__ import annotations

import pytest

from tests.faults import spread
from tests.faults.history import Outcome
from tests.faults.recorder import Pair, Recorder, Step, pairs

pytestmark = pytest.mark.feature("D4")

PARTS = {"g": "p-0", "h": "p-1"}
MANY = 100
Ids = dict[str, dict[bytes, list[int]]]


def transfer(recorder: Recorder, number: int, outcome: Outcome = Outcome.OK) -> bytes:
    """From g to h; its id."""
    began = recorder.began("c", "p-0", (Step("add", "g", "a0", -number), Step("add", "h", "a1", number)))
    recorder.ended(began, outcome, results=((0,), (0,)), tx=bytes([number]).hex(), lsn=number)
    return bytes([number])


def transferred() -> tuple[Recorder, Ids]:
    """As many, each in both logs."""
    recorder, ids = Recorder(), Ids({"p-0": {}, "p-1": {}})
    for number in range(MANY):
        tx = transfer(recorder, number)
        for partition in ids.values():
            partition[tx] = [number + 1]
    return recorder, ids


def judged(recorder: Recorder, ids: Ids) -> None:
    spread.happened_whole(pairs(recorder.events()), ids, PARTS)


def test_what_happened_in_both_passes() -> None:
    judged(*transferred())


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.UNKNOWN, Outcome.FAILED])
def test_what_is_in_one_log_only_is_found_whatever_its_caller_was_told(outcome: Outcome) -> None:
    recorder, ids = transferred()
    ids["p-1"][transfer(recorder, MANY, outcome)] = [7]
    with pytest.raises(AssertionError, match=rf"{outcome.value}: in \['p-1'\] of \['p-0', 'p-1'\]"):
        judged(recorder, ids)


def test_what_was_acknowledged_and_is_nowhere_is_found_and_what_is_unknown_may_be() -> None:
    recorder, ids = transferred()
    transfer(recorder, MANY, Outcome.UNKNOWN)
    judged(recorder, ids)
    transfer(recorder, MANY + 1)
    with pytest.raises(AssertionError, match=r"ok: in \[\]"):
        judged(recorder, ids)


def test_what_failed_and_is_there_is_found() -> None:
    recorder, ids = transferred()
    tx = transfer(recorder, MANY, Outcome.FAILED)
    for partition in ids.values():
        partition[tx] = [7]
    with pytest.raises(AssertionError, match="failed: in"):
        judged(recorder, ids)


def test_what_happened_twice_is_found() -> None:
    recorder, ids = transferred()
    ids["p-0"][bytes([3])] = [4, 9]
    with pytest.raises(AssertionError, match="1 transactions"):
        judged(recorder, ids)


def test_too_little_proves_nothing() -> None:
    recorder = Recorder()
    transfer(recorder, 1, Outcome.UNKNOWN)
    with pytest.raises(AssertionError, match="too little happened"):
        judged(recorder, {"p-0": {}, "p-1": {}})


def audits(*sums: int) -> list[Pair]:
    recorder = Recorder()
    for total in sums:
        began = recorder.began("c", "p-0", (Step("look", "g", "a0"), Step("look", "h", "a1")), strict=False)
        recorder.ended(began, Outcome.OK, results=((-5,), (5 + total,)))
    return pairs(recorder.events())


def test_an_audit_that_saw_half_a_transfer_is_found() -> None:
    spread.conserved(audits(*[0] * MANY))
    with pytest.raises(AssertionError, match="1 of 101 audits"):
        spread.conserved(audits(*[0] * MANY, 3))
    with pytest.raises(AssertionError, match="1 audits"):
        spread.conserved(audits(0))


@pytest.mark.parametrize(("read", "whole"), [(((8,), (9,)), True), (((), ()), True), (((8,), ()), False)])
def test_half_of_what_a_killed_client_appended_is_found(read: tuple[tuple[int, ...], ...], whole: bool) -> None:
    recorder = Recorder()
    recorder.began("killed", "p-0", (Step("append", "g", "l", 8), Step("append", "h", "l", 9)))
    for group, values in zip("gh", read, strict=True):
        began = recorder.began("end", PARTS[group], (Step("list", group, "l"),))
        recorder.ended(began, Outcome.OK, results=(values,))
    found = pairs(recorder.events())
    if whole:
        spread.appended_whole(found)
    else:
        with pytest.raises(AssertionError, match="half of 1 transactions"):
            spread.appended_whole(found)
