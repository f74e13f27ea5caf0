"""Real nodes really killed: the quorum, an override that ends by itself, and the role that returns (R7, Q2, Q3)."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from halog.errors import QuorumError
from halog.runtime.node.open import RunningNode
from tests import forked
from tests.integration.cluster.checker import check
from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.load import Load
from tests.integration.cluster.processes import Process, wait
from tests.integration.cluster.test_kill import whole_again

pytestmark = pytest.mark.timeout(600)
P = "p-0"
CLAIMS = f"partition {P}: claiming"
REASON = "two machines burnt down"


def halog(cluster: Cluster, *args: str) -> Any:
    """A command of an operator, in a process of its own; its document."""
    argv = ["halog.cli.main", *args, "--config", str(cluster.toml), "--format", "json"]
    ran = forked.run(argv, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def land(node: RunningNode, tail: str) -> None:
    with node.transaction():
        node.get(Aircraft, tail).land(10)


def active(cluster: Cluster) -> str | None:
    member = cluster.table(P).active
    return None if member is None else member.node


@pytest.mark.feature("R7", "Q3", "X8")
def test_two_of_three_killed_nothing_weaker_is_acknowledged_and_an_operator_lets_the_last_go_on(make: Make) -> None:
    cluster = make(nodes="ABC", partitions=1, sync=1, async_=1, quorum=True)
    cluster.start()
    cluster.whole()
    node = cluster.client()
    with node.transaction():
        node.create(Aircraft(tail="N1"))
    last = active(cluster)
    assert last is not None
    others = [n for n in "ABC" if n != last]
    cluster.kill(others[0])
    land(node, "N1")
    cluster.kill(others[1])
    wait(lambda: not cluster.table(P).replicas, "the replicas have left the node list")
    with pytest.raises(QuorumError, match="a commit needs 2"):
        land(node, "N1")
    _overridden_for(cluster, 8)
    wait(lambda: cluster.table(P).group.required == 0, "the override has ended by itself")
    wait(lambda: "2 nodes are required, not 1" in cluster.log_of(last), "the active has heard of it")
    with pytest.raises(QuorumError, match="a commit needs 2"):
        land(node, "N1")

    def told() -> bool:
        texts = [e["text"] for e in halog(cluster, "events", "--partition", P)]
        return all(any(said in text for text in texts) for said in (REASON, "1 nodes are there, 2 are needed"))

    wait(told, "the history has both")
    cluster.start(others)
    whole_again(cluster)
    _until_it_lands(node)
    with node.transaction():
        assert node.get(Aircraft, "N1").landings == 3, "two, and the one under the override"
    check(cluster)


@pytest.mark.long
@pytest.mark.feature("R7", "Q3", "X8")
def test_an_override_is_over_in_time_at_a_node_that_was_frozen_then_and_reaches_no_zookeeper(make: Make) -> None:
    """It wakes up behind the end, and nobody can tell it: it knows, and acknowledges nothing by it any more."""
    cluster = make(nodes="ABC", partitions=1, sync=1, async_=1, quorum=True)
    cluster.start()
    cluster.whole()
    node = cluster.client()
    with node.transaction():
        node.create(Aircraft(tail="N1"))
    last = active(cluster)
    assert last is not None
    others = [n for n in "ABC" if n != last]
    for name in others:
        cluster.kill(name)
    wait(lambda: not cluster.table(P).replicas, "the replicas have left the node list")
    until = _overridden_for(cluster, 15)
    time.sleep(max(0.0, until - time.time() - 5.0))
    cluster.site.pause("zookeeper")
    try:
        land(node, "N1")
        time.sleep(max(0.0, until - time.time() - 0.3))
        cluster.freeze(last)
        time.sleep(max(0.0, until - time.time() + 0.1))
        cluster.wake(last)
        with pytest.raises(QuorumError, match="a commit needs 2"):
            land(node, "N1")
    finally:
        cluster.site.resume("zookeeper")
    wait(lambda: cluster.table(P).group.required == 0, "it is taken out of ZooKeeper")
    cluster.start(others)
    whole_again(cluster)
    _until_it_lands(node)
    with node.transaction():
        assert node.get(Aircraft, "N1").landings == 3, "one before, one while nobody reached ZooKeeper, one now"
    check(cluster)


def _overridden_for(cluster: Cluster, seconds: int) -> float:
    """An operator lets one node be enough, and one commit happens by that. Return when it is over, in s since 1970.

    The command may take a while to end: by then it may be over."""
    argv = ["halog.cli.main", "partition", "require", P, "1", "--may-fork", "--cluster", cluster.name]
    argv += ["--for", f"{seconds}s", "--reason", REASON, "--config", str(cluster.toml)]
    command = Process("require", cluster.directory, argv)
    wait(lambda: cluster.table(P).group.required == 1, "the override stands")
    until = cluster.table(P).group.required_until_ms / 1000
    _until_it_lands(cluster.client())
    assert command.exit_code(60) == 0, command.last_words(2_000)
    return until


def _until_it_lands(node: RunningNode) -> None:
    """An override is effective at once where it is known; the active node hears of it by its watch. Also of nodes that
    are back ZooKeeper knows a moment before the active node does."""
    until = time.monotonic() + 45
    while True:
        try:
            land(node, "N1")
            return
        except QuorumError:
            assert time.monotonic() < until
            time.sleep(0.02)


@pytest.mark.feature("R7", "Q2")
def test_a_minority_elects_nobody_and_the_majority_does(make: Make) -> None:
    cluster = make(nodes="ABC", partitions=1, sync=1, async_=1, quorum=True)
    cluster.start()
    cluster.whole()
    node = cluster.client()
    with node.transaction():
        node.create(Aircraft(tail="N1"))
    first = active(cluster)
    assert first is not None
    others = [n for n in "ABC" if n != first]
    cluster.kill(others[0])
    wait(lambda: len(cluster.table(P).replicas) == 1, "one replica is left")
    claims = cluster.log_of(others[1]).count(CLAIMS)  # at the start several may try
    cluster.kill(first)
    time.sleep(3)  # several elections' worth
    assert active(cluster) in (None, first)
    assert cluster.log_of(others[1]).count(CLAIMS) == claims
    cluster.start([others[0]])
    wait(lambda: active(cluster) in others, "two of three elect one of them")
    _until_it_lands(node)
    cluster.start([first])
    whole_again(cluster)
    check(cluster)


@pytest.mark.long
@pytest.mark.feature("Q2", "Q5")
def test_a_preferred_node_that_returns_gets_its_role_back_under_traffic_and_nothing_is_lost(make: Make) -> None:
    """And one whose priority becomes never gives all its roles away."""
    cluster = make(nodes="ABC", partitions=3, sync=1, async_=1, stay_ms=3_000)
    cluster.start()
    cluster.whole()
    with Load(cluster.client(), "return") as load:
        cluster.kill("A")
        load.flows(40)
        cluster.start(["A"])
        wait(lambda: _actives(cluster) == _preferred(cluster), "every role is where it is preferred", 60)
        load.flows(40)
        halog(cluster, "partition", "priority", "p", "B", "never")
        wait(lambda: "B" not in _actives(cluster).values(), "B is active for nothing", 60)
        load.flows(40)
    assert load.errors == []
    whole_again(cluster)
    check(cluster, load)


def _actives(cluster: Cluster) -> dict[str, str]:
    return {t.name: t.active.node for t in cluster.tables() if t.active is not None}


def _preferred(cluster: Cluster) -> dict[str, str]:
    return {t.name: t.configured[0] for t in cluster.tables()}
