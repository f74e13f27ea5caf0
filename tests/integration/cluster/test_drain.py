"""A node is drained and really taken away while applications write; `safe-to-stop` says before whether it may (X4)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests import forked
from tests.integration.cluster.checker import check
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.load import Load
from tests.integration.cluster.pauses import Control
from tests.integration.cluster.processes import wait
from tests.integration.cluster.waits import DIED, MOVED

pytestmark = [pytest.mark.timeout(600), pytest.mark.feature("P12", "X4", "O1")]

REFUSED = 5


def settled(cluster: Cluster) -> bool:
    tables = cluster.tables()
    return all(t.target is None for t in tables) and cluster.complete(*tables)


def halog(cluster: Cluster, *args: str) -> tuple[int, Any]:
    """An operator's command, in a process of its own: exit code and document. A drain takes as long as its copies."""
    argv = ["halog.cli.main", *args, "--config", str(cluster.toml), "--format", "json"]
    ran = forked.run(argv, timeout=150)
    assert ran.stdout, ran.stderr
    return ran.returncode, json.loads(ran.stdout)


def speak_against(cluster: Cluster) -> list[str]:
    """The partitions for which A and B may not both stop."""
    code, said = halog(cluster, "safe-to-stop", "A", "B")
    unsafe = [p["partition"] for p in said["partitions"] if not p["safe"]]
    assert (code, said["safe"]) == ((REFUSED, False) if unsafe else (0, True))
    return unsafe


def test_two_nodes_may_not_stop_until_one_is_drained_and_then_both_do_under_load(make: Make, control: Control) -> None:
    """p-0 is on A and B alone: both may not stop, and the command says which partition speaks against it. A is drained;
    then A has nothing that could stop, and everything of B's has an heir. Both stop, and C carries on alone: no caller
    gets an error, none waits longer than for a hand-over, and nothing is lost or doubled."""
    cluster = make(partitions=3, async_=0)
    cluster.start()
    cluster.whole()
    with Load(cluster.client(), "drained") as load:
        assert [t.name for t in cluster.tables() if set(t.configured) == {"A", "B"}] == ["p-0"]
        wait(lambda: speak_against(cluster) == ["p-0"], lambda: f"{speak_against(cluster)} speak against it, not p-0")
        code, plan = halog(cluster, "drain", "A", "--dry-run")
        assert (code, plan["done"]) == (0, False)
        assert any("A" in t.configured for t in cluster.tables()), "nothing has changed"
        code, drained = halog(cluster, "drain", "A")
        assert (code, drained["done"]) == (0, True)
        assert [(m["partition"], m["to"]) for m in drained["moves"]] == [
            (m["partition"], m["to"]) for m in plan["moves"]
        ]
        assert not any("A" in t.hosts for t in cluster.tables())
        wait(lambda: not any("A" in t.node_list for t in cluster.tables()), "A is in no node list")
        wait(lambda: cluster.status("A")["copies"] == [], "A has no copy left")
        assert halog(cluster, "safe-to-stop", "A") == (0, {"nodes": ["A"], "safe": True, "partitions": []})
        wait(lambda: settled(cluster), "every node list is complete")
        wait(lambda: speak_against(cluster) == [], "C has everything")
        load.flows()
        control.check(load.waits, MOVED)
        for name in "AB":
            assert cluster.processes[name].terminate() == 0
        load.flows()
        assert {t.active.node for t in cluster.tables() if t.active is not None} == {"C"}
        control.check(load.waits, MOVED)
        assert halog(cluster, "safe-to-stop", "C")[0] == REFUSED
    assert load.errors == []
    cluster.start(["A", "B"])
    wait(lambda: settled(cluster), "every node list is complete again")
    assert cluster.status("A")["copies"] == [], "and A, back with its file, has still nothing"
    check(cluster, load)


def test_a_drain_is_completed_though_its_node_is_killed_meanwhile(make: Make, control: Control) -> None:
    """The wishes are set and the node dies: the others make the copies from the log, and it comes back to nothing."""
    cluster = make(partitions=3, async_=0)
    cluster.start()
    cluster.whole()
    with Load(cluster.client(), "killed") as load:
        assert halog(cluster, "drain", "A", "--no-wait")[0] == 0
        cluster.kill("A")
        load.flows()
        wait(lambda: settled(cluster), "it is completed", 120)
        load.flows()
        cluster.start(["A"])
        wait(lambda: cluster.status("A")["copies"] == [], "A has no copy")
    assert load.errors == []
    control.check(load.waits, DIED)
    check(cluster, load)
