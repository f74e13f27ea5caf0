"""Real nodes really killed and frozen: a zone's quorum, what is left without one, and what comes back (Q1, P5, P11)."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from halog.errors import AvailabilityError, OutcomeUnknownError, ZoneQuorumError
from halog.runtime.node.open import RunningNode
from tests import forked
from tests.integration.cluster.checker import check
from tests.integration.cluster.fleet import Aircraft
from tests.integration.cluster.harness import Cluster, Make
from tests.integration.cluster.processes import wait
from tests.integration.cluster.test_kill import whole_again

pytestmark = pytest.mark.timeout(600)
TWO = "minimum_votes = 2"
SOON_S = 60.0
"""Silence is noticed after 1.5 s here; the rest is a busy machine, where each look of an operator takes seconds."""
REFUSES_S = 20.0
"""A caller who is refused does not wait until his deadline, which is twice as long."""


def halog(cluster: Cluster, *args: str) -> tuple[int, Any]:
    """A command of an operator, in a process of its own: exit code and document."""
    argv = ["halog.cli.main", *args, "--config", str(cluster.toml), "--format", "json"]
    ran = forked.run(argv, timeout=60)
    assert ran.stdout, ran.stderr
    return ran.returncode, json.loads(ran.stdout)


def land(node: RunningNode, tail: str = "N1") -> int:
    with node.transaction():
        return node.get(Aircraft, tail).land(10)


def begun(make: Make, **options: Any) -> tuple[Cluster, RunningNode, str, list[str]]:
    """A whole cluster, its client, the active node, and the others."""
    cluster = make(nodes="ABC", partitions=1, sync=1, async_=1, **options)
    cluster.start()
    cluster.whole()
    node = cluster.client()
    with node.transaction():
        node.create(Aircraft(tail="N1"))
    active = cluster.table("p-0").active
    assert active is not None
    return cluster, node, active.node, [n for n in "ABC" if n != active.node]


def nodes_of(cluster: Cluster) -> dict[str, str]:
    """The state of each node of the zone, as an operator is shown it."""
    _, seen = halog(cluster, "zone", "show", "home")
    return {n["node"]: n["state"] for n in seen["nodes"]}


def standing(cluster: Cluster, node: str) -> str:
    return nodes_of(cluster)[node]


@pytest.mark.feature("Q1", "P5", "P11")
def test_two_of_three_killed_the_third_serves_nothing_until_one_is_back(make: Make) -> None:
    """The one that is left is the active one; it has the log and ZooKeeper, and no quorum of its zone."""
    cluster, node, last, others = begun(make, zone_quorum=TWO)
    wait(lambda: shown(cluster)[0] == 0, "the zone is well", SOON_S)
    cluster.kill(others[0])
    assert land(node) == 1, "two votes are enough"
    wait(lambda: standing(cluster, last) == "partial", "the last one knows that one is gone", SOON_S)
    cluster.kill(others[1])
    wait(lambda: standing(cluster, last) == "disabled", "the last one has no quorum", SOON_S)
    began = time.monotonic()
    with pytest.raises(
        ZoneQuorumError, match=f"node {last} is offline: zone home has no quorum here: 1 votes, 2 needed"
    ):
        land(node)
    assert time.monotonic() - began < REFUSES_S
    gone = {last: "disabled", others[0]: "down", others[1]: "down"}
    wait(lambda: nodes_of(cluster) == gone, "a dead node is silent until its session ends", SOON_S)
    wait(lambda: shown(cluster) == (4, "disabled"), "an operator is told", SOON_S)
    wait(lambda: cluster.copies(last).get("p-0", {}).get("role") == "offline", "its copy is offline")
    cluster.start([others[0]])
    wait(lambda: standing(cluster, last) == "partial", "the quorum is back", SOON_S)
    assert landed(node) == 2
    cluster.start([others[1]])
    whole_again(cluster)
    assert landed(node) == 3

    def told() -> bool:
        events = halog(cluster, "events")[1]
        codes = [e["code"] for e in events if e["by"] == last and e["more"].get("zone") == "home"]
        if not {"HALOG-1021", "HALOG-1022", "HALOG-1023"} <= set(codes):
            return False
        back = len(codes) - 1 - codes[::-1].index("HALOG-1022")
        return codes.index("HALOG-1023") < codes.index("HALOG-1021") < back

    wait(told, "the history has it, in this order", SOON_S)
    check(cluster)


def shown(cluster: Cluster) -> tuple[int, str]:
    """The exit code and the state of the zone, as an operator is shown them."""
    code, zone = halog(cluster, "zone", "show", "home")
    return code, zone["state"]


@pytest.mark.long
@pytest.mark.feature("Q1", "P11", "N4")
def test_two_of_three_frozen_the_third_goes_offline_and_nobody_loses_anything(make: Make) -> None:
    """Silence is enough; what wakes up finds everything as it is, and each landing that was told stands once."""
    cluster, node, last, others = begun(make, zone_quorum=TWO)
    told, unknown = 0, 0
    for other in others:
        cluster.freeze(other)
    until = time.monotonic() + SOON_S
    while time.monotonic() < until:
        try:
            land(node)
            told += 1
        except OutcomeUnknownError:
            unknown += 1
        except ZoneQuorumError:
            break
    assert time.monotonic() < until, "it commits for ever"
    for other in others:
        cluster.wake(other)
    wait(lambda: standing(cluster, last) != "disabled", "the quorum is back", SOON_S)
    whole_again(cluster)
    with node.transaction():
        landings = node.get(Aircraft, "N1").landings
    assert told <= landings <= told + unknown
    check(cluster)


@pytest.mark.feature("Q1", "O1")
def test_an_operator_switches_the_quorum_off_and_the_last_one_goes_on(make: Make) -> None:
    cluster, node, last, others = begun(make, zone_quorum=TWO)
    for other in others:
        cluster.kill(other)
    wait(lambda: standing(cluster, last) == "disabled", "the last one has no quorum", SOON_S)
    reason = "two machines burnt down"
    assert (
        halog(cluster, "zone", "quorum", "home", "--off", "--cluster", cluster.name, "--reason", reason)[1]["off"]
        is True
    )
    wait(lambda: standing(cluster, last) == "partial", "it goes on", SOON_S)
    assert landed(node) == 1
    assert halog(cluster, "zone", "quorum", "home", "--on")[1]["off"] is False
    wait(lambda: standing(cluster, last) == "disabled", "it is offline again", SOON_S)
    with pytest.raises(ZoneQuorumError):
        land(node)

    def switched() -> list[tuple[str, str]]:
        return [(e["more"]["now"], e["cause"]) for e in halog(cluster, "events")[1] if e["code"] == "HALOG-1025"]

    wait(lambda: switched() == [("off", reason), ("on", "asked for")], "the history has both", SOON_S)
    cluster.start(others)
    whole_again(cluster)
    assert landed(node) == 2
    check(cluster)


def landed(node: RunningNode) -> int:
    """The last one is about to open its epoch: callers wait, or hear that nobody serves yet."""
    until = time.monotonic() + SOON_S
    while True:
        try:
            return land(node)
        except AvailabilityError:
            assert time.monotonic() < until
            time.sleep(0.05)
