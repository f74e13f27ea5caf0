"""The main job: real flights, real processes, a node killed and another stopped in the middle, nothing lost."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.integration.cluster.processes import wait
from tests.integration.demo.support import (
    ENDS_S,
    ROWS,
    Ran,
    await_none,
    interrupt,
    processes_of,
    read_until,
    run,
    start,
)

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]
KEYS = {
    *("ok", "transactions", "acknowledged", "lost", "doubled", "unknown", "copies_equal", "copies", "failover_ms"),
    *("frozen_ms", "restart_ms", "catch_up_ms", "join", "rebalance", "leave", "throughput", "rows", "seconds"),
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One run, and nothing of it left."""
    directory = tmp_path_factory.mktemp("demo")
    found = run("--rows", str(ROWS), "--data-dir", str(directory / "demo"), "--format", "json")
    assert not await_none(directory, ENDS_S)
    return found


@pytest.mark.feature("P10", "R1", "R5")
def test_nothing_is_lost_while_nodes_are_killed_stopped_and_woken(ran: Ran) -> None:
    """Every object adds up, every copy is equal, every acknowledged transaction is in the log exactly once."""
    assert ran.code == 0, ran.err
    result = ran.result
    assert result.keys() == KEYS
    assert result["ok"] is True
    assert result["rows"] == {"landed": 2960, "cancelled": 25, "diverted": 15, "no_tail": 4}
    assert result["transactions"] == result["acknowledged"] == 3000
    assert (result["lost"], result["doubled"], result["unknown"]) == (0, 0, 0)
    assert result["copies_equal"] is True
    assert result["copies"]["partitions"] == 12
    assert result["copies"]["objects"] > ROWS
    assert result["failover_ms"]["count"] >= 4  # 12 partitions: one of three nodes is active for four or more
    assert result["frozen_ms"]["count"] >= 4
    assert result["restart_ms"] <= result["catch_up_ms"]


@pytest.mark.feature("P2", "P12", "P13")
def test_a_node_joins_objects_move_and_a_node_leaves_meanwhile(ran: Ran) -> None:
    """One after the other, each under traffic; in the end every object is where the mapper says."""
    result = ran.result
    assert result["copies"]["misplaced"] == 0
    assert result["join"]["partitions"] == 9  # of 12 with 3 copies each, over 4 nodes
    assert result["leave"]["partitions"] >= 9
    assert result["rebalance"]["objects"] > 100  # of those of the first tenth of the flights
    changes = [result[name] for name in ("join", "rebalance", "leave")]
    assert [change["pause_ms"]["count"] for change in changes] == [12, 12, 12]
    assert sorted(change["at_s"] for change in changes) == [change["at_s"] for change in changes]


@pytest.mark.long
@pytest.mark.feature("R1")
def test_one_lost_commit_fails_the_demo(tmp_path: Path) -> None:
    """The judge is not blind: an acknowledged transaction that never happened is lost, and objects do not add up."""
    options = ("--sabotage", "drop-commit", "--partitions", "3", "--seed", "7", "--format", "json")
    ran = run("--rows", "1500", "--data-dir", str(tmp_path / "demo"), *options)
    assert ran.code == 1, ran.err
    result = ran.result
    assert result["ok"] is False
    assert (result["lost"], result["doubled"]) == (1, 0)
    assert result["transactions"] == result["acknowledged"]
    assert result["copies_equal"] is True
    assert "is missing" in ran.err


@pytest.mark.parametrize(
    "number", [*(pytest.param(n, marks=pytest.mark.long) for n in (signal.SIGINT, signal.SIGTERM)), signal.SIGKILL]
)
def test_no_process_survives_the_demo(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C, a polite end, and kill -9, which leaves the demo no chance to do anything."""
    data_dir = tmp_path / "demo"
    process = start("--rows", "60000", "--data-dir", str(data_dir), "--format", "json")
    try:
        read_until(process, "a client process replays")
        wait(lambda: len(processes_of(data_dir)) >= 8, "demo, supervisor, two servers, three nodes, client", ENDS_S)
        interrupt(process, number)
        out, _ = process.communicate(timeout=ENDS_S)
    finally:
        process.kill()
    assert out == ""
    assert process.returncode == (130 if number is not signal.SIGKILL else -signal.SIGKILL)
    assert not await_none(data_dir, ENDS_S)


def test_the_default_directory_is_removed_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of an interrupted run is left on the disk."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    process = start("--rows", "6000")
    try:
        read_until(process, "Kafka answered")
        interrupt(process, signal.SIGINT)
        process.communicate(timeout=ENDS_S)
    finally:
        process.kill()
    assert list(tmp_path.iterdir()) == []
    assert not await_none(tmp_path, ENDS_S)
