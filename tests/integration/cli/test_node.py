"""`halog node start` as a real process: ready, hand-over, ending at once, and every way it cannot start."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(600)

LONG = pytest.mark.long
ENDS_S = 30.0
UP_S = 90.0


@pytest.mark.feature("N6", "O1")
def test_a_node_says_when_it_is_up_and_hands_over_before_it_leaves(cluster: Any) -> None:
    """SIGTERM: exit 0, and its partitions are active elsewhere by an ordinary hand-over, not by an election."""
    cluster.load(60)
    until = time.monotonic() + UP_S  # who is up first may be active first; half a minute later its roles come back to A
    while not (led := led_by(cluster, "A")):
        assert time.monotonic() < until
    assert cluster.stop("A") == 0
    assert cluster.settle(4, served=True)["nodes"]["A"] == "down"
    for name in led:
        records = cluster.halog("log", "tail", name, "-n", "1000", "--format", "json").out
        assert '"HandedOver"' in records
        assert '"verdict":"voided"' not in records


def led_by(cluster: Any, node: str) -> list[str]:
    shown = cluster.halog("partition", "list", "--format", "json").json
    return [p["partition"] for p in shown if p["active"] == node]


@pytest.mark.long
@pytest.mark.feature("N6", "O1")
def test_a_restarted_node_takes_its_place_again(cluster: Any) -> None:
    """After a restart `halog status` is ok again: every replica is back."""
    assert cluster.stop("B") == 0
    cluster.settle(4)
    cluster.start("B")
    assert cluster.settle()["replicas"] == {"configured": 12, "present": 12}


@pytest.mark.feature("P10", "O1")
def test_a_killed_node_shows_as_degraded_with_nothing_lost(cluster: Any) -> None:
    """kill -9: another node is active for each of its partitions, and every object is still found."""
    cluster.load(30)
    cluster.stop("C", signal.SIGKILL)
    cluster.settle(4, served=True)
    for n in range(30):
        if n % 10 == 0:
            assert cluster.halog("get", "Aircraft", f"N{n}", "--format", "json").json["fields"]["miles"] == n


@pytest.mark.feature("O1")
def test_a_second_signal_ends_a_node_at_once(prepared: Any) -> None:
    """The first one lets it leave in order; who cannot wait sends another."""
    node = prepared.launch("A")
    prepared.ready("A")
    node.send_signal(signal.SIGTERM)
    while "hands over and leaves" not in prepared.said("A"):
        time.sleep(0.001)
    node.send_signal(signal.SIGTERM)
    assert node.wait(ENDS_S) in (-signal.SIGTERM, 0)


@pytest.mark.feature("O1")
def test_a_signal_while_joining_ends_it_in_order(elsewhere: Callable[[str, str], Any]) -> None:
    """A server that accepts and never answers does not hold up a node that is told to go."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        cluster = elsewhere(address, address)
        node = cluster.launch("A")
        silent.accept()
        node.send_signal(signal.SIGTERM)
        assert node.wait(ENDS_S) == 0
        assert "before the node was up" in cluster.said("A")
        cluster.close()


DEAF = """
import signal, threading, time

threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})  # from here on only that thread takes them
"""


@pytest.mark.feature("O1")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_the_kernel_gives_to_another_thread_is_heard(prepared: Any, number: signal.Signals) -> None:
    """The main thread waits on a lock, and no signal reaches it by itself."""
    with (prepared.directory / "fleet.py").open("a") as module:
        module.write(DEAF)
    prepared.start("A")
    time.sleep(0.5)  # until its main thread waits: one that runs hears by itself
    assert prepared.stop("A", number) == 0
    assert "hands over and leaves" in prepared.said("A")


