"""What operators are told of transactions in doubt comes in as many answers as it takes (O2)."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from halog.cli.shared import txn_views as doubts
from halog.core.ids import EpochId
from halog.core.log import records
from halog.core.log.transactions import Ledger, UndecidedTransaction
from halog.runtime.client import vote_calls as ballots
from halog.runtime.rpc import frames

PARTITIONS = tuple(f"some-policy-{i}" for i in range(100))


def in_doubt(count: int) -> Any:
    """A copy with so many."""
    found = []
    for i in range(count):
        header = records.Header(b"l" * 16, EpochId(1, "s", 1), i + 1, b"h" * 16, i.to_bytes(16, "big"))
        found.append(UndecidedTransaction(records.Prepare(header, PARTITIONS[0], PARTITIONS, 0, b"d", (), ()), i))
    return SimpleNamespace(lock=threading.RLock(), core=SimpleNamespace(state=SimpleNamespace(ledger=Ledger(found))))


@pytest.mark.feature("O2", "D5")
def test_thousands_in_doubt_over_many_partitions_are_told_page_by_page() -> None:
    copy, answers = in_doubt(4_000), []

    def ask(partition: str, frame: frames.Votes, kind: object) -> frames.VotesReply:
        answers.append(ballots.votes(copy, frame))
        return answers[-1]

    connection: Any = SimpleNamespace(ask=ask, tables=[SimpleNamespace(name="p-0")])
    said = doubts.gather(connection, []).by_partition["p-0"]
    assert said is not None
    assert [d.tx for d in said.doubts] == [i.to_bytes(16, "big") for i in range(4_000)]
    assert [a.end for a in answers] == [False] * (len(answers) - 1) + [True]
    assert max(len(frames.encode(a)) for a in answers) <= 1_000_000
    assert len(answers) > 3


@pytest.mark.feature("O2", "D5")
def test_a_page_looks_at_the_changes_of_what_is_on_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[bytes] = []
    real = ballots._doubt
    monkeypatch.setattr(ballots, "_doubt", lambda u: looked.append(u.tx) or real(u))
    copy, behind, pages = in_doubt(4_000), b"", 0
    while True:
        said = ballots.votes(copy, frames.Votes("p-0", [], behind=behind))
        pages += 1
        if said.end:
            break
        behind = said.doubts[-1].tx
    assert pages > 3
    assert len(looked) <= 4_000 + pages


def test_nothing_in_doubt_is_all_there_is() -> None:
    said = ballots.votes(in_doubt(0), frames.Votes("p-0", []))
    assert (said.doubts, said.end) == ([], True)
