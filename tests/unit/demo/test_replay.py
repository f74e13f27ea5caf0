"""The client replays each row exactly once, also where nobody can tell it whether a commit happened."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from halog.backend import Outcome, Work
from halog.demo import journal, rows, totals
from halog.demo.ordered_work import RowGate, WorkLines
from halog.demo.replay import Replay
from halog.demo.verify_objects import check_objects
from halog.errors import ConflictError, OutcomeUnknownError, UnreachableError
from halog.testing.memory import MemoryBackend, MemoryCluster
from halog.transactions import Node

ROWS = 200


class Forgetful(MemoryBackend):
    """Answers some commits with "unknown", whether they happened or not, and knows better when asked."""

    def __init__(self, cluster: MemoryCluster) -> None:
        super().__init__(cluster, name="client", active=False)
        self.chance = random.Random(1)
        self.happened: dict[bytes, bool] = {}

    def commit(self, partition: str, tx: bytes, work: Work) -> int:
        dice = self.chance.random()
        if dice < 0.1:
            self.happened[tx] = False
            raise OutcomeUnknownError("lost on the way there")
        if dice < 0.15:
            raise ConflictError("somebody was faster", settled_lsn=0)
        lsn = super().commit(partition, tx, work)
        if dice > 0.9:
            self.happened[tx] = True
            raise OutcomeUnknownError("lost on the way back")
        return lsn

    def outcome(self, partition: str, tx: bytes, epoch: int, participants: Sequence[str] = ()) -> Outcome:
        if self.chance.random() < 0.3:
            raise UnreachableError("not now")
        return "happened" if self.happened[tx] else "did not happen"


def records() -> list[dict[str, str]]:
    def record(n: int) -> dict[str, str]:
        landed = n % 7 != 0
        return {
            "time_hour": f"2013-01-01T{n // 60:02}:{n % 60:02}:00Z",
            "carrier": "UA",
            "flight": str(n),
            "tailnum": f"N{n % 11}" if n % 50 else "NA",
            "origin": "JFK",
            "dest": "ORD" if n % 3 else "ATL",
            "air_time": str(n) if landed else "NA",
            "arr_time": "1200" if landed or n % 2 else "NA",
            "distance": str(100 + n),
        }

    return [record(n) for n in range(ROWS)]


class Broken(Forgetful):
    def commit(self, partition: str, tx: bytes, work: Work) -> int:
        raise RuntimeError("a bug")


def replayed(
    cluster: MemoryCluster, path: Path, sabotaged: int = -1, *, of: type[Forgetful] = Forgetful
) -> tuple[Node, Replay]:
    backend = of(cluster)
    node = Node(backend)
    notes = journal.Journal(path)
    replay = Replay(node, backend, lambda: defaultdict(lambda: 1), notes, sabotaged)
    gate = RowGate(10)
    gate.open_to(ROWS)
    try:
        replay.run(rows.parse(records()), gate, workers=4)
    except BaseException:
        node.close()
        raise
    finally:
        notes.close()
    return node, replay


def test_each_row_happens_once_and_every_answer_is_noted(cluster: MemoryCluster, tmp_path: Path) -> None:
    node, replay = replayed(cluster, tmp_path / "j")
    expected = totals.count(records())
    with node:
        assert check_objects(node, expected).examples == []
    tally, claims = replay.tally, journal.claims(journal.read(tmp_path / "j"))
    assert tally.rows == ROWS
    assert tally.transactions == tally.acknowledged == len(claims.acknowledged) == expected.transactions
    assert tally.unknown == 0
    assert tally.repeated > 0
    forgotten = node.backend.happened  # type: ignore[attr-defined]
    assert claims.denied == {tx for tx, happened in forgotten.items() if not happened}
    assert claims.unknown == set()


def test_a_sabotaged_row_is_noted_and_missing(cluster: MemoryCluster, tmp_path: Path) -> None:
    node, replay = replayed(cluster, tmp_path / "j", sabotaged=5)
    with node:
        check = check_objects(node, totals.count(records()))
    assert replay.tally.acknowledged == totals.count(records()).transactions
    assert check.wrong == 3  # the flight, and the sums of its aircraft and of its airport
    assert check.examples[0].startswith("flight ('2013-01-01T00:05:00Z'")


def test_an_error_of_one_thread_ends_the_replay(
    cluster: MemoryCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the lines are full: nobody waits for a thread that has given up."""
    monkeypatch.setattr("halog.demo.ordered_work.QUEUE_ROWS", 2)

    with pytest.raises(RuntimeError, match="a bug"):
        replayed(cluster, tmp_path / "j", of=Broken)


def test_rows_of_one_name_are_done_in_order_and_hold_up_no_other_name() -> None:
    every = list(rows.parse(records()))[:9]
    done: list[int] = []
    first, others = threading.Event(), threading.Event()

    def work(row: rows.FlightRow) -> None:
        if row.number == 0:
            first.wait(10)
        done.append(row.number)
        if row.number == 8:
            others.set()

    lines = WorkLines(work, 2, lambda job: job())
    for row in every:
        lines.put("slow" if row.number % 2 == 0 and row.number < 8 else f"other {row.number}", row)
    assert others.wait(10)
    assert done == [1, 3, 5, 7, 8]
    first.set()
    lines.finish()
    assert done == [1, 3, 5, 7, 8, 0, 2, 4, 6]