@pytest.mark.feature("O1")
def test_stopped_continued_and_told_to_end_at_once(prepared: Any) -> None:
    """A frozen node that is woken up and told to end does end: each of five times."""
    for _ in range(5):
        prepared.start("A")
        for number in (signal.SIGSTOP, signal.SIGCONT):
            prepared.nodes["A"].send_signal(number)
        assert prepared.stop("A") == 0


@pytest.mark.feature("O1")
@pytest.mark.parametrize(
    ("files", "become"),
    [
        ("<&- >&- 2>&-", dict.fromkeys(range(3), os.devnull)),
        ("> /dev/full", {1: os.devnull}),
        ("> /dev/full 2> /dev/full", {1: os.devnull, 2: "/dev/full"}),
    ],
)
def test_a_node_runs_whatever_became_of_its_standard_files(prepared: Any, files: str, become: dict[int, str]) -> None:
    """Closed, as by a daemon that starts it, or taking nothing: no connection gets their numbers, and it serves, and
    hands over. stdout is given up behind the line that says that the node is up."""
    command = shlex.join(prepared.command("node", "start", "--name", "A"))
    prepared.nodes["A"] = node = subprocess.Popen(
        ["bash", "-c", f"exec {command} {files}"], cwd=prepared.directory, text=True, stdout=subprocess.PIPE
    )
    prepared.settle(4)
    until = time.monotonic() + UP_S
    while prepared.halog("node", "list", "--format", "json").json[0]["state"] != "up":
        assert node.poll() is None
        assert time.monotonic() < until
    while {number: os.readlink(f"/proc/{node.pid}/fd/{number}") for number in become} != become:
        assert time.monotonic() < until, "it says that it is up, or tries to"
        time.sleep(0.1)
    assert prepared.stop("A") == 0


@pytest.mark.feature("O1")
def test_a_name_that_is_no_hosting_node_is_a_usage_error(prepared: Any) -> None:
    """One line naming the known nodes, exit 2."""
    ran = prepared.halog("node", "start", "--name", "X")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1
    assert "A, B, C" in ran.err


@pytest.mark.feature("N1", "O1")
def test_the_same_node_twice_is_refused(prepared: Any) -> None:
    """The data directory has one owner; the second start is one line and an exit code, the first goes on."""
    prepared.start("A")
    ran = prepared.halog("node", "start", "--name", "A")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.count("\n") == 1
    assert prepared.nodes["A"].poll() is None


@pytest.mark.feature("O1")
@pytest.mark.parametrize(
    "command",
    [["node", "start", "--name", "A"], *(pytest.param(c, marks=LONG) for c in (["status"], ["partition", "list"]))],
)
def test_servers_that_are_not_there_are_unreachable(elsewhere: Callable[[str, str], Any], command: list[str]) -> None:
    """Nobody listens: one line naming the address, exit 3, no traceback."""
    ran = elsewhere("127.0.0.1:1", "127.0.0.1:1").halog(*command)
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.count("\n") == 1
    assert "127.0.0.1:1" in ran.err


@pytest.mark.feature("U3", "O1")
def test_a_class_that_cannot_read_what_is_stored_keeps_its_node_out(prepared: Any) -> None:
    """SchemaChangedError names type and field, exit 2, and the node never joined."""
    prepared.start("A")
    assert prepared.stop("A") == 0
    module = prepared.directory / "fleet.py"
    module.write_text(module.read_text().replace("miles: int = 0", 'miles: str = ""'))
    ran = prepared.halog("node", "start", "--name", "A")
    assert (ran.code, ran.out) == (2, "")
    assert "Aircraft.miles" in ran.err


@pytest.mark.feature("O1")
def test_what_a_module_prints_when_it_is_imported_is_no_part_of_the_result(prepared: Any) -> None:
    """A program reads one document from stdout."""
    (prepared.directory / "fleet.py").write_text('print("hello")\n' + (prepared.directory / "fleet.py").read_text())
    prepared.launch("A")
    assert prepared.ready("A")["node"] == "A"
    assert "hello" in prepared.said("A")
