"""A site's client does each step once, and its journal is what is there, whatever it was answered."""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from halog.demo.journal import Journal, read
from halog.demo.ordered_work import RowGate
from halog.demo.split.journal import WriteClaims, claims
from halog.demo.split.reading import seen
from halog.demo.split.steps import FlightStep, StepPlan, plan
from halog.demo.split.traffic import Traffic
from halog.demo.split.verify import WriteVerdict, judge
from halog.errors import DuplicateKeyError
from halog.testing.memory import MemoryCluster
from halog.transactions import Node
from tests.unit.demo.split.test_steps import rows
from tests.unit.demo.test_replay import Forgetful

PLAN: StepPlan = plan(rows(120), 1)


def played(cluster: MemoryCluster, path: Path, sabotaged: int = -1) -> tuple[Traffic, WriteClaims, WriteVerdict]:
    """West's steps, on their own: there is no other site, and nothing to merge."""
    backend = Forgetful(cluster)
    notes = Journal(path)
    with Node(backend) as node:
        traffic = Traffic(node, backend, lambda: defaultdict(lambda: 1), notes, sabotaged)
        gate = RowGate(0)
        gate.open_to(len(PLAN.west))
        traffic.run(PLAN.west, gate, workers=4)
        notes.close()
        told = claims(read(path))
        return traffic, told, judge(told, WriteClaims({}, 0), seen(node), {})


def test_all_that_was_acknowledged_is_there(cluster: MemoryCluster, tmp_path: Path) -> None:
    traffic, told, verdict = played(cluster, tmp_path / "j")
    assert verdict.examples == []
    assert verdict.ok
    assert traffic.tally.rows == traffic.tally.acknowledged == len(PLAN.west)
    assert traffic.tally.repeated > 0
    assert traffic.first is not None
    assert told.unknown == 0
    assert verdict.merged + verdict.superseded == told.acknowledged > len(PLAN.west)


def test_a_step_that_was_only_said_to_be_done_is_found(cluster: MemoryCluster, tmp_path: Path) -> None:
    _, _, verdict = played(cluster, tmp_path / "j", sabotaged=PLAN.announced)
    assert not verdict.ok
    assert verdict.unaccounted >= 2  # its aircraft's and its airport's landing, and the departure unless it was dropped


def test_a_line_cut_off_by_a_crash_is_left_out(cluster: MemoryCluster, tmp_path: Path) -> None:
    played(cluster, tmp_path / "j")
    whole = list(read(tmp_path / "j"))
    data = (tmp_path / "j").read_bytes()
    (tmp_path / "j").write_bytes(data[:-5])
    assert list(read(tmp_path / "j")) == whole[:-1]


def test_a_step_that_cannot_be_done_ends_the_client_that_waits_at_its_gate(
    cluster: MemoryCluster, tmp_path: Path
) -> None:
    """Nobody would open it: who waits for the steps below it would wait for ever, and not hear why."""

    class Refused(Traffic):
        def work(self, tx: object, step: FlightStep) -> None:
            raise DuplicateKeyError("it is there already")

    backend = Forgetful(cluster)
    with Node(backend) as node:
        traffic = Refused(node, backend, lambda: defaultdict(lambda: 1), Journal(tmp_path / "j"), -1)
        gate = RowGate(0)
        gate.open_to(20)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(traffic.run, PLAN.west, gate, 4)
            try:
                with pytest.raises(DuplicateKeyError):
                    running.result(20)
            finally:
                gate.open_to(len(PLAN.west))
