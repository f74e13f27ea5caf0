"""The fault suite's recorder and judge: what a killed client leaves, and that each lie is found."""

from __future__ import annotations

import pytest

from tests.faults import verdict
from tests.faults.history import FOREVER, Outcome
from tests.faults.recorder import Pair, Recorder, Step, operations, pairs, parsed, transactions
from tests.integration.cluster.checker import History

SWAP, ADD = Step("swap", "g", "r0", 5), Step("add", "g", "c0", 1)
MANY = 100


def acknowledged(count: int = MANY) -> tuple[list[Pair], dict[str, History]]:
    """As many swaps, each in the log where it was told."""
    recorder, log = Recorder(), History()
    for n in range(count):
        began = recorder.began("c", "p-0", (Step("swap", "g", "r0", n + 1),))
        recorder.ended(began, Outcome.OK, results=((n,),), tx=bytes([n]).hex(), lsn=n + 1)
        log.ids[bytes([n])] = [n + 1]
    return pairs(recorder.events()), {"p-0": log}


def test_a_client_killed_in_between_leaves_an_unknown_outcome() -> None:
    """Its events travel as lines; the invocation without a completion may have happened."""
    lines: list[str] = []
    recorder = Recorder(lines.append)
    recorder.ended(recorder.began("c", "p-0", (SWAP,)), Outcome.OK, results=((4,),), tx="00", lsn=1)
    recorder.began("c", "p-0", (ADD,))
    recorder.began("c", "p-0", (Step("append", "g", "l0", 7),))
    found = pairs(parsed([*lines, "a line of somebody else"]))
    (swap,), (add,) = operations(found, frozenset({"swap"})), operations(found, frozenset({"add"}))
    assert (swap.argument, swap.result, swap.outcome) == (5, 4, Outcome.OK)
    assert (add.result, add.outcome, add.returned) == (None, Outcome.UNKNOWN, FOREVER)
    (append,) = transactions(found)
    assert append.outcome is Outcome.UNKNOWN


def test_a_true_history_passes() -> None:
    found, settled = acknowledged()
    verdict.told_the_truth(found, settled)
    verdict.explained(found)


def test_an_acknowledged_transaction_that_is_nowhere_is_found() -> None:
    found, settled = acknowledged()
    del settled["p-0"].ids[bytes([7])]
    with pytest.raises(AssertionError, match="1 of 100 acknowledged"):
        verdict.told_the_truth(found, settled)


@pytest.mark.parametrize("lsns", [[99], [8, 101]])
def test_one_that_is_elsewhere_or_twice_is_found(lsns: list[int]) -> None:
    found, settled = acknowledged()
    settled["p-0"].ids[bytes([7])] = lsns
    with pytest.raises(AssertionError, match="acknowledged"):
        verdict.told_the_truth(found, settled)


def test_a_failed_transaction_that_happened_is_found() -> None:
    found, settled = acknowledged()
    recorder = Recorder()
    recorder.ended(recorder.began("d", "p-0", (SWAP,)), Outcome.FAILED, tx="ff")
    settled["p-0"].ids[b"\xff"] = [500]
    with pytest.raises(AssertionError, match="failed transactions stand in the log"):
        verdict.told_the_truth([*found, *pairs(recorder.events())], settled)


def test_too_little_is_no_proof() -> None:
    found, settled = acknowledged(3)
    with pytest.raises(AssertionError, match="too little"):
        verdict.told_the_truth(found, settled)


@pytest.mark.parametrize("step", [SWAP, ADD, Step("list", "g", "l0")], ids=lambda s: s.kind)
def test_what_nobody_can_have_seen_is_found(step: Step) -> None:
    """Of registers, counters and lists."""
    recorder = Recorder()
    recorder.ended(recorder.began("c", "p-0", (step,)), Outcome.OK, results=((77,),), tx="00", lsn=1)
    with pytest.raises(AssertionError, match=r"not (linearizable|serialisable)"):
        verdict.explained(pairs(recorder.events()))
