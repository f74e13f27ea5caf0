"""`halog upgrade` brings real nodes to a later halog under traffic, back, and there again; then the level is raised
(U1)."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from halog.core.log.records import KINDS
from halog.errors import VersionMismatchError
from halog.release import RELEASE
from tests.integration.cluster import future, restart_hook
from tests.integration.cluster.checker import check, entries
from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.load import Load
from tests.integration.cluster.pauses import Control
from tests.integration.cluster.processes import Process, wait
from tests.integration.cluster.test_state_hashes import alter
from tests.integration.cluster.waits import Pause

pytestmark = [pytest.mark.timeout(600), pytest.mark.feature("U1")]

LATER = "0.3.0"
LEVEL = 2
RESTARTED = Pause(0.2, 20.0)
"""A caller may meet a hand-over, and then the end of the node that it has just asked."""


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> Path:
    edits = (
        future.Edit("halog/release.py", f'"{RELEASE}"', f'"{LATER}"'),
        future.Edit("halog/release.py", "LEVEL: Final = 1", f"LEVEL: Final = {LEVEL}"),
        *future.RECORD,
    )
    return future.written(tmp_path_factory.mktemp("later"), edits)


class Operator:
    """Gives commands of the later halog, and restarts nodes when their hook asks for it."""

    def __init__(self, cluster: Cluster, later: Path, between: Callable[[str], None] | None = None) -> None:
        """`between` is called while a node is down."""
        self.between = between
        self.cluster = cluster
        self.sources: Mapping[str, Path | None] = {LATER: later, RELEASE: None}
        self.later = later
        self.restarted: list[tuple[str, str]] = []
        self.hook = shlex.join([sys.executable, str(Path(restart_hook.__file__)), str(cluster.directory)])

    def begin(self, *words: str) -> Process:
        argv = ["halog.cli.main", "upgrade", *words, "--config", str(self.cluster.toml)]
        return Process(f"upgrade-{words[0]}", self.cluster.directory, argv, self.later)

    def until(self, holds: Callable[[], object], what: str) -> None:
        """Restart what hooks ask for until it holds."""

        def serves() -> bool:
            for wish in self.cluster.directory.glob("*.wish"):
                self.restart(wish)
            return bool(holds())

        wait(serves, what, 240.0)

    def restart(self, wish: Path) -> None:
        node, release = wish.stem, wish.read_text()
        assert self.cluster.processes[node].terminate() == 0
        if self.between is not None:
            self.between(node)
        self.cluster.launch(node, source=self.sources[release])
        self.restarted.append((node, release))
        wish.unlink()

    def run(self, *words: str, code: int = 0) -> Process:
        """Let a command end."""
        command = self.begin(*words)
        self.until(lambda: not command.running, f"upgrade {words} ends")
        assert command.exit_code(1) == code, command.last_words(4_000)
        return command

    def versions(self) -> dict[str, str]:
        found = {n: self.cluster.znode(f"nodes/{n}") for n in self.cluster.nodes}
        return {n: json.loads(data)["version"] for n, data in found.items() if data is not None}

    def record(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.cluster.znode("upgrade") or b"{}")
        return document


def is_refused(cluster: Cluster, tail: str) -> bool:
    """Does the client know that the cluster has outgrown it?"""
    try:
        with cluster.client().transaction() as tx:
            tx.get(Aircraft, tail)
    except VersionMismatchError:
        return True
    return False


def kinds(cluster: Cluster) -> set[int]:
    """The kinds of records that stand in the logs."""
    return {value[1] for t in cluster.tables() for _, value in entries(cluster.site.info.bootstrap, t.topic, t.index)}


def test_nodes_are_upgraded_under_traffic_and_the_level_is_raised(make: Make, later: Path, control: Control) -> None:
    """No partition pauses for longer than a hand-over takes, nothing is lost, and then no earlier halog comes in: not
    where ZooKeeper has forgotten the level either, for the logs say it."""
    cluster = make()
    cluster.start()
    operator = Operator(cluster, later)
    with Load(cluster.client(), "upgrade") as load:
        cluster.whole()
        operator.run("start", "--all", "--deep", "--hook", operator.hook)
        load.flows()
    assert load.errors == []
    assert operator.versions() == dict.fromkeys(cluster.nodes, LATER)
    assert operator.record()["state"] == "complete"
    doctor = Process(
        "doctor", cluster.directory, ["halog.cli.main", "doctor", "--config", str(cluster.toml), "--format", "json"]
    )
    doctor.exit_code(120)
    (finding,) = (c for c in json.loads(doctor.out.read_text())["checks"] if c["name"] == "upgrade")
    assert (finding["result"], f"to halog {LATER} under way (3 of 3)" in finding["detail"]) == ("warn", True), finding
    usual = sorted(w.seconds for w in control.waits)
    print(
        f"the longest of {len(load.waits)} transactions took {load.longest_s * 1000:.0f} ms, of the control's "
        f"{usual[-1] * 1000:.0f} ms"
    )
    control.check(load.waits, RESTARTED)
    check(cluster, load)
    operator.run("can-rollback", "--to", "1")
    assert "client" in operator.run("finish", code=5).last_words(2_000)
    operator.run("finish", "--leave-clients")
    level = json.loads(cluster.znode("level") or b"{}")
    assert (level["level"], level["floor"], operator.record()["state"]) == (LEVEL, 1, "finished")
    wait(lambda: is_refused(cluster, load.shared), "the client is refused")
    assert cluster.processes["B"].terminate() == 0
    assert cluster.launch("B").exit_code(60) == 7
    cluster.launch("B", source=later).ready()
    wait(lambda: kinds(cluster) >= {KINDS["LevelStated"], future.KIND}, "epochs have stated the level")
    for name in cluster.nodes:
        assert cluster.processes[name].terminate() == 0
    cluster.zk.delete(f"/halog/{cluster.name}/level")
    for name in cluster.nodes:
        cluster.launch(name, source=None if name == "B" else later)
    assert cluster.processes["B"].exit_code(60) == 7
    wait(lambda: json.loads(cluster.znode("level") or b"{}").get("level") == LEVEL, "the level is in ZooKeeper again")


@pytest.mark.long
def test_nodes_go_back_and_there_again_and_commands_may_die(make: Make, later: Path, control: Control) -> None:
    """One node first, whose command is interrupted and given again, and back; then all, whose command is killed half
    way, and all of them back."""
    cluster = make()
    cluster.start()
    operator = Operator(cluster, later)
    old, new = dict.fromkeys(cluster.nodes, RELEASE), dict.fromkeys(cluster.nodes, LATER)
    with Load(cluster.client(), "back") as load:
        cluster.whole()
        by_hand = operator.begin("start", "--one", "B")
        wait(lambda: f"restart B under halog {LATER} now" in by_hand.last_words(2_000), "an operator is asked")
        assert cluster.led_by("B") == []
        by_hand.signal(signal.SIGINT)
        assert by_hand.exit_code(60) == 130
        assert operator.record()["why"] == "the command was interrupted"
        operator.run("start", "--one", "B", "--hook", operator.hook)
        assert operator.versions() == {**old, "B": LATER}
        assert operator.record()["done"] == ["B"]
        load.flows()
        operator.run("rollback", "--hook", operator.hook)
        assert operator.versions() == old
        assert operator.record()["state"] == "finished"
        load.flows()
        killed = operator.begin("start", "--all", "--hook", operator.hook)
        operator.until(lambda: operator.record().get("done"), "one node is done")
        killed.kill()
        operator.until(cluster.complete, "every node is back")  # a hook may have been under way
        operator.run("start", "--all", "--hook", operator.hook)
        assert operator.versions() == new
        load.flows()
        operator.run("rollback", "--hook", operator.hook)
        assert operator.versions() == old
        load.flows()
    assert load.errors == []
    control.check(load.waits, RESTARTED)
    check(cluster, load)


@pytest.mark.long
def test_a_node_that_makes_other_objects_of_its_log_gets_no_role_and_no_successor(make: Make, later: Path) -> None:
    """Its store is altered while it is down, as by a release that reads it otherwise."""
    cluster = make(nodes="AB", partitions=2, async_=0)
    cluster.start()
    with Load(cluster.client(), "altered") as load:
        load.flows()
    cluster.whole()
    operator = Operator(cluster, later, lambda node: alter(cluster, node, "p-0", counted_anew=True))
    said = operator.run("start", "--all", "--hook", operator.hook, code=5).last_words(2_000)
    ((node, _),) = operator.restarted
    other = "B" if node == "A" else "A"
    assert f"p-0: the state of {node} is not that of {other} at lsn " in said
    assert (operator.record()["state"], operator.record().get("done", [])) == ("paused", [])
    assert cluster.led_by(node) == []
    assert len(cluster.led_by(other)) == 2
